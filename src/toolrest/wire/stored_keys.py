"""Keys of model providers that the user typed into `toolrest setup`.

They are in a private file in the home, or in the keyring of the system, where the package
`keyring` is installed and has one; the file then only names them.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from functools import cache
from importlib import import_module
from typing import Any

from toolrest.errors import ConfigError
from toolrest.private_files import make_private
from toolrest.secret import Secret

_VERSION = 1
_SERVICE = "toolrest"
_MOST = 1 << 20


def _path(home: str) -> str:
    return os.path.join(home, "keys.json")


def stored_keys(home: str) -> dict[str, Secret]:
    """The stored keys by provider; a file that another user could have written is refused.

    One in a keyring that cannot be read now is left out.
    """
    keys, names = _stored(home)
    found = {name: _from_keyring(home, name) for name in names}
    return {name: Secret(key) for name, key in {**keys, **found}.items() if key}


def _stored(home: str) -> tuple[dict[str, str], list[str]]:
    """The keys in the file, and the providers whose keys are in the keyring."""
    path = _path(home)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise ConfigError(
                f"other users can read {path}", hints=(f"Run `chmod 600 {shlex.quote(path)}`.",)
            )
        return _keys(file.read(_MOST), path)


def _keys(data: bytes, path: str) -> tuple[dict[str, str], list[str]]:
    try:
        found = json.loads(data)
        keys = found["keys"] if found["version"] == _VERSION else None
        names = found.get("keyring", [])
    except (ValueError, KeyError, TypeError):
        keys = names = None
    if not isinstance(keys, dict) or not isinstance(names, list):
        raise ConfigError(f"{path} is damaged", hints=("Run `toolrest setup` to make it again.",))
    written = {name: key for name, key in keys.items() if isinstance(key, str) and key}
    return written, [name for name in names if isinstance(name, str)]


def store_key(home: str, provider: str, key: str) -> str:
    """Store a key, in the keyring where there is one, else in the file; returns the place."""
    # Only `toolrest setup` writes, and every session reads.
    from toolrest.config.write import replace_file

    keys, names = _stored(home)
    in_keyring = _to_keyring(home, provider, key)
    keys.pop(provider, None)
    names = [name for name in names if name != provider]
    if in_keyring:
        names.append(provider)
    else:
        keys[provider] = key
    make_private(home)
    stored = {"version": _VERSION, "keys": keys} | ({"keyring": names} if names else {})
    replace_file(_path(home), json.dumps(stored, indent=2) + "\n")
    return "the system's keyring" if in_keyring else _path(home)


def _keyring() -> Any:
    """The package `keyring`; None without it, or where it has no keyring to be trusted."""
    try:
        found = import_module("keyring")  # an extra, and slow: only with a key to look for
        # Its own measure: below 1 are those that store nothing, or store it in plain text.
        return found if found.get_keyring().priority >= 1 else None
    except Exception:  # whatever a backend does wrong is no reason not to start
        return None


def _user(home: str, provider: str) -> str:
    return f"{provider} of {os.path.realpath(home)}"


@cache
def _from_keyring(home: str, provider: str) -> str | None:
    try:
        keyring = _keyring()
        found = keyring.get_password(_SERVICE, _user(home, provider)) if keyring else None
    except Exception:  # locked, or gone
        return None
    return found if isinstance(found, str) else None


def _to_keyring(home: str, provider: str, key: str) -> bool:
    """Store a key in the keyring; whether it can be read there again."""
    _from_keyring.cache_clear()
    try:
        keyring = _keyring()
        if keyring is None:
            return False
        keyring.set_password(_SERVICE, _user(home, provider), key)
    except Exception:  # locked, or read-only
        return False
    return _from_keyring(home, provider) == key
