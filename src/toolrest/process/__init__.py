"""Processes: start, read, signal and end whole process trees."""
