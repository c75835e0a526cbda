"""Sessions with a scripted model."""

from __future__ import annotations

from tests.agent.conftest import agent, workspace

__all__ = ["agent", "workspace"]
