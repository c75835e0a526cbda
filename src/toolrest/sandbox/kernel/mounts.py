"""Sockets and mounts of the host that a confined command must not reach.

A read-only mount does not stop connect(): the socket's inode decides, not the mount. Two answers:

- Folders where services may put sockets at any time are shown through a read-only overlay. The
  overlay has inodes of its own, so a socket seen through it connects to nothing, whether it was
  there before, is made while the command runs, or belongs to another network namespace.
- Elsewhere, and where overlays do not work, every socket that the kernel lists is masked.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import weakref
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from toolrest.policy.paths.names import inside, prefixes

_LINE = re.compile(rb"[0-9a-f]{8,16}: (?:[0-9A-F]+ ){5} *\d+ ?")
_OCTAL = re.compile(rb"\\([0-7]{3})")

_TOP = """
bin boot dev efi etc gnu lib lib32 lib64 libx32 lost+found nix proc run sbin snap sys tmp usr
"""
SYSTEM = frozenset(_TOP.split())
"""Top-level folders that hold programs, belong to the kernel, or get a mount of their own."""

_KINDS = "bcachefs btrfs ext2 ext3 ext4 f2fs jfs overlay reiserfs tmpfs xfs zfs"
_LAYERED = frozenset(_KINDS.split())
"""File systems on which an overlay is known to behave."""

STORES = (
    *("/var/lib/containers/storage", "/var/lib/containerd", "/var/lib/docker"),
    *("/var/lib/kubelet", "/var/lib/lxd", "/var/lib/incus"),
)
"""Where container engines mount file systems. A folder with mounts inside cannot be overlaid, only
its parts, and here these are the layers of every image: the whole is hidden, as no command needs
it and only root could read it."""
_MOST_OVERLAYS = 512
"""Each takes 0.03 ms. A mount below `/var/lib` makes a part of every folder in it: 40 on a small
server, 120 on a desktop with container engines."""
_LEVELS = 5


class Overlays(NamedTuple):
    """Which folders to overlay, which ones should be and cannot, and which ones to hide instead."""

    chosen: list[str]
    left_out: list[str]
    stores: list[str]


def socket_paths(table: str = "/proc/net/unix") -> tuple[str, ...]:
    """Absolute path names of the sockets that are open in this network namespace."""
    try:
        fd = os.open(table, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        data = _whole(fd)
    except OSError:
        return ()
    finally:
        os.close(fd)
    names: list[bytes] = []
    if b" /" not in data:
        return ()
    for line in data.split(b"\n")[1:]:
        match = _LINE.match(line)
        if match:
            names.append(line[match.end() :])
        elif names and line:
            names[-1] += b"\n" + line  # a path may hold a newline, and is printed as it is
    return tuple(sorted({os.fsdecode(name) for name in names if name.startswith(b"/")}))


class Mounts:
    """The mount table of this process, read once and again when it has changed.

    The folders that are overlaid in parts are looked at for parts that come or go.
    """

    def __init__(self, table: str = "/proc/self/mountinfo") -> None:
        self._raw = b""
        self.points: tuple[tuple[str, str], ...] = ()
        self._listed: dict[str, int] = {}
        self._fd = -1
        self._tells = table.startswith("/proc/")  # other files do not say that they changed
        self._changes = select.poll()
        with contextlib.suppress(OSError):
            self._fd = os.open(table, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._fd)
            self._changes.register(self._fd, select.POLLPRI)

    def refresh(self) -> bool:
        """Look again; True when the table differs, or a folder that `overlays` has listed."""
        changed = any(_changed_at(folder) != at for folder, at in self._listed.items())
        return self._read_again() or changed

    def _read_again(self) -> bool:
        """Read the table again if the kernel says that it changed; True when it differs."""
        if self._fd < 0 or (self._tells and self._raw and not self._changes.poll(0)):
            return False
        raw = _whole(self._fd)
        if raw == self._raw:
            return False
        self._raw = raw
        self.points = tuple(_points(raw))
        return True

    def overlays(self, kept: Sequence[str]) -> Overlays:
        """Folders to show through an overlay: top-level ones, or the parts without mounts inside.

        `kept` are the writable roots and the places that get a mount of their own; no folder
        that is one of these or lies inside one is chosen. The kernel refuses an overlay of a folder
        in which something is mounted, in a user namespace.
        """
        found = Overlays([], [], [])
        self._listed.clear()
        for top in self._folders("/"):
            if os.path.basename(top) in SYSTEM:
                continue
            changed_at = _changed_at(top)
            if _empty(top):
                self._listed[top] = changed_at
            else:
                self._parts(top, kept, _LEVELS, found)
        found.left_out.extend(found.chosen[_MOST_OVERLAYS:])
        del found.chosen[_MOST_OVERLAYS:]
        return found

    def _parts(self, folder: str, kept: Sequence[str], levels: int, found: Overlays) -> None:
        if (folder + "/").startswith(prefixes(kept)):
            return
        whole = not any(point != folder and inside(point, folder) for point, _ in self.points)
        if whole and self._type_of(folder) in _LAYERED:
            found.chosen.append(folder)
            return
        if not whole and folder in STORES and not any(inside(path, folder) for path in kept):
            found.stores.append(folder)
            return
        if whole or levels == 0 or not _for_root_only(folder):
            found.left_out.append(folder)
        if not whole and levels > 0:
            for sub in self._folders(folder):
                self._parts(sub, kept, levels - 1, found)

    def _folders(self, parent: str) -> list[str]:
        self._listed[parent] = _changed_at(parent)
        return _folders(parent)

    def _type_of(self, folder: str) -> str:
        holding = [(point, kind) for point, kind in self.points if inside(folder, point)]
        return max(holding, key=lambda entry: len(entry[0]))[1] if holding else ""


def _whole(fd: int) -> bytes:
    """A file of /proc from its beginning to its end."""
    os.lseek(fd, 0, os.SEEK_SET)
    pieces = []
    while piece := os.read(fd, 1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def _points(raw: bytes) -> Iterable[tuple[str, str]]:
    for line in raw.splitlines():
        fields = line.split(b" ")
        if len(fields) < 8 or b"-" not in fields:
            continue
        kind = fields[fields.index(b"-") + 1]
        point = _OCTAL.sub(lambda m: bytes([int(m[1], 8)]), fields[4])
        yield os.fsdecode(point), os.fsdecode(kind)


def _folders(parent: str) -> list[str]:
    try:
        with os.scandir(parent) as entries:
            return sorted(e.path for e in entries if e.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _changed_at(folder: str) -> int:
    """When a name last came or went in a folder; 0 where there is none."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _for_root_only(folder: str) -> bool:
    """Whether only the system's own services can put a socket right into this folder."""
    try:
        info = os.stat(folder)
    except OSError:
        return True
    return info.st_uid == 0 and not info.st_mode & 0o022


def _empty(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False
