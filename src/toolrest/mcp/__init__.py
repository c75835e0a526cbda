"""The MCP client: which servers there are, their connections, what they offer, what is trusted.

The SDK is an optional package and slow to import. `conversation`, `transports.http`,
`transports.stdio` and `login.oauth` need it, so they are imported by functions only.
"""
