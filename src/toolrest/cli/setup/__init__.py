"""Commands about settings, models and tools."""
