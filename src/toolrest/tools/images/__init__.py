"""Tools for images."""
