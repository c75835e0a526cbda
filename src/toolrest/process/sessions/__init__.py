"""Command sessions: programs that outlive a call."""
