"""Write to the user's settings file: comments stay, and it always loads afterwards."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from toolrest.config.config import Config
from toolrest.config.files import config_file, parse_toml, read_text, toolrest_home, user_home
from toolrest.config.keys import Key, flatten, format_key, nest, parse_key
from toolrest.config.layer_check import LayerSource, check_layer
from toolrest.config.layers import parse_value
from toolrest.config.schema.settings import Settings
from toolrest.config.schema.validate import check_table
from toolrest.errors import ConfigError
from toolrest.private_files import make_private

LOCK_PATIENCE = 5.0


def set_value(dotted: str, text: str, *, home: str | os.PathLike[str] | None = None) -> str:
    """Set one key of the user's file to a TOML value (or bare text); returns the file's path."""
    return edit_user_file(toolrest_home(home, os.environ), parse_key(dotted), parse_value(text))


def edit_user_file(home: str, key: Key, value: Any) -> str:
    """Set a key, or remove it where the value is None, unless the file would not load."""
    return edit_user_values(home, {key: value})


def edit_user_values(home: str, values: Mapping[Key, Any]) -> str:
    """Set or remove several keys in one step, unless the file would not load."""
    file = config_file(home)
    _make_private(home)
    with _locked(home):
        # Beside the real file: a config.toml that is a link into other dotfiles stays a link.
        target = os.path.realpath(file)
        old = read_text(target) or ""
        new = old
        for key, value in values.items():
            new = _edited(new, key, value, file)
        _check(new, file)
        if new != old:
            replace_file(target, new)
    return file


def _check(text: str, file: str) -> None:
    layer = check_layer(
        parse_toml(text, file), LayerSource("user", file, home=user_home(os.environ))
    )
    settings = check_table(Settings, nest(layer.values))
    _ = Config(settings, "").family  # Raises where a family's name or row cannot be used.


def _edited(text: str, key: Key, value: Any, file: str) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    wanted = _changed(flatten(parse_toml(text, file)), key, value, file)
    try:
        document = tomlkit.parse(text)
        _change(document, key, value, tomlkit.table)
        new = tomlkit.dumps(document)
        new.encode()
    except (TOMLKitError, UnicodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{file}: cannot set {format_key(key)}: {error}") from None
    if _leaves(new, file) != wanted:
        raise ConfigError(f"{file}: cannot change {format_key(key)} safely; edit the file by hand")
    return new


def _leaves(text: str, file: str) -> dict[Key, Any] | None:
    try:
        return flatten(parse_toml(text, file))
    except ConfigError:
        return None


def _changed(leaves: dict[Key, Any], key: Key, value: Any, file: str) -> dict[Key, Any]:
    """The values after the change, to compare the edited text with."""
    for end in range(1, len(key)):
        if key[:end] in leaves:
            raise ConfigError(f"{file}: {format_key(key[:end])} is not a table")
    kept = {path: old for path, old in leaves.items() if path[: len(key)] != key}
    return kept if value is None else kept | flatten({key[-1]: value}, key[:-1])


def _change(document: Any, key: Key, value: Any, new_table: Any) -> None:
    table = document
    for depth, name in enumerate(key[:-1]):
        if name not in table:
            # `[projects."/x"]` reads better than an empty `[projects]` above it.
            table[name] = new_table(is_super_table=depth < len(key) - 2)
        table = table[name]
    if value is None:
        del table[key[-1]]
    else:
        table[key[-1]] = value


def _make_private(home: str) -> None:
    try:
        make_private(home)
        info = os.stat(home)
        if info.st_uid == os.geteuid() and info.st_mode & 0o077:
            os.chmod(home, 0o700)
    except OSError as error:
        raise ConfigError(f"cannot make {home}: {error.strerror}") from None


@contextmanager
def _locked(home: str) -> Iterator[None]:
    """Lock the file for one writer, else the slower of two would undo the other's change."""
    path = os.path.join(home, ".config.lock")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}") from None
    try:
        deadline = time.monotonic() + LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(f"{path}: another process is writing; try again") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def replace_file(path: str, text: str) -> None:
    """Replace a file by a new 0600 one in a single step."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, 0o600)
        try:
            _write_all(fd, text.encode())
            os.rename(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(folder)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _write_all(fd: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
