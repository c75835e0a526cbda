"""Names in a writable root that commands must not make or replace."""
