"""Servers: Toolrest's tools over MCP, its agent over the Agent Client Protocol."""
