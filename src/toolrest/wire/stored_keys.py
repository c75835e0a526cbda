"""Keys of model providers that the user typed into `toolrest setup`: a private file in the home."""

from __future__ import annotations

import json
import os
import stat

from toolrest.errors import ConfigError
from toolrest.private_files import make_private

_VERSION = 1
_MOST = 1 << 20


def _path(home: str) -> str:
    return os.path.join(home, "keys.json")


def stored_keys(home: str) -> dict[str, str]:
    """The stored keys by provider; a file that another user could have written is refused."""
    path = _path(home)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise ConfigError(f"{path}: other users can reach it; run: chmod 600 {path}")
        return _keys(file.read(_MOST), path)


def _keys(data: bytes, path: str) -> dict[str, str]:
    try:
        found = json.loads(data)
        keys = found["keys"] if found["version"] == _VERSION else None
    except (ValueError, KeyError, TypeError):
        keys = None
    if not isinstance(keys, dict):
        raise ConfigError(f"{path}: it cannot be read; make it again with: toolrest setup")
    return {name: key for name, key in keys.items() if isinstance(key, str) and key}


def store_key(home: str, provider: str, key: str) -> str:
    """Store a key; returns the file's path."""
    # Only `toolrest setup` writes, and every session reads.
    from toolrest.config.write import replace_file

    keys = stored_keys(home) | {provider: key}
    make_private(home)
    text = json.dumps({"version": _VERSION, "keys": keys}, indent=2) + "\n"
    replace_file(_path(home), text)
    return _path(home)
