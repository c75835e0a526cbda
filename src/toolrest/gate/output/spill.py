"""Spill files: the whole of an output of which only a part is shown.

One private folder a session, `$TOOLREST_HOME/spill/<session id>/`, made when first needed.
A spill that cannot be written is never an error of the call: the notice of the output has the
reason.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256

from toolrest.private_files import private_file, private_folder, reason, write_all

DEFAULT_CAP = 256 << 20
"""Bytes of one output that are kept: a server may log for days."""
_BUFFER = 1 << 16
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


class SpillFile:
    """One spilled output, written as it is produced, up to a cap of bytes.

    `path` is None when the file could not be made. `problem` is the reason why something is
    missing, and None while the file holds everything that was written.
    """

    def __init__(self, path: str | None, descriptor: int, cap: int, problem: str | None) -> None:
        self.path = path
        self.problem = problem
        self.size = 0
        self._descriptor = descriptor
        self._cap = cap
        self._waiting: list[bytes] = []
        self._waiting_size = 0

    def write(self, text: str) -> None:
        """Add text at the end; does nothing once a problem is known."""
        if self.problem is not None:
            return
        try:
            data = text.encode()
        except UnicodeEncodeError:
            # U+FFFD is as long in UTF-8 as a surrogate would be, so byte totals stay exact.
            data = _SURROGATES.sub("\ufffd", text).encode()
        room = self._cap - self.size - self._waiting_size
        capped = len(data) > room
        if capped:
            data = _whole_characters(data, room)
        self._waiting.append(data)
        self._waiting_size += len(data)
        if capped or self._waiting_size >= _BUFFER:
            self.flush()
        if capped and self.problem is None:
            self.problem = f"the spill limit of {self._cap} bytes was reached"

    def close(self) -> None:
        """Write what waits and close the file; may be called twice."""
        self.flush()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def flush(self) -> None:
        """Write what waits."""
        data, self._waiting, self._waiting_size = b"".join(self._waiting), [], 0
        if not data or self._descriptor < 0:
            return
        try:
            write_all(self._descriptor, data)
        except OSError as error:
            self.size = os.fstat(self._descriptor).st_size
            self.problem = reason(error)
        else:
            self.size += len(data)


class Spill:
    """The spill folder of one session; nothing exists on disk until the first `open`."""

    def __init__(self, home: str | os.PathLike[str], session_id: str, *, cap: int = DEFAULT_CAP):
        self._home = os.path.abspath(os.path.expanduser(os.fspath(home)))
        self._session = _file_name(session_id)
        self._cap = cap
        self._folder = -1
        self._count = 0

    @property
    def path(self) -> str:
        """The folder, which the path policy lets `read_file` read."""
        return os.path.join(self._home, "spill", self._session)

    def open(self, hint: str = "output") -> SpillFile:
        """A new file with an unpredictable name that starts with `hint` (a tool's name)."""
        name = f"{self._count + 1:04d}-{_UNSAFE.sub('_', hint)[:48]}-{os.urandom(8).hex()}.txt"
        try:
            descriptor = self._create(name)
        except OSError as error:
            return SpillFile(None, -1, 0, f"cannot write {self.path}: {reason(error)}")
        self._count += 1
        return SpillFile(os.path.join(self.path, name), descriptor, self._cap, None)

    def save(self, text: str, hint: str = "output") -> SpillFile:
        """Spill a text that is already whole."""
        file = self.open(hint)
        file.write(text)
        file.close()
        return file

    def _create(self, name: str) -> int:
        if self._folder >= 0:
            try:
                return private_file(self._folder, name)
            except FileNotFoundError:
                self.close()  # the folder was removed meanwhile: make it again
        self._folder = private_folder(self._home, "spill", self._session)
        return private_file(self._folder, name)

    def close(self) -> None:
        """Close the folder and keep the files."""
        folder, self._folder = self._folder, -1
        if folder >= 0:
            os.close(folder)


def _file_name(session_id: str) -> str:
    name = _UNSAFE.sub("_", session_id)[:64]
    if name == session_id and name:
        return name
    digest = sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name}-{digest[:16]}"


def _whole_characters(data: bytes, room: int) -> bytes:
    while room > 0 and data[room] & 0xC0 == 0x80:
        room -= 1
    return data[:room]
