"""Slash commands: their names, one-line helps, and what each does."""
