"""The user's own programs around each call."""
