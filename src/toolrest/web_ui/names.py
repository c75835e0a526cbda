"""Names that people gave to sessions on the page: a private file each, by the session's id."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from toolrest.control.controls import ControlError
from toolrest.private_files import private_file, private_folder, regular_file, write_all

FOLDER = "session-names"
LONGEST = 120


class SessionNames:
    """The names of one home; read again when its folder has changed."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._stamp = -1
        self._names: dict[str, str] = {}

    def all(self) -> dict[str, str]:
        """Return the names by the ids of their sessions."""
        folder = os.path.join(self._home, FOLDER)
        try:
            stamp = os.stat(folder, follow_symlinks=False).st_mtime_ns
            if stamp != self._stamp:
                self._names = dict(_read(folder))
                self._stamp = stamp
        except OSError:
            self._names = {}
        return self._names

    def give(self, session_id: str, name: str) -> str:
        """Name a session; an empty name takes its own first message again."""
        given = " ".join(name.split())
        if len(given) > LONGEST:
            raise ControlError(f"a name has at most {LONGEST} characters")
        folder = private_folder(self._home, FOLDER)
        try:
            # A name that is half written is nobody's.
            made = f".{secrets.token_hex(8)}"
            file = private_file(folder, made)
            try:
                write_all(file, given.encode("utf-8", "replace"))
            finally:
                os.close(file)
            os.replace(made, session_id, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            raise ControlError(f"the name cannot be kept: {error.strerror}") from None
        finally:
            os.close(folder)
        self._stamp = -1
        return given


def _read(folder: str) -> list[tuple[str, str]]:
    found = []
    for name in os.listdir(folder):
        if name.startswith("."):
            continue
        path = os.path.join(folder, name)
        with (
            suppress(OSError),  # a FIFO in its place, for one
            open(path, encoding="utf-8", errors="replace", opener=regular_file) as file,
        ):
            if text := file.read(4 * LONGEST).strip():
                found.append((name, text))
    return found
