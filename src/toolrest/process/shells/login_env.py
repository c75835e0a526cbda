"""The environment of a login shell, found once per session instead of at every command.

A login shell reads its profile files each time, which can take longer than the command. So its
environment is captured, in memory only, and commands run with plain `-c` under it. That is done
only where it makes no difference: after the capture a `-c` shell is started under the captured
environment, and if the two do not agree on everything a command could notice (variables,
functions, aliases, options, umask, limits, traps, folder), commands go on using `-lc`.

Functions of bash, which version managers define by the dozen, travel in the environment as bash's
own exported functions do. Left out of the comparison are variables that only an interactive shell
uses, and whether the shell calls itself a login shell.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import run
from toolrest.process.shells.environment import EnvironmentPolicy, withhold
from toolrest.process.shells.shells import Shell, ShellKind

CAPTURE_LIMIT = 8.0
"""Seconds that the profile files may take, once a session; slower ones are left to each command,
which then counts as unknown: its PATH is not known before it runs."""

_KEPT = 8
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


class _Captured(Struct, frozen=True):
    """A captured environment: `variables` None if commands go on using `-lc`, `path` if unknown."""

    stamp: Stamp
    variables: dict[str, str] | None
    path: str | None


class LoginStart(NamedTuple):
    """Arguments and environment of a login shell's command line, and its PATH, if known."""

    argv: tuple[str, ...]
    env: dict[str, str]
    path: str | None


class LoginShells:
    """Turns a command line into arguments and environment, with a login shell's for `login`."""

    def __init__(
        self,
        owner: Owner,
        confine: Callable[[Command], AbstractAsyncContextManager[Command]],
        policy: EnvironmentPolicy | None = None,
        *,
        never: Iterable[str] = (),
    ) -> None:
        self._owner = owner
        self._confine = confine
        policy = policy or EnvironmentPolicy()
        self._policy = replace(policy, inherit="all", include_only=(), set={})
        self._never = tuple(never)
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
            return LoginStart(shell.argv(line, login=True), dict(env), found.path)
        return LoginStart(shell.argv(line, login=False), found.variables | fixed, found.path)

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
                found, path = await self._capture(shell, dict(env), cwd)
                if found is not None:
                    found = {name: found[name] for name in found if name not in fixed}
                known = self._captured[key] = _Captured(stamp, found, path)
        return known

    async def _capture(
        self, shell: Shell, env: dict[str, str], cwd: str
    ) -> tuple[dict[str, str] | None, str | None]:
        """The variables, if nothing else differs, and in any case the PATH; None: not known."""
        first = await self._look(shell, env, cwd, login=True)
        if first is None:
            return None, None
        variables, state = first
        path = variables.get("PATH", os.defpath)
        for name in _SHELLS_OWN:
            variables.pop(name, None)
            if name in env:
                variables[name] = env[name]
        new = {name for name in variables.keys() - env.keys() if not name.startswith(_FUNCTION)}
        dropped = withhold(self._policy, {name: variables[name] for name in new}, never=self._never)
        kept = {name: value for name, value in variables.items() if name not in dropped}
        second = await self._look(shell, kept, cwd, login=False)
        if second is None or not _same((kept, state), second, dropped | _SHELLS_OWN):
            return None, path
        return kept, path

    async def _look(
        self, shell: Shell, env: dict[str, str], cwd: str, *, login: bool
    ) -> tuple[dict[str, str], bytes] | None:
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
        pairs = (entry.partition(b"=") for entry in parts[1].split(b"\0") if entry)
        variables = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
        # The script itself is a variable in some shells, and differs by its mark.
        return variables, _VOLATILE.sub(b"", parts[2].replace(mark.encode(), b""))


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


def _same(
    one: tuple[dict[str, str], bytes], other: tuple[dict[str, str], bytes], aside: set[str]
) -> bool:
    """Whether two shells agree, but for the variables `aside`, which the sandbox may set again."""

    def rest(variables: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name not in aside}

    def without(state: bytes) -> bytes:
        for name in aside:
            # A variable with line breaks in it fails the comparison, which is safe.
            line = rb"^%s(?:=.*)?$\n?" % re.escape(os.fsencode(name))
            state = re.sub(line, b"", state, flags=re.MULTILINE)
        return state

    return rest(one[0]) == rest(other[0]) and without(one[1]) == without(other[1])


def _env_program() -> str:
    return "/usr/bin/env" if os.path.exists("/usr/bin/env") else "/bin/env"
