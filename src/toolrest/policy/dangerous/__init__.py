"""Commands that are never run without asking."""
