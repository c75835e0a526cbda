"""What a patch changed: for events, and the diff of a whole turn."""
