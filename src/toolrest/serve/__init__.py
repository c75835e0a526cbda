"""Toolrest for others: its tools over MCP, its agent over the Agent Client Protocol."""
