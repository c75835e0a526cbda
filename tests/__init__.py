"""The tests, and what they share: see machine.py, progress.py and plain_container.py."""
