"""Sub-agents: roles, delegation, and their sessions, limited by the parent's rights."""
