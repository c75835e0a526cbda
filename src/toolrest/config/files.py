"""Toolrest's home folder, and safe reading of TOML files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Any

from toolrest.errors import ConfigError


def user_home(env: Mapping[str, str]) -> str:
    """The user's home folder: `$HOME`, else the password database's entry."""
    home = env.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise ConfigError("there is no home folder (HOME is unset): set TOOLREST_HOME")
    return home


def toolrest_home(given: str | os.PathLike[str] | None, env: Mapping[str, str]) -> str:
    """The folder given, else `$TOOLREST_HOME`, else `~/.toolrest`; always absolute."""
    if given is not None:
        return os.path.abspath(os.path.expanduser(os.fspath(given)))
    path = env.get("TOOLREST_HOME", "").strip()
    if not path:
        return os.path.join(user_home(env), ".toolrest")
    if path == "~" or path.startswith("~/"):
        path = user_home(env) + path[1:]
    if not os.path.isabs(path) or "\0" in path:
        # A relative home would take the user's settings from the current folder.
        raise ConfigError(f"environment variable TOOLREST_HOME: {path!r} is not an absolute path")
    return os.path.normpath(path)


USERS_HOME = "TOOLREST_USERS_HOME"
"""The variable with the user's own home, for a task of a batch, which has another."""
BATCH_TASKS = "TOOLREST_BATCH_TASKS"
"""The variable with the folder of what all tasks of a batch have stored, sessions among it."""


def config_file(home: str) -> str:
    """The user's settings file."""
    return os.path.join(home, "config.toml")


def vm_folder(home: str) -> str:
    """Where `toolrest vm prepare` puts what a virtual machine is made of."""
    return os.path.join(home, "vm")


def placeholder_records(home: str) -> str:
    """The folder in which sandboxes record the placeholders that they make in other folders.

    One for all homes of a user: sessions with different ones (the library's are temporary) may
    share a workspace, and none may take away what another's command still relies on. Where the
    user's own home cannot be written, the session's.
    """
    return os.path.join(_own_home() or home, "run", "mountpoints")


def patch_records(home: str) -> str:
    """The folder with the records of patches under way: one for all homes, for the same reason."""
    return os.path.join(_own_home() or home, "run", "patches")


def _own_home() -> str | None:
    try:
        own = os.environ.get(USERS_HOME) or toolrest_home(None, os.environ)
        there = own if os.path.lexists(own) else os.path.dirname(own)
        is_ours = os.stat(there).st_uid == os.geteuid()
    except (ConfigError, OSError):
        return None
    return own if is_ours and os.access(there, os.W_OK | os.X_OK) else None


def real_path(path: str | os.PathLike[str]) -> str:
    """The canonical path; ConfigError for a text that cannot be a path."""
    try:
        return os.path.realpath(path)
    except ValueError as error:
        raise ConfigError(f"{os.fspath(path)!r} is not a path: {error}") from None


MAX_FILE = 1 << 20
"""Largest settings file in bytes; a larger one is a mistake or an attack."""


def read_toml(path: str) -> dict[str, Any] | None:
    """The tables of a file, None when there is none; anything else is a ConfigError."""
    text = read_text(path)
    return None if text is None else parse_toml(text, path)


def read_text(path: str) -> str | None:
    """The text of a regular file of reasonable size, None when there is none."""
    try:
        # Not blocking, or a FIFO in the place of the file would hang us.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot read {path}: {reason}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConfigError(f"{path}: not a regular file")
        data = _read_all(fd)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    finally:
        os.close(fd)
    if len(data) > MAX_FILE:
        raise ConfigError(f"{path}: larger than {MAX_FILE} bytes, which no settings file is")
    try:
        return data.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line}: not UTF-8") from None


def _read_all(fd: int) -> bytes:
    parts: list[bytes] = []
    while sum(map(len, parts)) <= MAX_FILE and (part := os.read(fd, MAX_FILE + 1)):
        parts.append(part)
    return b"".join(parts)


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The tables of a TOML text; an error names the file, the line and the column."""
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: {_located(str(error), text)}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested deeper than any setting is") from None
    except ValueError:
        raise ConfigError(f"{name}: not valid TOML: a number or date out of range") from None


def _located(message: str, text: str) -> str:
    match = re.fullmatch(r"(.*) \(at (line \d+, column \d+|end of document)\)", message, re.DOTALL)
    if match is None:
        return f"not valid TOML: {message}"
    place = match[2] if match[2].startswith("line") else f"line {text.count(chr(10)) + 1} (the end)"
    return f"{place}: not valid TOML: {match[1]}"


def unsafe_owner(path: str) -> str | None:
    """A warning when other users could change this file, else None."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    if info.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user (uid {info.st_uid}), who can change your settings"
    # A group of one's own is usual where umask is 002, and harmless.
    others = stat.S_IWOTH | (stat.S_IWGRP if info.st_gid != os.getegid() else 0)
    if info.st_mode & others:
        return f"{path} can be written by other users: run `chmod 600 {path}`"
    return None
