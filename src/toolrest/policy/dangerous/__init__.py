"""The dangerous list: commands that never run without approval."""
