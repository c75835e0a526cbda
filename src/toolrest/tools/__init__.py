"""One file a tool: its arguments, its description, its effects, its run."""
