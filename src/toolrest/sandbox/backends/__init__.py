"""The sandbox backends, and how one is chosen."""
