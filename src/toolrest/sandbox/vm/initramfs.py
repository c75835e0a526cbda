"""The initramfs: what a machine boots into, as the bytes of a cpio archive.

The kernel unpacks several archives one after another. The first, with busybox and the kernel's
modules, is made by `toolrest vm prepare`; the second, with the script below and the places of one
session, is made for each boot.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from toolrest.sandbox.errors import SandboxUnavailable

SHARED = "root"
"""The tag under which QEMU shares its whole view; commands find it as `/`, read-only."""
WORK = "work"
"""The tag of the same view again, for what can be written: nothing of that is cached."""

_OPTIONS = "trans=virtio,version=9p2000.L,msize=512000,access=any"
_INIT = f"""#!/bin/busybox sh
B=/bin/busybox
fail() {{ echo "toolrest: $1"; exec $B poweroff -f; }}
$B mount -t proc proc /proc
$B mount -t sysfs sysfs /sys
$B mount -t devtmpfs devtmpfs /dev
exec </dev/console >/dev/console 2>&1
while read -r name; do $B insmod "/modules/$name" || fail "cannot load $name"; done < /modules/order
$B mount -t 9p -o ro,{_OPTIONS},cache=loose {SHARED} /r || fail "cannot mount the shared view"
$B mount -t 9p -o rw,{_OPTIONS},cache=mmap {WORK} /w || fail "cannot mount the writable view"
while IFS= read -r line; do
  path="${{line#* }}"
  case "${{line%% *}}" in empty) mode=1777;; hidden) mode=0111;; *) mode=;; esac
  if [ $mode ]; then
    $B mkdir -p "/r$path"
    $B mount -t tmpfs -o mode=$mode,nosuid,nodev tmpfs "/r$path" || fail "cannot empty $path"
    continue
  fi
  if [ -d "/w$path" ]; then $B mkdir -p "/r$path"; else
    $B mkdir -p "$($B dirname "/r$path")"; [ -e "/r$path" ] || $B touch "/r$path"
  fi
  $B mount --bind "/w$path" "/r$path" || fail "cannot show $path"
done < /places
for name in proc sys dev; do $B mount --move /$name /r/$name; done
$B mkdir -p /r/dev/pts
$B mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts /r/dev/pts
$B ln -sf pts/ptmx /r/dev/ptmx
$B mount -t cgroup2 cgroup /r/sys/fs/cgroup || fail "no control groups"
IFS= read -r name < /hostname && echo "$name" > /r/proc/sys/kernel/hostname
IFS= read -r python < /python
IFS= read -r programs < /programs
IFS= read -r config < /config
for port in /r/dev/vport*; do exec 3<>"$port"; done
exec $B switch_root -c /dev/console /r "$python" -I -S -B "$programs" agent "$config"
"""

Kind = Literal["empty", "hidden", "bind"]


class Place(Struct, frozen=True):
    """A path that is not as in the read-only view.

    New and empty; hidden, but for what is shown in it; or from the view in which nothing is cached.
    """

    kind: Kind
    path: str


def archive(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """A cpio archive (newc) of names, modes and contents."""
    out = bytearray()
    for number, (name, mode, data) in enumerate((*entries, ("TRAILER!!!", 0, b"")), 1):
        raw = os.fsencode(name) + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        out += b"070701" + b"".join(b"%08x" % value for value in fields) + raw
        out += bytes(-len(out) % 4)
        out += data + bytes(-len(data) % 4)
    return bytes(out)


def base(busybox: bytes, modules: Sequence[tuple[str, bytes]]) -> bytes:
    """The archive that all sessions share; modules in the order in which to load them."""
    folders = ("bin", "dev", "proc", "sys", "modules", "r", "w")
    order = "".join(f"{name}\n" for name, _ in modules).encode()
    return archive(
        [
            *((name, stat.S_IFDIR | 0o755, b"") for name in folders),
            ("bin/busybox", stat.S_IFREG | 0o755, busybox),
            ("modules/order", stat.S_IFREG | 0o644, order),
            *((f"modules/{name}", stat.S_IFREG | 0o644, data) for name, data in modules),
        ]
    )


def session(
    places: Sequence[Place], python: str, programs: str, config: str, hostname: str
) -> bytes:
    """The archive of one boot: the script, and what differs between sessions."""
    listed = "".join(f"{place.kind} {place.path}\n" for place in places)
    if any("\n" in text for text in (python, programs, *(place.path for place in places))):
        raise SandboxUnavailable(
            "sandbox: a path with a line end cannot be shown in a virtual machine.",
            remedy="Rename the folder, or use another sandbox.",
        )
    files = {
        "places": listed,
        "python": f"{python}\n",
        "programs": f"{programs}\n",
        "config": f"{config}\n",
        "hostname": f"{hostname}\n",
    }
    return archive(
        [
            ("init", stat.S_IFREG | 0o755, _INIT.encode()),
            *((name, stat.S_IFREG | 0o644, os.fsencode(text)) for name, text in files.items()),
        ]
    )
