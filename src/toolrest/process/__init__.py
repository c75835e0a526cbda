"""Processes: starting, reading, steering and ending whole trees of them."""
