"""What a session tells others: `exec --json` lines, policy views, canaries."""
