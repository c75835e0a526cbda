"""Shells: which one runs a command line, and in which environment."""
