"""Reports of what patches changed: for events, and the diff of a whole turn."""
