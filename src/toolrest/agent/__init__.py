"""Sessions: the runtime that puts the rooms together, and later the turn loop."""
