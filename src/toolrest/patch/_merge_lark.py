"""The patch language as a grammar that a model's server can enforce while the model writes.

It is stricter than the parser: at least one operation, and at least one line in an added file.
"""

from __future__ import annotations

GRAMMAR = r"""
start: begin operation+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

operation: add | delete | update
add: "*** Add File: " path LF added+
delete: "*** Delete File: " path LF
update: "*** Update File: " path LF move? changes?

move: "*** Move to: " path LF
changes: (context | changed)+ eof?
context: ("@@" | "@@ " text) LF
changed: ("+" | "-" | " ") text? LF
added: "+" text? LF
eof: "*** End of File" LF

path: text
text: /[^\n]+/
LF: "\n"
"""
"""Lark's own notation; only LF ends a line."""
