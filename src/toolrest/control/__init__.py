"""The control socket of a running session: what it writes now, what waits, and what it is to do.

The protocol is in docs/internals/control.md. The session's own front end stays in charge: whatever
comes in through the socket goes the way that a key or a line at the terminal goes.
"""
