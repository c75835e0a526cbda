"""Reports of a session: `exec --json` lines and policy views."""
