"""What a tool is: its class, its arguments, its declared effects, its registry."""
