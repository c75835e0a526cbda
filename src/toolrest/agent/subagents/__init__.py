"""Sub-agents: roles, delegation, and their lives under the parent's ceiling."""
