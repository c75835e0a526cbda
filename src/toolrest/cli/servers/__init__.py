"""Commands that start or manage servers: MCP and the Agent Client Protocol."""
