"""What is a command line for, in the words of events: read, list_files, search or unknown?

This describes and decides nothing: what may run is for `verdict.py` to say. A line is described
part by part only when every part of it merely looks and is understood; any other is `unknown`.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from toolrest.policy.commands._merge_purpose_program import HELPS, Purpose, purpose_of
from toolrest.policy.shell.script import ODD, SUBSTITUTION, VARIABLE, Redirect, Script, Simple
from toolrest.policy.shell.nested import SHELLS, unwrap
from toolrest.policy.shell.parse import parse
from toolrest.policy.shell.words import is_calm, split_program

if TYPE_CHECKING:
    from toolrest.items import JSONObject

MAX_LENGTH: Final = 2_000
"""Longer ones are programs rather than looks, and are not read a second time."""

_MAX_NESTING = 3
_UNCLEAR = VARIABLE | SUBSTITUTION | ODD
_ABSOLUTE = ("/", "~")


def parsed_command(command: str | tuple[str, ...]) -> tuple[JSONObject, ...]:
    """One entry for each part of a command line or argument vector. Never raises.

    A `read` has an entry for each file. Paths are as written, after the `cd`s before them.
    """
    line = script_of(command) if isinstance(command, tuple) else command
    try:
        reader = _Reader()
        if line is not None:
            reader.line(line, "", 0)
        else:
            reader.command(Simple(tuple(command)), "", 0)
        found = reader.entries
    except Exception:  # a description is never worth a failed command
        found = []
    if found:
        return tuple(found)
    return ({"type": "unknown", "cmd": shlex.join(command) if line is None else line},)


def script_of(argv: tuple[str, ...]) -> str | None:
    """The script of `bash -lc SCRIPT` and its like, or None."""
    if len(argv) != 3 or argv[1] not in ("-c", "-lc") or split_program(argv[0])[1] not in SHELLS:
        return None
    return argv[2]


class _Unclear(Exception):
    """Some part is no mere look, or is not understood."""


class _Reader:
    """Gathers the entries of one line."""

    def __init__(self) -> None:
        self.entries: list[JSONObject] = []

    def line(self, text: str, folder: str, depth: int) -> None:
        """Every command of a script; raises `_Unclear`."""
        if len(text) > MAX_LENGTH or depth > _MAX_NESTING:
            raise _Unclear
        script = parse(text)
        if script.problems or script.too_big or script.shapes - {"comment"}:
            raise _Unclear
        folders = {0: folder}
        for simple in script.commands:
            self._step(simple, script, folders, depth)

    def _step(self, simple: Simple, script: Script, folders: dict[int, str], depth: int) -> None:
        group = simple.group
        while group not in folders:
            group = script.parents[group]
        folder = folders[group]
        if simple.argv[:1] == ("cd",):
            folders[simple.group] = _moved(simple, folder)
        else:
            self.command(simple, folder, depth)

    def command(self, simple: Simple, folder: str, depth: int) -> None:
        """One command, or what it wraps."""
        if not simple.argv or not _is_clear(simple):
            raise _Unclear
        inner = unwrap(simple)
        piped = simple.upstream >= 0
        argv = simple.argv
        if inner is not None:
            part = inner.inners[0]
            xargs = argv[0] == "xargs" and len(part.argv) > 1
            if len(inner.inners) != 1 or part.opaque or inner.moved:
                raise _Unclear
            if part.script is not None and inner.transparent:
                self.line(part.script, folder, depth + 1)
                return
            if not (inner.transparent or xargs):
                raise _Unclear
            # xargs' own word stands for files that nobody can name yet.
            argv = part.argv[:-1] if xargs else part.argv
        purpose = purpose_of((*argv, *_fed(simple.redirects)), piped)
        if purpose is None:
            raise _Unclear
        if purpose is not HELPS:
            self._add(purpose, _joined(simple), folder)

    def _add(self, purpose: Purpose, cmd: str, folder: str) -> None:
        paths = [_under(folder, path) for path in purpose.paths]
        entries: list[JSONObject]
        if purpose.kind == "read":
            entries = [
                {"type": "read", "cmd": cmd, "name": _name(path), "path": path} for path in paths
            ]
        else:
            entry: JSONObject = {"type": purpose.kind, "cmd": cmd}
            if purpose.kind == "search":
                entry["query"] = purpose.query
            entries = [{**entry, "path": paths[0] if paths else folder or None}]
        self.entries += [entry for entry in entries if entry not in self.entries]


def _is_clear(simple: Simple) -> bool:
    """No value that only the shell knows, no variable that matters, nothing written."""
    if simple.marks and any(mark & _UNCLEAR for mark in simple.marks):
        return False
    if any(each.mark or not is_calm(each.name, each.value) for each in simple.assignments):
        return False
    return all(map(_is_quiet, simple.redirects))


def _is_quiet(redirect: Redirect) -> bool:
    if redirect.mark:
        return False
    return redirect.kind in ("dup", "read") or (
        redirect.kind == "write" and redirect.target == "/dev/null"
    )


def _fed(redirects: tuple[Redirect, ...]) -> tuple[str, ...]:
    """`< FILE` reads as if the file were named."""
    return tuple([redirect.target for redirect in redirects if redirect.kind == "read"])


def _moved(simple: Simple, folder: str) -> str:
    """Where a `cd` leads."""
    words = tuple([word for word in simple.argv[1:] if word != "--"])
    if len(words) != 1 or words[0].startswith("-") or not _is_clear(simple):
        raise _Unclear
    return _under(folder, words[0])


def _under(folder: str, path: str) -> str:
    if not folder or path.startswith(_ABSOLUTE):
        return path
    return folder if path in (".", "./") else f"{folder.rstrip('/')}/{path.removeprefix('./')}"


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _joined(simple: Simple) -> str:
    """The command as one may type it; what the shell would expand is left unquoted."""
    if simple.literal:
        return shlex.join(simple.argv)
    return " ".join(
        text if simple.mark(index) and not text.isspace() else shlex.quote(text)
        for index, text in enumerate(simple.argv)
    )
