"""Hooks: the user's own programs around each call, and the notify program."""
