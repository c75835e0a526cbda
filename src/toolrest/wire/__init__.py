"""Model APIs: items to and from JSON, tool specs in each API's form."""
