"""The history of messages: those of all sessions, in a private file of the home."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable

from prompt_toolkit.history import History

from toolrest.private_files import private_folder, regular_file, write_all

_MOST_HISTORY = 2000
_MOST_BYTES = 1 << 20
"""What is read of the file; at twice as much its beginning is dropped."""


class PrivateHistory(History):
    """Messages of all sessions, one JSON string a line, in a private file of the home."""

    def __init__(self, home: str) -> None:
        super().__init__()
        self._home = home

    def load_history_strings(self) -> Iterable[str]:
        """The messages, the latest first."""
        found: list[str] = []
        try:
            with open(
                os.path.join(self._home, "chat", "history.jsonl"), "rb", opener=regular_file
            ) as file:
                lines = _end_of(file.fileno()).splitlines()[-_MOST_HISTORY:]
        except OSError:
            return []
        for line in lines:
            try:
                text = json.loads(line)
            except ValueError:
                continue  # cut by a crash
            if isinstance(text, str):
                found.append(text)
        return found[::-1]

    def store_string(self, string: str) -> None:
        """Add one."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            folder = private_folder(self._home, "chat")
            try:
                file = os.open("history.jsonl", flags, 0o600, dir_fd=folder)
            finally:
                os.close(folder)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)  # another chat may drop the beginning just now
                write_all(file, json.dumps(string).encode() + b"\n")
                if os.fstat(file).st_size > 2 * _MOST_BYTES:
                    end = _end_of(file)
                    os.ftruncate(file, 0)
                    write_all(file, end)
            finally:
                os.close(file)
        except OSError:
            pass  # a full disk takes the history, not the chat


def _end_of(file: int) -> bytes:
    """The last whole lines of a file."""
    size = os.fstat(file).st_size
    data = os.pread(file, _MOST_BYTES, max(0, size - _MOST_BYTES))
    return data if size <= _MOST_BYTES else data[data.find(b"\n") + 1 :]
