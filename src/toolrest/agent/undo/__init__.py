"""Checkpoints: what a workspace held before each turn that changed it, and the way back."""
