"""The MCP client: which servers there are, their connections, what they offer, what is trusted."""
