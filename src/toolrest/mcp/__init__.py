"""The MCP client: configured servers, their connections, tools, and pins of what was approved.

The SDK is an optional package and slow to import. `conversation`, `transports.http`,
`transports.stdio` and `login.oauth` need it, so they are imported by functions only.
"""
