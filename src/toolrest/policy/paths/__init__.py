"""The path policy: which paths may be read and written, and the only door to them."""
