"""Set-up of a session from its settings: every part is built once."""
