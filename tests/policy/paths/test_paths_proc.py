"""The kernel's own files: a process's secrets stay out of reach under every spelling."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolrest.errors import Rejected
from toolrest.policy.paths.kernel_files import DeviceTable

CANARY = "canary-4711-do-not-show"


@pytest.fixture(scope="module")
def other() -> Iterator[int]:
    """Another process with a secret in its environment."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"SECRET": CANARY},
    )
    assert child.stdout is not None
    child.stdout.readline()
    yield child.pid
    child.communicate()


def spellings(pid: int) -> list[str]:
    """Ways to write a process's environment and what leads around the rules."""
    me = os.getpid()
    return [
        "/proc/self/environ",
        f"/proc/{me}/environ",
        f"/proc/{pid}/environ",
        "/proc/thread-self/environ",
        f"/proc/self/task/{me}/environ",
        f"/proc/{pid}/task/{pid}/environ",
        "//proc/self/environ",
        "///proc///self///environ",
        "/proc/./self/./environ",
        "/proc/../proc/self/environ",
        "/etc/../proc/self/environ",
        f"/proc/self/../{pid}/environ",
        "/proc/self/environ/",
        "/proc/self/environ/.",
        "/proc/self/root/proc/self/environ",
        f"/proc/{pid}/root/proc/{pid}/environ",
        "/proc/self/cwd/../../../../../../../../../../proc/self/environ",
        "/proc/self/task/../environ",
        f"/proc/self/task/{me}/root/proc/self/environ",
        f"/proc/self/task/{me}/../../environ",
        f"../../../../../../../../../../proc/{pid}/environ",
        "/dev/fd/../environ",
        "/dev/../proc/self/environ",
        "/proc/self/mem",
        f"/proc/{pid}/mem",
        "/proc/self/maps",
        f"/proc/{pid}/maps",
        "/proc/self/smaps",
        "/proc/self/smaps_rollup",
        "/proc/self/numa_maps",
        "/proc/self/pagemap",
        "/proc/self/auxv",
        "/proc/self/cmdline",
        f"/proc/{pid}/cmdline",
        "/proc/self/stack",
        "/proc/self/syscall",
        "/proc/self/exe",
        "/proc/self/fd/0",
        f"/proc/{pid}/fd/0",
        "/proc/self/fdinfo/0",
        "/proc/self/map_files",
        "/proc/self/ns/mnt",
        "/proc/self/attr/current",
        "/proc/self/cwd",
        "/proc/self/root",
        f"/proc/{pid}/cwd",
        f"/proc/{pid}/root/etc/passwd",
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/keys",
        "/proc/kallsyms",
        "/proc/sysrq-trigger",
        "/sys/kernel/debug",
        "/sys/kernel/security",
        "/sys/firmware/efi",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/shm/x",
        "/dev/stdin",
    ]


@pytest.mark.usefixtures("both_ways")
def test_no_spelling_reads_a_processs_secrets(places: Any, other: int) -> None:
    files = places.policy()
    assert len(spellings(other)) > 50
    for path in spellings(other):
        assert files.read_denied(path), path
        with pytest.raises(Rejected):
            files.read_bytes(path)
        with pytest.raises(Rejected):
            files.open_dir(path)


@pytest.mark.usefixtures("both_ways")
def test_links_into_proc_are_refused_too(places: Any, other: int) -> None:
    work = places.workspace
    (work / "p").symlink_to("/proc")
    (work / "self").symlink_to("/proc/self")
    (work / "root").symlink_to(f"/proc/{other}/root")
    (work / "env").symlink_to(f"/proc/{other}/environ")
    (work / "env2").symlink_to("env")
    (work / "cwd").symlink_to("/proc/self/cwd")
    (work / "fd").symlink_to("/proc/self/fd")
    files = places.policy()
    held = os.open(places.home / ".ssh" / "id", os.O_RDONLY)
    try:
        for path in (
            f"p/{other}/environ",
            "self/environ",
            f"root/proc/{other}/environ",
            "root/etc/passwd",
            "env",
            "env2",
            "cwd",
            "fd",
            f"fd/{held}",
            f"/proc/self/fd/{held}",
        ):
            with pytest.raises((Rejected, FileNotFoundError)):
                files.read_bytes(path)
    finally:
        os.close(held)


def test_harmless_parts_of_proc_and_sys_are_readable(places: Any) -> None:
    files = places.policy()
    for path in ("/proc/cpuinfo", "/proc/meminfo", "/proc/self/status", "/proc/mounts"):
        assert files.read_bytes(path, limit=10), path
    assert files.read_bytes("/proc/sys/kernel/ostype") == b"Linux\n"
    assert files.read_denied("/sys/devices/system/cpu") is None
    assert files.read_denied("/proc") is None


def test_a_pipe_or_a_deleted_file_has_no_place_and_is_refused(places: Any) -> None:
    # Reached without the words /proc: by a link that a program in the workspace planted.
    gone = places.workspace / "gone"
    gone.write_text("x")
    fd = os.open(gone, os.O_RDONLY)
    gone.unlink()
    (places.workspace / "deleted").symlink_to(f"/proc/self/fd/{fd}")
    reading, writing = os.pipe()
    (places.workspace / "pipe").symlink_to(f"/proc/self/fd/{reading}")
    files = places.policy()
    for path in ("deleted", "pipe"):
        with pytest.raises(Rejected):
            files.open_read(path)
    for each in (fd, reading, writing):
        os.close(each)


def test_a_proc_mounted_elsewhere_is_known_by_the_mount_table(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 28 0:21 / /proc rw - proc proc rw\n"
        "23 28 0:77 / /srv/jail/my\\040proc rw - proc proc rw\n"
        "24 22 0:21 /sys /proc/sys ro - proc proc rw\n"
        "25 28 0:30 / /sys rw - sysfs sysfs rw\n"
        "26 28 0:31 / /sys/kernel/debug rw - debugfs none rw\n"
        "27 28 0:40 / /tmp rw - tmpfs tmpfs rw\n"
        "broken line\n"
    )
    mounts = DeviceTable(str(table))
    cases = [
        ("/srv/jail/my proc/12/environ", 77, True),
        ("/srv/jail/my proc/12/status", 77, False),
        ("/srv/jail/my proc/kcore", 77, True),
        ("/elsewhere/environ", 77, True),
        ("/proc/cpuinfo", 21, False),
        ("/proc/sys/kernel/ostype", 21, False),
        ("/sys/devices/system/cpu", 30, False),
        ("/mnt/sys/devices/system/cpu", 30, True),
        ("/sys/kernel/debug/x", 31, True),
        ("/tmp/x", 40, False),
        ("/unknown/x", 99, False),
    ]
    for path, minor, refused in cases:
        assert bool(mounts.refused(path, os.makedev(0, minor))) == refused, path
    assert mounts.refused("/x", os.makedev(8, 1)) is None
