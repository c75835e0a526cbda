"""The tests, and what they share: see machine.py and plain_container.py."""
