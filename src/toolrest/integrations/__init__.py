"""Toolrest's tools, gate and sandbox in other frameworks: one module for each.

Each needs its extra (`pip install "toolrest[pydantic-ai]"`) and is imported by its own name, so
that none loads the framework of another: `from toolrest.integrations import pydantic_ai`.
"""
