"""Files of the kernel's own file systems (`/proc`, `/sys`, `/dev`), and which may be read.

A process's environment, memory, descriptors and root lead around every other rule, and reading a
device or a trace pipe can block or change something. So `/proc`, `/sys` and `/dev` are refused but
for the listed, harmless parts, wherever such a file system is mounted.
"""

from __future__ import annotations

import os
import stat

from msgspec import Struct, field

from toolrest.policy.paths.names import inside

PROC_FILES = frozenset(
    (
        "buddyinfo",
        "cgroups",
        "config.gz",
        "consoles",
        "cpuinfo",
        "crypto",
        "devices",
        "diskstats",
        "driver",
        "filesystems",
        "interrupts",
        "loadavg",
        "meminfo",
        "misc",
        "modules",
        "mounts",
        "net",
        "partitions",
        "pressure",
        "schedstat",
        "self",
        "softirqs",
        "stat",
        "swaps",
        "sys",
        "thread-self",
        "uptime",
        "version",
        "version_signature",
        "vmstat",
        "zoneinfo",
    )
)
PROCESS_FILES = frozenset(
    (
        "cgroup",
        "comm",
        "cpuset",
        "gid_map",
        "limits",
        "loginuid",
        "mountinfo",
        "mounts",
        "mountstats",
        "net",
        "oom_adj",
        "oom_score",
        "oom_score_adj",
        "sched",
        "schedstat",
        "setgroups",
        "stat",
        "statm",
        "status",
        "uid_map",
    )
)
SYS_FOLDERS = ("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm")

_GUARDED = ("/proc/", "/sys/", "/dev/")
_REFUSED_TYPES = frozenset(
    (
        "binfmt_misc",
        "bpf",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "fusectl",
        "mqueue",
        "nsfs",
        "pstore",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "smackfs",
        "tracefs",
    )
)
_KINDS = (
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
)


def proc_refused(relative: str) -> bool:
    """Whether `relative`, a path inside a proc file system, is off limits."""
    parts = [part for part in relative.split("/") if part]
    if not parts:
        return False
    if parts[0].isdigit() or parts[0] in ("self", "thread-self"):
        return _process_refused(parts[1:])
    return parts[0] not in PROC_FILES


def _process_refused(parts: list[str]) -> bool:
    if parts[:1] == ["task"]:
        return len(parts) > 2 and _process_refused(parts[2:])
    return bool(parts) and parts[0] not in PROCESS_FILES


def sys_refused(path: str) -> bool:
    """Whether this path in `/sys` is off limits."""
    return path != "/sys" and not any(inside(path, folder) for folder in SYS_FOLDERS)


def refused_by_path(path: str) -> str | None:
    """Why this path is off limits by its text alone, or None."""
    if not (path + "/").startswith(_GUARDED):
        return None
    if path.startswith("/proc"):
        if proc_refused(path[5:]):
            return "this part of /proc can show another process's secrets"
    elif path.startswith("/sys"):
        if sys_refused(path):
            return "this part of /sys is off limits"
    else:
        return "/dev is off limits"
    return None


def refused_by_kind(mode: int) -> str | None:
    """Why an object of this kind is not read, or None for files and folders."""
    for test, kind in _KINDS:
        if test(mode):
            return f"it is {kind}, not a regular file"
    return None


class MountedFileSystem(Struct):
    """One mounted file system: its type, and (mount point, folder of it that is seen there)."""

    kind: str
    places: list[tuple[str, str]] = field(default_factory=list)

    def relative(self, path: str) -> str | None:
        """Where `path` is inside this file system, or None when it is not under it."""
        best = max(
            (place for place in self.places if inside(path, place[0])),
            key=lambda place: len(place[0]),
            default=None,
        )
        if best is None:
            return None
        return best[1].rstrip("/") + "/" + path[len(best[0]) :].lstrip("/")


class DeviceTable(Struct):
    """Which file system a device number stands for; the mount table is read when first needed."""

    table: str = "/proc/self/mountinfo"
    _known: dict[int, MountedFileSystem | None] = field(default_factory=dict)

    def refused(self, path: str, device: int) -> str | None:
        """Why the file system under `path` is off limits, or None."""
        if os.major(device):
            return None  # a disk; kernel file systems have anonymous device numbers
        system = self._of(device)
        if system is None:
            return None
        if system.kind == "proc":
            relative = system.relative(path)
            if relative is None or proc_refused(relative):
                return "it is in a proc file system"
        elif system.kind == "sysfs":
            if not inside(path, "/sys") or sys_refused(path):
                return "it is in a sysfs"
        elif system.kind in _REFUSED_TYPES:
            return f"it is in a {system.kind} file system"
        return None

    def kind(self, device: int) -> str:
        """The kind of the file system with this device number; empty when it is not known."""
        system = self._of(device)
        return "" if system is None else system.kind

    def _of(self, device: int) -> MountedFileSystem | None:
        if device not in self._known:
            self._known = self._load()
            self._known.setdefault(device, None)
        return self._known[device]

    def _load(self) -> dict[int, MountedFileSystem | None]:
        known: dict[int, MountedFileSystem | None] = {
            device: None for device, system in self._known.items() if system is None
        }
        for line in _lines(self.table):
            fields = line.split()
            try:
                major, minor = fields[2].split(":")
                device = os.makedev(int(major), int(minor))
                kind = fields[fields.index("-") + 1]
            except (IndexError, ValueError, OverflowError):
                continue
            system = known.get(device)
            if system is None:
                system = known[device] = MountedFileSystem(kind)
            system.places.append((_plain(fields[4]), _plain(fields[3])))
        return known


def _lines(table: str) -> list[str]:
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            return file.readlines(4 << 20)
    except OSError:
        return []


def _plain(text: str) -> str:
    for code, character in (("040", " "), ("011", "\t"), ("012", "\n"), ("134", "\\")):
        text = text.replace("\\" + code, character)
    return text
