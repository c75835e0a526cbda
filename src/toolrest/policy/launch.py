"""The launch record: what a call will start, fixed before it is judged.

Verdict, rules, grants, question, events and the start itself read this one record, so what is
approved is what runs. What runs is compared with it at the last moment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec import Struct

from toolrest.own_code import lies_in
from toolrest.private_files import NOT_HASHED, hash_file

if TYPE_CHECKING:
    from toolrest.policy.verdict.verdict import Segment

RunFiles: TypeAlias = tuple[tuple[str, str], ...]
"""Paths, each with the stamp of its content; an empty one where there is no such file."""
_LARGEST_HASHED = 256 << 20


class Changed(Exception):
    """Something differs from what was judged: the call is judged, and asked about, once more."""


class GitArmed(Changed):
    """Git may run what a repository's configuration names: it does more than look."""


class Program(NamedTuple):
    """An executable file, and how to recognise it.

    `writable` means that a tool could have written it; then `digest` is its content's hash.
    """

    path: str
    device: int
    inode: int
    writable: bool = False
    digest: str | None = None

    @property
    def stamp(self) -> str:
        """What changes when another file, or another content, would be executed."""
        return self.digest or f"{self.device}:{self.inode}"


class Launch(Struct, frozen=True):
    """One program start, complete: what is judged is what is executed.

    `argv` is the argument vector as people are shown it. `judged` is what the policy reads: the
    command line where `argv[0]` is a shell that the system knows, else `argv`. `escalated` says
    that the call asks to leave the sandbox. `start` is the vector that is executed: `argv`, but
    without the option for a login profile where `env` already is what that profile makes of it;
    `login` says that the start reads one. Before a line with a `pipeline` it has a trap.
    `withheld` are names of variables that it does not get, `forced` those that no profile changes.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    program: Program | None = None
    judged: str | tuple[str, ...] = ()
    shell: str | None = None
    escalated: bool = False
    login: bool = False
    tty: bool = False
    withheld: tuple[str, ...] = ()
    forced: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    path: str | None = None
    """Where programs are looked for; None where a login profile sets it, too late to know."""
    confined: bool = False
    """Whether it runs in the sandbox unless it is approved to run outside."""
    network: str = "off"
    """What the sandbox lets it reach."""
    suspects: tuple[str, ...] = ()
    """Folders whose programs come with a project or may have been written by a tool."""
    asked_shell: str = ""
    """The shell that was asked for, where another one runs the line."""
    approved: tuple[str, ...] = ()
    """Protected names that an approved question named: what is written there stays."""
    no_proof: range = range(0)
    """Exit codes that do not say that a program of the line failed."""
    pipeline: tuple[str, ...] = ()
    """The programs of the pipeline that ends the line, whose shell reports the codes of all."""

    def __repr__(self) -> str:
        return f"Launch(argv={self.argv!r}, cwd={self.cwd!r})"  # without `env`: it has secrets


def find_executable(name: str, path: str, cwd: str, roots: Sequence[str]) -> Program | None:
    """The file that starting `name` executes: by its path, or in PATH's absolute folders."""
    if "/" in name:
        return _program(os.path.join(cwd, name), roots)
    for folder in path.split(os.pathsep):
        found = _program(os.path.join(folder, name), roots) if folder.startswith("/") else None
        if found is not None:
            return found
    return None


class Executables:
    """Finds the files that the commands of one launch execute, each only once."""

    def __init__(self, path: str, cwd: str, roots: Sequence[str]) -> None:
        self._path = path
        self._cwd = cwd
        self._roots = roots
        self._found: dict[tuple[str, tuple[str, ...]], Program | None] = {}

    def program(self, segment: Segment) -> Program | None:
        """The file; where it depends on the folder, one that a tool may write if there is one."""
        name = segment.argv[0] if segment.argv and not segment.mark(0) else ""
        if not name:
            return None
        key = (name, segment.cwds)
        if key not in self._found:
            cwds = segment.cwds or (self._cwd,)
            files = [find_executable(name, self._seen(cwd), cwd, self._roots) for cwd in cwds]
            suspect = next((file for file in files if file is not None and file.writable), None)
            self._found[key] = suspect or files[0]
        return self._found[key]

    def _seen(self, cwd: str) -> str:
        """PATH as a shell in that folder looks through it: a relative entry is one of its own."""
        if not self._path:
            return ""
        return os.pathsep.join(os.path.join(cwd, entry) for entry in self._path.split(os.pathsep))

    def path(self, segment: Segment) -> str:
        """The file's path, or nothing."""
        program = self.program(segment)
        return "" if program is None else program.path

    def mark_planted(self, segments: Iterable[Segment]) -> None:
        """Mark the commands whose name means a file that a tool can have written."""
        for segment in segments:
            program = self.program(segment)
            segment.planted = (
                program is not None and program.writable and "/" not in segment.argv[0]
            )

    def is_writable(self, segments: Iterable[Segment]) -> bool:
        """Whether a tool may write the file of one of them."""
        return any(p.writable for segment in segments if (p := self.program(segment)) is not None)


def _program(file: str, roots: Sequence[str]) -> Program | None:
    try:
        info = os.stat(file)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(info.st_mode) or not os.access(file, os.X_OK):
        return None
    if not lies_in(file, roots):
        return Program(file, info.st_dev, info.st_ino)
    return Program(file, info.st_dev, info.st_ino, True, content_stamp(file))


def content_stamp(file: str) -> str:
    """What changes with a file's content: its hash; nothing where there is no regular file.

    Of a file that is too large or cannot be read: which file it is, and when it last changed.
    """
    try:
        info = os.stat(file)
    except (OSError, ValueError):
        return ""
    if not stat.S_ISREG(info.st_mode):
        return ""
    digest = hash_file(file, _LARGEST_HASHED)
    if digest is not None and digest != NOT_HASHED:
        return digest
    return f"{info.st_dev}:{info.st_ino}:{info.st_size}:{info.st_ctime_ns}"


def refuse_changed(files: RunFiles) -> None:
    """Raise Changed if one of them is another one by now."""
    for path, stamp in files:
        now = content_stamp(path)
        if now != stamp:
            raise Changed(f"{path} {'has another content' if now else 'is gone'}")
