"""OAuth for MCP servers."""
