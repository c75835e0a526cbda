"""Transports to MCP servers: pipes or HTTP."""
