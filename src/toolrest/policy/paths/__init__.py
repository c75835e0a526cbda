"""Which paths may be read and written, and the only door to them."""
