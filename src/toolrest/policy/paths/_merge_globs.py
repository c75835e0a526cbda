"""What does a glob in `hidden_paths` mean?

`~/x` starts at each home, `/x` at the root, `a/b` at the workspace, and a name without a slash
matches at any depth. `*` and `?` stay within a name, `**` crosses folders, `[ab]` and `[!ab]`
are sets. A match hides everything beneath it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from toolrest.policy.paths.names import fold, unique

_PARTS = re.compile(r"\*\*/|\*+|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)
_MAGIC = re.compile(r"[*?\[]")


def pattern_of(glob: str, workspace: str, homes: Sequence[str]) -> str:
    """A regular expression over folded absolute paths."""
    forms = unique(_real_forms(_absolute(glob, workspace, homes)))
    return "(?:" + "|".join(_translate(fold(form)) for form in forms) + r")(?:/.*)?\Z"


def _absolute(glob: str, workspace: str, homes: Sequence[str]) -> Iterator[str]:
    glob = glob.rstrip("/") or "/"
    if glob == "~" or glob.startswith("~/"):
        for home in homes:
            yield home.rstrip("/") + glob[1:]
    elif glob.startswith("/"):
        yield glob
    elif "/" in glob:
        yield workspace.rstrip("/") + "/" + glob.removeprefix("./")
    else:
        yield "/**/" + glob


def _real_forms(globs: Iterator[str]) -> Iterator[str]:
    """Each glob as written and with the symlinks of its literal beginning followed."""
    for glob in globs:
        yield glob
        magic = _MAGIC.search(glob)
        end = len(glob) if magic is None else glob.rfind("/", 0, magic.start())
        if end > 0:
            yield os.path.realpath(glob[:end]) + glob[end:]


def _translate(glob: str) -> str:
    return "".join(_piece(part) for part in _PARTS.findall(glob))


def _piece(part: str) -> str:
    if part == "**/":
        return "(?:[^/]*/)*"
    if part.startswith("*"):
        return "[^/]*" if part == "*" else ".*"
    if part == "?":
        return "[^/]"
    if len(part) > 1:
        negated = part[1] == "!"
        body = part[2 if negated else 1 : -1]
        members = "".join(c if c == "-" else re.escape(c) for c in body)
        return f"(?!/)[{'^' if negated else ''}{members}]" if body else re.escape(part)
    return re.escape(part)
