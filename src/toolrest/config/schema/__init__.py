"""The settings themselves: tables, types, aliases and model families."""
