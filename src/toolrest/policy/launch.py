"""The launch record: what a call will start, fixed before it is judged.

Verdict, rules, grants, question, events and the start itself read this one record, so what is
approved is what runs. What runs is compared with it at the last moment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from toolrest.policy.paths.names import inside
from toolrest.private_files import hash_file

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


class Launch(Struct, frozen=True):
    """One program start, complete: what is judged is what is executed.

    `argv` is the argument vector as people are shown it. `judged` is what the policy reads: the
    command line where `argv[0]` is a shell that the system knows, else `argv`. `escalated` says
    that the call asks to leave the sandbox. `start` is the
    vector that is executed: `argv`, but without the option for a login profile where `env`
    already is what that profile makes of it. `withheld` are names of variables that it does not
    get, `forced` those that no profile changes.
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
    sandbox: str = ""
    network: str = ""

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


def _program(file: str, roots: Sequence[str]) -> Program | None:
    try:
        info = os.stat(file)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(info.st_mode) or not os.access(file, os.X_OK):
        return None
    places = (os.path.realpath(os.path.dirname(file)), os.path.realpath(file))
    if not any(inside(place, root) for place in places for root in roots):
        return Program(file, info.st_dev, info.st_ino)
    digest = hash_file(file, _LARGEST_HASHED)
    return Program(file, info.st_dev, info.st_ino, True, digest)
