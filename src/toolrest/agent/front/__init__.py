"""The front door of the library: `Agent`, its conversations, and `Sandbox`."""
