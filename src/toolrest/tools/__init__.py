"""One file a tool: its arguments, its description, its effects, its run.

`catalog` imports a tool when it is used. A tool's module is loaded to describe it to a model, so
what only a call needs (patches, verdicts on commands, HTTP, Pillow) is imported by its functions.
"""
