"""MCP servers of a session: started, trusted, confined and offered as tools."""
