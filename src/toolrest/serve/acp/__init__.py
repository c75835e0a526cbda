"""The Agent Client Protocol: Toolrest's agent inside an editor."""
