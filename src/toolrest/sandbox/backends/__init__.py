"""The sandboxes themselves, and how one is chosen."""
