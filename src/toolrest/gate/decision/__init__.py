"""Whether a call may run: mode, repeated calls, taint."""
