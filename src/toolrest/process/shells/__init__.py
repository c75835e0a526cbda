"""Which shell runs a line, and in which environment."""
