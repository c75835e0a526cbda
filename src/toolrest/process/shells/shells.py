"""Shells: find the one that runs a command line, and its arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal, TypeAlias

from msgspec import Struct, field

from toolrest.own_code import lies_in

ShellKind: TypeAlias = Literal["bash", "zsh", "sh", "powershell", "cmd"]

_KINDS: dict[str, ShellKind] = {
    "bash": "bash",
    "zsh": "zsh",
    "sh": "sh",
    "pwsh": "powershell",
    "powershell": "powershell",
    "cmd": "cmd",
}
_FALLBACK: dict[ShellKind, str] = {
    "bash": "/bin/bash",
    "zsh": "/bin/zsh",
    "sh": "/bin/sh",
    "powershell": "/usr/local/bin/pwsh",
    "cmd": "cmd.exe",
}
_PROGRAMS: dict[ShellKind, tuple[str, ...]] = {
    "bash": ("bash",),
    "zsh": ("zsh",),
    "sh": ("sh",),
    "powershell": ("pwsh", "powershell"),
    "cmd": ("cmd",),
}


_POSIX: tuple[ShellKind, ...] = ("bash", "zsh", "sh")


class Shell(Struct, frozen=True):
    """A shell of a known kind at a path; `known` when the system itself names it as one."""

    kind: ShellKind
    path: str
    known: bool = True
    instead_of: str = ""
    """The shell that was asked for, where it is not there or not known."""

    @property
    def missing(self) -> bool:
        """Whether it is a shell that is not there, and whose lines no other can read."""
        return not self.posix and bool(self.instead_of)

    @property
    def posix(self) -> bool:
        """True for shells that know `-c` and login profiles."""
        return self.kind in _POSIX

    def argv(self, command: str, *, login: bool = True) -> tuple[str, ...]:
        """The argument vector that runs a command line."""
        if self.kind == "powershell":
            profile = () if login else ("-NoProfile",)
            return (self.path, *profile, "-Command", command)
        if self.kind == "cmd":
            return (self.path, "/c", command)
        return (self.path, "-lc" if login else "-c", command)


def kind_of(name: str) -> ShellKind | None:
    """The kind of a shell by its name or path, file endings aside; None for any other program."""
    stem = name.replace("\\", "/").rpartition("/")[2]
    while stem not in _KINDS and "." in stem:
        stem = stem.rpartition(".")[0]
    return _KINDS.get(stem)


class Shells(Struct, frozen=True, eq=False):
    """Finds shells: the user's own, or one by name.

    `avoid` are folders that a model can write to: no shell is ever taken from there.
    """

    path: str = os.defpath
    passwd: str | None = None
    platform: str = sys.platform
    avoid: tuple[str, ...] = ()
    _found: dict[tuple[ShellKind, str | None], str] = field(default_factory=dict)

    @classmethod
    def of_this_user(cls, env: Mapping[str, str], avoid: Iterable[str] = ()) -> Shells:
        """Shells with the login shell of the user database and the PATH of an environment."""
        return cls(env.get("PATH", os.defpath), _passwd_shell(), sys.platform, tuple(avoid))

    def default(self) -> Shell:
        """The user's login shell when it is of a known kind, else the platform's usual one."""
        own = kind_of(self.passwd) if self.passwd else None
        for kind in (*((own,) if own else ()), *self._usual()):
            found = self.locate(kind)
            if os.path.isfile(found):
                return Shell(kind, found)
        if self.platform == "win32":
            return Shell("cmd", _FALLBACK["cmd"])
        return Shell("sh", _FALLBACK["sh"])

    def named(self, name: str) -> Shell:
        """The shell that a model asked for; `/bin/sh` for one that is not there or not known.

        Another kind's line means nothing to that, so PowerShell and cmd are left to be missing.
        """
        kind = kind_of(name)
        if kind is None:
            return Shell("sh", _FALLBACK["sh"], instead_of=name)
        path = self.locate(kind, name)
        if not os.path.isfile(path):
            if kind in _POSIX:
                return Shell("sh", _FALLBACK["sh"], instead_of=name)
            return Shell(kind, name, known=False, instead_of=name)
        return Shell(kind, path, path != name or self._is_known(kind, path))

    def _is_known(self, kind: ShellKind, path: str) -> bool:
        """Whether a path that a model gave is a shell of the system, not just named like one."""
        return path in (self.locate(kind), _FALLBACK[kind]) or path in _listed_shells()

    def locate(self, kind: ShellKind, given: str | None = None) -> str:
        """Path of a shell: as given, the user's own of that kind, on PATH, or the usual place."""
        known = self._found.get((kind, given))
        if known is None or not os.path.isfile(known):
            known = self._found[kind, given] = self._locate(kind, given)
        return known

    def _locate(self, kind: ShellKind, given: str | None) -> str:
        if given and os.path.isabs(given) and self._usable(given):
            return given
        if self.passwd and kind_of(self.passwd) == kind and self._usable(self.passwd):
            return self.passwd
        return self._search(kind) or _FALLBACK[kind]

    def _usual(self) -> tuple[ShellKind, ...]:
        if self.platform == "win32":
            return ("powershell",)
        return ("zsh", "bash") if self.platform == "darwin" else ("bash", "zsh")

    def _search(self, kind: ShellKind) -> str | None:
        for folder in self.path.split(os.pathsep):
            for program in _PROGRAMS[kind]:
                candidate = os.path.join(folder, program)
                if os.path.isabs(folder) and self._usable(candidate):
                    return candidate
        return None

    def _usable(self, path: str) -> bool:
        executable = os.path.isfile(path) and os.access(path, os.X_OK)
        return executable and not lies_in(path, map(os.path.realpath, self.avoid))


@cache
def _listed_shells() -> frozenset[str]:
    """The shells that /etc/shells allows users to have."""
    try:
        with open("/etc/shells", encoding="utf-8", errors="replace") as lines:
            return frozenset(line.strip() for line in lines if line.startswith("/"))
    except OSError:
        return frozenset()


def _passwd_shell() -> str | None:
    try:
        # There is none on Windows.
        import pwd
    except ImportError:
        return None
    try:
        return pwd.getpwuid(os.getuid()).pw_shell or None
    except KeyError:
        return None
