"""Sessions: the runtime that puts the rooms together, and the turn loop.

A session loads what its first request takes. What only some sessions use (hooks, MCP servers, web
tools, skills, sub-agents, checkpoints, pending approvals, rules, a rollout that is resumed) is
imported by the function that needs it, and `rest` imports the rest when a session is made.
"""
