"""The user's rules files."""
