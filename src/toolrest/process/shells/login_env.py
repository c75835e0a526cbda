"""The environment of a login shell, found once per session instead of at every command.

A login shell reads its profile files each time, which can take longer than the command. So its
environment is captured, in memory only, and commands run with plain `-c` under it. That is done
only where it makes no difference: after the capture a `-c` shell is started under the captured
environment, and if the two do not agree on everything a command could notice (variables,
functions, aliases, options, umask, limits, traps, folder), commands go on using `-lc`.

The starting shell's environment stays: a profile adds variables and folders of PATH, behind those
that are there, and takes none away. So an activated virtual environment, or what direnv or a
version manager has set, is the same for commands. Where a login shell is needed all the same, the
line begins with an `export` of what its profile has changed.

Functions of bash, which version managers define by the dozen, travel in the environment as bash's
own exported functions do. Left out of the comparison are variables that only an interactive shell
uses, and whether the shell calls itself a login shell.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import run
from toolrest.process.shells.environment import EnvironmentPolicy, build, withhold
from toolrest.process.shells.shells import Shell, ShellKind

CAPTURE_LIMIT = 8.0
"""Seconds that the profile files may take, once a session; slower ones are left to each command,
which then counts as unknown: its PATH is not known before it runs."""

_KEPT = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_SHELLS_OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})

# What else a profile can change. Each prints state, in the same form in both shells.
_STATE: dict[ShellKind, str] = {
    "bash": "umask; pwd; shopt -p; set +o; shopt -q expand_aliases && alias; declare -f; trap; "
    "ulimit -a; compgen -v",
    "zsh": "umask; pwd; setopt; alias; functions; trap; ulimit -a; typeset +",
    "sh": "umask; pwd; set +o; alias; trap; ulimit -a; set",
}
_BEFORE: dict[ShellKind, str] = {
    "bash": "export -f $(compgen -A function) >/dev/null 2>&1; ",
    "zsh": "",
    "sh": "",
}
_FUNCTION = "BASH_FUNC_"
_VOLATILE = re.compile(
    rb"^(?:shopt -[su] login_shell|login"
    rb"|(?:PPID|_|SHLVL|OLDPWD|BASH_REMATCH|PROMPT_COMMAND|PS[0-4]|HIST\w*|COMP\w*)(?:=.*)?)$\n?",
    re.MULTILINE,
)

_FILES: dict[ShellKind, tuple[str, ...]] = {
    "bash": (
        "/etc/profile",
        "/etc/profile.d",
        "/etc/bash.bashrc",
        "/etc/bashrc",
        "~/.bash_profile",
        "~/.bash_login",
        "~/.profile",
        "~/.bashrc",
        "~/.bash_aliases",
    ),
    "zsh": tuple(
        f"{place}{name}"
        for place in ("/etc/", "/etc/zsh/", "~/.")
        for name in ("zshenv", "zprofile", "zshrc", "zlogin")
    ),
    "sh": ("/etc/profile", "/etc/profile.d", "~/.profile"),
}

Stamp = tuple[tuple[str, int, int, int], ...]


class _Look(NamedTuple):
    """Variables and other state of a shell."""

    variables: dict[str, str]
    state: bytes


class _Captured(Struct, frozen=True):
    """A captured environment: `variables` None if commands go on using `-lc`, `path` if unknown.

    `restored` names what those commands set again, because the profile changes it.
    """

    stamp: Stamp
    variables: dict[str, str] | None
    path: str | None
    restored: frozenset[str] = frozenset()


class LoginStart(NamedTuple):
    """Arguments and environment of a login shell's command line, and its PATH, if known."""

    argv: tuple[str, ...]
    env: dict[str, str]
    path: str | None


class LoginShells:
    """Turns a command line into arguments and environment, with a login shell's for `login`.

    `own_files`: programs there are not the host's (a container), and neither is PATH.
    """

    def __init__(
        self,
        owner: Owner,
        confine: Callable[[Command], AbstractAsyncContextManager[Command]],
        policy: EnvironmentPolicy | None = None,
        *,
        never: Iterable[str] = (),
        own_files: bool = False,
        kept: str | None = None,
    ) -> None:
        """`kept` is a folder of PATH that no profile takes away."""
        self._owner = owner
        self._confine = confine
        policy = policy or EnvironmentPolicy()
        self._policy = replace(policy, inherit="all", include_only=(), set={})
        self._never = tuple(never)
        self._own_files = own_files
        self._kept = kept
        self._captured: dict[object, _Captured] = {}
        self._lock = asyncio.Lock()

    async def prepare(
        self,
        shell: Shell,
        line: str,
        env: Mapping[str, str],
        cwd: str,
        *,
        login: bool = True,
        forced: Iterable[str] = (),
    ) -> LoginStart:
        """Arguments and environment of a command line.

        `forced` names variables that no profile may change; they, and the folder, may differ at
        the next command without reading the profile again.
        """
        if not login or not shell.posix:
            return LoginStart(shell.argv(line, login=login), dict(env), env.get("PATH"))
        fixed = {name: env[name] for name in forced if name in env}
        found = await self._captured_for(shell, env, cwd, fixed)
        if found.variables is None:
            return _unread(shell, line, env, found)
        return LoginStart(shell.argv(line, login=False), found.variables | fixed, found.path)

    def unread(self, shell: Shell, line: str, env: Mapping[str, str]) -> LoginStart:
        """The start of a line whose profile only the start itself reads: what it sets is unknown.

        PATH as it was comes first all the same.
        """
        return _unread(shell, line, env, _Captured((), None, None, frozenset({"PATH"})))

    async def _captured_for(
        self, shell: Shell, env: Mapping[str, str], cwd: str, fixed: dict[str, str]
    ) -> _Captured:
        key = (shell, frozenset(item for item in env.items() if item[0] not in fixed))
        stamp = stamp_of(shell.kind, env)
        async with self._lock:
            known = self._captured.get(key)
            if known is None or known.stamp != stamp:
                self._captured.pop(key, None)
                while len(self._captured) >= _KEPT:
                    del self._captured[next(iter(self._captured))]
                known = await self._capture(shell, dict(env), cwd, stamp)
                if known.variables is not None:
                    kept = {n: value for n, value in known.variables.items() if n not in fixed}
                    known = replace(known, variables=kept)
                self._captured[key] = known
        return known

    async def _capture(
        self, shell: Shell, env: dict[str, str], cwd: str, stamp: Stamp
    ) -> _Captured:
        """The variables, if nothing else differs, and in any case the PATH, unless not known."""
        first = await self._look(shell, env, cwd, login=True)
        given = await self._given(env, cwd) if first is not None else None
        if first is None or given is None:
            return _Captured(stamp, None, None, frozenset(() if self._own_files else ["PATH"]))
        found = first.variables
        functions = {name for name in found if name.startswith(_FUNCTION)}
        new = found.keys() - given.keys() - env.keys() - functions
        withheld = withhold(self._policy, {name: found[name] for name in new}, never=self._never)
        lost = {name for name in given.keys() - found.keys() if not _NAME.fullmatch(name)}
        aside = _SHELLS_OWN | withheld | lost  # `sh` hands on proper names only
        taken = found.keys() if self._own_files else new | functions
        added = {name: found[name] for name in taken - aside}
        added |= {name: env[name] for name in _SHELLS_OWN & env.keys()}
        if not self._own_files and "PATH" in env.keys() | found.keys():
            added["PATH"] = _joined(env, found)
        elif self._kept is not None and "PATH" in found:
            added["PATH"] = _joined({"PATH": self._kept}, found)
        kept, expected = ({} if self._own_files else env) | added, given | added
        path = kept.get("PATH", os.defpath)
        names = expected.keys() | found.keys()
        differ = {name for name in names if expected.get(name) != found.get(name)}
        second = await self._look(shell, kept, cwd, login=False)
        if (
            second is not None
            and _without(expected, aside) == _without(second.variables, aside)
            and _left(first.state, aside | differ) == _left(second.state, aside | differ)
        ):
            return _Captured(stamp, kept, path)
        # The sandbox's own variables stay; secrets are not for arguments, which others can read.
        restored = {n: env[n] for n in differ - _SHELLS_OWN if n in env and env[n] == given.get(n)}
        shown = build(EnvironmentPolicy(), restored).variables
        return _Captured(stamp, None, path, frozenset(filter(_NAME.fullmatch, shown)))

    async def _given(self, env: dict[str, str], cwd: str) -> dict[str, str] | None:
        """The variables of any command with this environment: the sandbox adds to it."""
        if self._own_files:
            return {}
        async with self._confine(Command((_env_program(), "-0"), cwd, env)) as confined:
            result = await run(self._owner, confined, time_limit=CAPTURE_LIMIT)
        piece = result.stdout_piece
        whole = result.state == "exited" and result.exit_code == 0 and not piece.omitted
        return _variables(piece.head + piece.tail) if whole else None

    async def _look(
        self, shell: Shell, env: dict[str, str], cwd: str, *, login: bool
    ) -> _Look | None:
        """Variables and other state of a shell; None when it does not print them in time."""
        mark = secrets.token_hex(16)
        script = (
            f"{_BEFORE[shell.kind]}printf %s {mark}; {_env_program()} -0; printf %s {mark}; "
            f"{{ {_STATE[shell.kind]}; }} 2>&1; printf %s {mark}"
        )
        command = Command(shell.argv(script, login=login), cwd, env)
        async with self._confine(command) as confined:
            result = await run(self._owner, confined, time_limit=CAPTURE_LIMIT)
        parts = (result.stdout_piece.head + result.stdout_piece.tail).split(mark.encode())
        if result.state != "exited" or result.stdout_piece.omitted or len(parts) != 4:
            return None
        # The script itself is a variable in some shells, and differs by its mark.
        state = _VOLATILE.sub(b"", parts[2].replace(mark.encode(), b""))
        return _Look(_variables(parts[1]), state)


def stamp_of(kind: ShellKind, env: Mapping[str, str]) -> Stamp:
    """Identity of the profile files; when it changes, they must be read again.

    Files that a profile reads in turn are not known and not watched.
    """
    home = env.get("ZDOTDIR", env.get("HOME", "")) if kind == "zsh" else env.get("HOME", "")
    paths = [path.replace("~", home, 1) for path in _FILES[kind]]
    paths += [env[name] for name in ("ENV", "BASH_ENV") if env.get(name)]
    stamp = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        stamp.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
        if path.endswith(".d"):
            stamp.extend(_inside(path))
    return tuple(stamp)


def _inside(folder: str) -> list[tuple[str, int, int, int]]:
    try:
        with os.scandir(folder) as entries:
            found = [(entry.path, entry.stat()) for entry in entries]
    except OSError:
        return []
    return sorted((path, s.st_mtime_ns, s.st_size, s.st_ino) for path, s in found)


def _variables(printed: bytes) -> dict[str, str]:
    pairs = (entry.partition(b"=") for entry in printed.split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _joined(env: Mapping[str, str], found: Mapping[str, str]) -> str:
    """PATH as the starting shell has it, and behind that what the profile adds."""
    first, then = (one["PATH"].split(os.pathsep) if "PATH" in one else [] for one in (env, found))
    return os.pathsep.join([*first, *(n for n in dict.fromkeys(then) if n not in first)])


def _unread(shell: Shell, line: str, env: Mapping[str, str], found: _Captured) -> LoginStart:
    """A login shell whose line begins by setting what its profile has changed."""
    values = {name: shlex.quote(env[name]) for name in sorted(found.restored) if name in env}
    if "PATH" in values and found.path is not None:
        values["PATH"] = shlex.quote(found.path)
    elif "PATH" in values:
        values["PATH"] += "${PATH:+:$PATH}"
    words = " ".join(f"{name}={value}" for name, value in values.items())
    line = f"export {words}; {line}" if words else line
    return LoginStart(shell.argv(line, login=True), dict(env), found.path)


def _without(variables: dict[str, str], aside: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in aside}


def _left(state: bytes, aside: Collection[str]) -> bytes:
    """The state without the lines of these variables, which may differ."""
    for name in aside:
        # A variable with line breaks in it fails the comparison, which is safe.
        line = rb"^(?:[a-z]+ )*%s(?:=.*)?$\n?" % re.escape(os.fsencode(name))
        state = re.sub(line, b"", state, flags=re.MULTILINE)
    return state


def _env_program() -> str:
    return "/usr/bin/env" if os.path.exists("/usr/bin/env") else "/bin/env"
