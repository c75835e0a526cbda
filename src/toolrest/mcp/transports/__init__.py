"""How an MCP server is reached: pipes or HTTP."""
