"""Conversation items from and to JSON."""
