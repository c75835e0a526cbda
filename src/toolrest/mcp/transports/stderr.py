"""The reason of a crash, out of what a program wrote to its standard error."""

from __future__ import annotations

import re

_FRAMES = re.compile(
    r"""\s*(?:
        at\s .*                          # a frame of Node, Deno, Java
      | File\s ".*",\s line\s \d+.*      # a frame of Python
      | Traceback\s \(most\s recent .*
      | Node\.js\s v[\d.]+
      | [~^]+ | [{}\])];?
      | Use\s `node\s --trace-.*
    )\s*""",
    re.VERBOSE,
)
_ERROR = re.compile(r"\s*(?:Uncaught\s+)?[\w.]*(?:Error|Exception)(?: \[\w+\])?: .+")
_INDENTED = re.compile(r"\s+\S")
_MOST_LINES = 3
_LONGEST = 400


def crash_reason(text: str) -> str:
    """The lines that say why a program ended: its error, without frames and the program's code.

    Node writes the error first and its version last, Python the error last; where several errors
    follow each other, the last one is the one that ended it.
    """
    lines = [line for line in text.splitlines() if line.strip() and not _FRAMES.fullmatch(line)]
    errors = [number for number, line in enumerate(lines) if _ERROR.match(line)]
    if errors:
        # A message may go on in the next lines; fields of the error are indented.
        rest = [line for line in lines[errors[-1] + 1 :] if not _INDENTED.match(line)]
        lines = [lines[errors[-1]], *rest[1 - _MOST_LINES :]]
    return " | ".join(line.strip() for line in lines[-_MOST_LINES:])[-_LONGEST:]
