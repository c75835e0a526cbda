"""Rules files: where they are, reading them all, appending an approved prefix to the user's own."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterable, Sequence

from toolrest.errors import ConfigError
from toolrest.policy.rules.amendment import is_banned
from toolrest.policy.rules.rules import Rules
from toolrest.private_files import make_private, regular_file

FOLDER = "rules"
SUFFIX = ".rules"
DEFAULT_FILE = "default.rules"
MAX_BYTES = 4 << 20


def rules_files(folders: Iterable[str]) -> list[str]:
    """Every rules file of these config folders: folder by folder, each sorted by path.

    The caller lists the folders, lowest layer first, and a project's only when it is trusted.
    """
    found: list[str] = []
    for folder in folders:
        place = os.path.join(folder, FOLDER)
        try:
            with os.scandir(place) as entries:
                names = [e.path for e in entries if e.name.endswith(SUFFIX) and e.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ConfigError(f"cannot list the rules in {place}: {error.strerror}") from None
        found += sorted(names)
    return found


def load_rules(folders: Iterable[str]) -> Rules:
    """All rules of these config folders. One broken file is an error: a rule that forbids must
    not vanish because another one has a typing mistake.
    """
    rules = Rules()
    for path in rules_files(folders):
        rules.merge(load_file(path))
    return rules


def load_file(path: str) -> Rules:
    """The rules of one file; raises ConfigError that names it and the line."""
    try:
        with open(path, "rb", opener=regular_file) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the rules in {path}: {error.strerror}") from None
    from toolrest.policy.rules.load import parse_rules

    return parse_rules(_text(data, path), path)


def _text(data: bytes, path: str) -> str:
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: a rules file may have at most {MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: the file is not UTF-8") from None


def allow_line(prefix: Sequence[str], *, outside: bool = False) -> str:
    """The line that allows a prefix, inside the sandbox or also outside."""
    tokens = ", ".join(json.dumps(token, ensure_ascii=False) for token in prefix)
    return f'prefix_rule(pattern=[{tokens}], decision="allow"{", outside=True" * outside})'


def append_allow(folder: str, prefix: Sequence[str], *, outside: bool = False) -> str:
    """Allow a prefix in the `default.rules` of a config folder; returns the file's path.

    Prefixes that would allow anything at all (`bash -c`, `python`, `sudo`, …) are refused.
    """
    if not prefix or not all(prefix) or any("\n" in t or "\x00" in t for t in prefix):
        raise ConfigError("a prefix to allow needs at least one word, and words of one line")
    if is_banned(prefix):
        raise ConfigError(f"{json.dumps(list(prefix))} would allow far more than one command")
    path = os.path.join(folder, FOLDER, DEFAULT_FILE)
    append_line(path, allow_line(prefix, outside=outside))
    return path


def append_line(path: str, line: str) -> None:
    """Append one line to a rules file, all of it or nothing, unless it is there already.

    The file is locked meanwhile and must be valid with the line in it. Raises ConfigError.
    """
    try:
        make_private(os.path.dirname(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _append(descriptor, path, line)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _append(descriptor: int, path: str, line: str) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path}: is not a regular file")
    data = os.pread(descriptor, MAX_BYTES + 1, 0)
    text = _text(data, path)
    if line in text.splitlines():
        return
    addition = ("\n" if text and not text.endswith("\n") else "") + line + "\n"
    from toolrest.policy.rules.load import parse_rules

    parse_rules(text + addition, path)
    encoded = addition.encode()
    try:
        if os.write(descriptor, encoded) != len(encoded):
            raise OSError(28, "the disk is full")
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, len(data))
        raise
