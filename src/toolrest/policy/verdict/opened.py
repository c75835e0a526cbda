"""The files that a redirection opens, and how strict that makes its command."""

from __future__ import annotations

import re

from toolrest.policy.dangerous.targets import dangerous_write
from toolrest.policy.shell.place import WorkingDirs
from toolrest.policy.shell.script import SUBSTITUTION, Redirect
from toolrest.policy.verdict.verdict import CommandClass, Segment

_QUIET_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))
_SOCKET = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/.*")


def opened(redirect: Redirect, segment: Segment, place: WorkingDirs) -> tuple[str, ...]:
    """The files that a redirection opens; the segment becomes at least as strict as that."""
    kind, _, target, mark = redirect
    if kind == "dup":
        if target not in ("0", "1", "2", "-"):
            segment.raise_to(
                CommandClass.RUNS, "redirect.descriptor", f"it uses descriptor {target}"
            )
        return ()
    if target in _QUIET_TARGETS and not mark:
        return ()
    if kind in ("document", "string"):
        level = CommandClass.RUNS if mark else CommandClass.TOUCHES
        segment.raise_to(level, "redirect.document", "it is given text as input")
        return ()
    socket = _SOCKET.fullmatch(target)
    if socket is not None:
        segment.connects += (socket[1],)
        segment.raise_to(CommandClass.RUNS, "redirect.socket", f"it connects to {socket[1]}")
        return ()
    if mark & SUBSTITUTION and target.startswith(("<(", ">(")):
        segment.raise_to(CommandClass.RUNS, "redirect.process", "it is joined to another command")
        return ()
    if kind == "read":
        if mark:
            segment.raise_to(CommandClass.RUNS, "redirect.read", f"it reads {target!r}")
        return place.paths(target, mark)
    return _written(target, mark, segment, place)


def _written(target: str, mark: int, segment: Segment, place: WorkingDirs) -> tuple[str, ...]:
    """The files that a redirection writes to; the segment becomes at least as strict."""
    paths = place.paths(target, mark)
    if not paths:
        why = f"where {target!r} is, only the shell can tell"
        segment.raise_to(CommandClass.UNKNOWN, "unknown.redirect", why)
    for path in paths:
        segment.raise_to(CommandClass.TOUCHES, "redirect.write", f"it writes {path}")
        danger = dangerous_write(path, place)
        if danger is not None:
            segment.raise_to(CommandClass.DANGEROUS, danger.rule, danger.why)
    return paths
