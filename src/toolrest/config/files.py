"""Where Toolrest keeps its own files."""

from __future__ import annotations

import os
from collections.abc import Mapping

from toolrest.errors import ConfigError


def user_home(env: Mapping[str, str]) -> str:
    """What `~` stands for: `$HOME`, else the password database's entry."""
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
        # A relative home would let whatever folder we stand in be the user's settings.
        raise ConfigError(f"environment variable TOOLREST_HOME: {path!r} is not an absolute path")
    return os.path.normpath(path)


def config_file(home: str) -> str:
    """The user's settings file."""
    return os.path.join(home, "config.toml")


def real_path(path: str | os.PathLike[str]) -> str:
    """The canonical path; what can be no path at all is a ConfigError."""
    try:
        return os.path.realpath(path)
    except ValueError as error:
        raise ConfigError(f"{os.fspath(path)!r} is not a path: {error}") from None
