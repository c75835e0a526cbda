"""Which files does git track? Read from its index; no program of the repository's choice runs."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator

_LARGEST = 512 << 20
_POINTER = b"gitdir: "


def tracked_in(top: str) -> frozenset[str]:
    """Paths that the index of the repository at `top` names, relative to it."""
    try:
        data = _read(os.path.join(_git_folder(top), "index"))
    except OSError:
        return frozenset()
    for hash_size in (20, 32):
        try:
            return frozenset(_paths(data, hash_size))
        except (struct.error, ValueError, IndexError):
            continue
    return frozenset()


def _git_folder(top: str) -> str:
    """`.git`, or what the file of that name points to (worktrees, submodules)."""
    place = os.path.join(top, ".git")
    if not stat.S_ISREG(os.lstat(place).st_mode):
        return place
    with open(place, "rb") as file:
        line = file.read(4096).split(b"\n", 1)[0]
    if not line.startswith(_POINTER):
        return place
    return os.path.join(top, os.fsdecode(line[len(_POINTER) :].strip()))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            raise OSError("not an index")
        return file.read(_LARGEST)


def _paths(data: bytes, hash_size: int) -> Iterator[str]:
    magic, version, count = struct.unpack_from(">4sII", data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index that is known")
    at, name = 12, b""
    for _ in range(count):
        start = at
        at += 40 + hash_size
        (flags,) = struct.unpack_from(">H", data, at)
        at += 4 if flags & 0x4000 else 2
        if version == 4:
            drop, at = _varint(data, at)
            end = data.index(b"\0", at)
            name = name[: len(name) - drop] + data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            name = data[at:end]
            at = start + ((end - start) // 8 + 1) * 8
        if len(name) < 0x0FFF and (flags & 0x0FFF) != len(name):
            raise ValueError("an entry's length is wrong")
        yield os.fsdecode(name)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    value = byte & 0x7F
    while byte & 0x80:
        byte = data[at]
        at += 1
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at
