"""Policy: effects, risk, paths, rules and the judgement of commands. Reads rules; no other I/O.

The grammars (tree-sitter for shells, Starlark for rules) are imported with the first command that
needs one.
"""
