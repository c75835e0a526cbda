"""The decision whether a call may run: approval policy, repeated calls, taint."""
