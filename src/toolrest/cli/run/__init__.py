"""Commands that run a model or a tool: exec, batch, call, demo, sessions, undo."""
