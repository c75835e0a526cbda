"""The journal of a workspace: turns that began and ended, and what changed between, in order.

`journal.jsonl` only grows, a line at a time; `index.json` is the state up to one of its lines, so
that it need not be read from the start. A line that a dying process left half written is cut off.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from types import UnionType
from typing import Any

from toolrest.agent.undo.live_turns import HeldFolder
from toolrest.agent.undo.records import Changes, CheckpointError, FileRecord, State, TooSlow, parse
from toolrest.private_files import reason, regular_file, write_all

_CREATE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_SECONDS = 60.0
_HASTY_TAIL = 64 << 10
_TAIL = 1 << 20
"""How long the journal may grow past the index before that is written anew."""


class Journal:
    """The journal of one workspace. Everything but `locked` is used while it is locked."""

    def __init__(self, home: str, key: str) -> None:
        self._held = HeldFolder(home, "checkpoints", key)
        self.folder = self._held.path
        self.state = State()
        self.last = 0
        """The number of the newest turn."""
        self.open: set[int] = set()
        """Turns that have not ended."""
        self.watching: dict[int, Changes] = {}
        """Turns of this process, with what has changed since they began."""
        self.fresh = True
        """Nothing was ever looked at."""
        self._offset = 0
        self._indexed = 0
        self._identity: tuple[int, int] | None = None
        self._fd = -1

    @contextlib.contextmanager
    def locked(self, *, create: bool = True, haste: bool = False) -> Iterator[None]:
        """Hold the lock on this workspace's checkpoints.

        In haste, TooSlow when that means waiting, or reading what another process has written.
        """
        with contextlib.ExitStack() as stack:
            try:
                folder = self._held.open() if create else self._existing(stack)
                lock = os.open("lock", _CREATE, 0o600, dir_fd=folder)
                stack.callback(os.close, lock)
                _take(lock, self.folder, 0 if haste else _LOCK_SECONDS)
                # Opened under the lock: collecting garbage puts a new file in its place.
                self._fd = os.open("journal.jsonl", _CREATE | os.O_APPEND, 0o600, dir_fd=folder)
                stack.callback(os.close, self._fd)
                if haste and self._behind() > _HASTY_TAIL:
                    raise TooSlow("much was written meanwhile")
                self._catch_up()
                yield
            except OSError as error:
                raise CheckpointError(f"{self.folder}: {reason(error)}") from error
            finally:
                self._fd = -1

    def _existing(self, stack: contextlib.ExitStack) -> int:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, folder)
        return folder

    # Reading

    def _behind(self) -> int:
        """How much there is to read, in bytes, before all is known."""
        status = os.fstat(self._fd)
        if self._identity != (status.st_dev, status.st_ino):
            return status.st_size + self._size_of_index()
        return abs(status.st_size - self._offset)

    def _catch_up(self) -> None:
        """Learn what other processes have written since we last looked."""
        status = os.fstat(self._fd)
        identity = (status.st_dev, status.st_ino)
        if self._identity != identity or status.st_size < self._offset:
            self._reload(identity)
        for line in self._lines(self._offset):
            self._apply(line)

    def _reload(self, identity: tuple[int, int]) -> None:
        self._identity = identity
        self.state, self.last, self.open, self.fresh = State(), 0, set(), True
        self._offset = self._indexed = 0
        try:
            with open(os.path.join(self.folder, "index.json"), "rb", opener=regular_file) as file:
                index = json.load(file)
            if index["of"] != identity[1]:
                return
            for folder, names in index["folders"].items():
                self.state.folders[folder] = {name: FileRecord(*r) for name, r in names.items()}
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{self.folder}/index.json is damaged ({error}); move that folder away"
            ) from None
        self.state.touched = set(index["touched"])
        self.last, self.open, self.fresh = index["last"], set(index["open"]), False
        self._offset = self._indexed = index["offset"]

    def _lines(self, start: int) -> Iterator[dict[str, Any]]:
        """Whole lines from an offset on; a torn last one is cut off."""
        size = os.fstat(self._fd).st_size
        data = os.pread(self._fd, size - start, start) if size > start else b""
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._fd, start + whole)
        self._offset = start + whole
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                yield _parsed(line)
            except (ValueError, TypeError, RecursionError):
                raise CheckpointError(
                    f"{self.folder}/journal.jsonl is damaged {number} lines after byte {start}; "
                    "move that folder away"
                ) from None

    def history(self) -> list[dict[str, Any]]:
        """Every line from the start."""
        return list(self._lines(0))

    # Writing

    def append(self, *lines: dict[str, Any]) -> None:
        """Write lines at once and learn from them."""
        data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        try:
            write_all(self._fd, data)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._offset)
            raise
        self._offset += len(data)
        for line in lines:
            self._apply(line)

    def step(self, changes: Changes, refreshed: dict[str, FileRecord]) -> None:
        """Write down what a walk has found."""
        if self.fresh:
            # The first look is where everything starts from: no line, the index alone.
            for path, (_, after) in changes.items():
                self.state.put(path, after)
            self.fresh = False
            self.write_index()
            return
        if changes:
            self.append({"t": "step", "c": changes})
        if refreshed:
            self.append({"t": "stat", "c": refreshed})
        grown = self._offset - self._indexed
        if grown > _TAIL and grown > self._size_of_index() // 2:
            self.write_index()

    def adopt(self, fd: int) -> None:
        """Take a rewritten journal, not yet in its place, as ours: the index is for it."""
        status = os.fstat(fd)
        self._identity = (status.st_dev, status.st_ino)
        self._offset = status.st_size
        self.write_index()

    def _size_of_index(self) -> int:
        try:
            return os.stat(os.path.join(self.folder, "index.json")).st_size
        except OSError:
            return 0

    def write_index(self) -> None:
        """Save the whole state as of now."""
        index = {
            "of": (self._identity or (0, 0))[1],
            "offset": self._offset,
            "last": self.last,
            "open": sorted(self.open),
            "touched": sorted(self.state.touched),
            "folders": self.state.folders,
        }
        place = os.path.join(self.folder, "index.json")
        fd = os.open(place + ".new", _CREATE | os.O_TRUNC, 0o600)
        try:
            write_all(fd, json.dumps(index, separators=(",", ":")).encode())
        finally:
            os.close(fd)
        os.replace(place + ".new", place)
        self._indexed = self._offset

    def _apply(self, line: dict[str, Any]) -> None:
        kind = line["t"]
        if kind == "step":
            for path, (before, after) in line["c"].items():
                self._changed(path, parse(before), parse(after))
        elif kind == "put_back":
            for path, (_, after) in line["c"].items():
                self.state.put(path, parse(after))
        elif kind == "stat":
            for path, record in line["c"].items():
                self.state.put(path, parse(record))
        elif kind == "open":
            self.last = line["n"]
            self.open.add(line["n"])
        elif kind == "close":
            self.open.discard(line["n"])
        elif kind == "touched":
            self.state.touched.update(line["paths"])

    def _changed(self, path: str, before: FileRecord | None, after: FileRecord | None) -> None:
        self.state.put(path, after)
        for changes in self.watching.values():
            first = changes[path][0] if path in changes else before
            changes[path] = (first, after)


_FIELDS: dict[str, dict[str, type | UnionType]] = {
    "open": {"n": int, "kind": str, "time": int | float, "session": str, "label": str},
    "close": {"n": int},
    "kept": {"n": int},
    "step": {"c": dict},
    "put_back": {"c": dict},
    "stat": {"c": dict},
    "touched": {"paths": list},
    "others": {"n": int, "paths": list},
}
"""What the lines of each kind have at least; a later version may add kinds."""


def _parsed(line: bytes) -> dict[str, Any]:
    """One line of the journal; ValueError where it is none."""
    value = json.loads(line)
    if not isinstance(value, dict) or not isinstance(value.get("t"), str):
        raise ValueError("it is no line of a journal")
    for name, kind in _FIELDS.get(value["t"], {}).items():
        if not isinstance(value.get(name), kind):
            raise ValueError(f"its {name} is missing")
    if value["t"] in ("step", "put_back"):
        for before, after in value["c"].values():
            parse(before), parse(after)
    return value


def _take(lock: int, folder: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    pause = 0.001
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not seconds:
                raise TooSlow(f"{folder} is locked") from None
            if time.monotonic() > end:
                raise CheckpointError(
                    f"{folder}: another process has held its lock for {_LOCK_SECONDS:g} s"
                ) from None
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
