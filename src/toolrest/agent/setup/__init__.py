"""From settings to a session: every part built once, put together in one place."""
