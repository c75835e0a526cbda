"""What may be touched: effects, risk, paths. Reads rules; does no other I/O.

The grammars (tree-sitter for shells, Starlark for rules) are imported with the first command that
needs one.
"""
