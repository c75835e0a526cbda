"""Tools for sub-agents."""
