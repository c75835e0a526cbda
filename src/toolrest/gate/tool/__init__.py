"""Tools: the class, arguments, declared effects, registry."""
