"""Run a command with the rights that a plain container gives: `docker run` without options.

    python tests/plain_container.py [--no-landlock] [--uid N] -- make demo

What docker's default profile takes away is taken away here: the capabilities beyond its fourteen,
the system calls for namespaces and mounts (which is what bubblewrap needs), the kernel's wide
doors, and writing below /sys and /proc/sys. `--no-landlock` also takes the Landlock calls away, as
profiles before 2022 and kernels without that module do. The rights cannot be had back, so nothing
needs to be undone: the command runs in place of this program.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from errno import ENOSYS, EPERM
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from toolrest.sandbox.kernel.bpf import ALLOW, Assembler, errno
from toolrest.sandbox.kernel.seccomp import ADMINISTRATION, KERNEL_DOORS, NAMESPACES
from toolrest.sandbox.kernel.syscalls import this_machine

_KEPT = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
"""chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw,
sys_chroot, mknod, audit_write, setfcap."""
_LANDLOCK = (444, 445, 446)
_NEW_NAMESPACES = 0x7E020000

_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 22, 24, 38, 47
_AMBIENT_CLEAR, _FILTER_MODE = 4, 2
_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Take the rights away and become the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--no-landlock", action="store_true", help="nor Landlock")
    parser.add_argument("--uid", type=int, help="as this user (from root only)")
    parser.add_argument("command", nargs="+", help="what to run")
    options = parser.parse_args()
    enter(landlock=not options.no_landlock, uid=options.uid)
    os.execvp(options.command[0], options.command)


def enter(*, landlock: bool, uid: int | None = None) -> None:
    """This process, and all that it starts, has no more rights than a plain container gives."""
    root = os.geteuid() == 0
    if root and _libc.unshare(_CLONE_NEWNS) == 0:  # else in such a place already
        _mount_read_only()
    _install(_filter(landlock=landlock))
    if root:
        _drop_capabilities()
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def _filter(*, landlock: bool) -> bytes:
    machine = this_machine()
    if machine is None:
        raise SystemExit("plain_container: this machine's system calls are not known")
    refused: Iterable[str] = (*KERNEL_DOORS, *NAMESPACES, *ADMINISTRATION)
    numbers = [machine.calls[name] for name in refused if name in machine.calls]
    numbers.remove(machine.calls["chroot"])  # docker leaves it to root
    asm = Assembler()
    asm.number()
    for number in numbers:
        asm.equal(number, "eperm")
    for number in () if landlock else _LANDLOCK:
        asm.equal(number, "enosys")
    asm.equal(machine.calls["clone3"], "enosys")  # its flags lie in memory
    asm.equal(machine.calls["clone"], None, "allow")
    asm.argument(0)
    asm.any_bit(_NEW_NAMESPACES, "eperm")
    asm.label("allow")
    asm.verdict(ALLOW)
    asm.label("eperm")
    asm.verdict(errno(EPERM))
    asm.label("enosys")
    asm.verdict(errno(ENOSYS))
    return asm.assemble()


def _install(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    count = len(program) // 8
    header = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", count, ctypes.addressof(buffer)))
    if _libc.prctl(_PR_SET_SECCOMP, _FILTER_MODE, header, 0, 0) != 0:
        # What no administrator installs must not reach programs that would become one.
        _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        _check(_libc.prctl(_PR_SET_SECCOMP, _FILTER_MODE, header, 0, 0), "seccomp")


def _mount_read_only() -> None:
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount /")
    _check(_libc.mount(b"/proc/sys", b"/proc/sys", None, _MS_BIND, None), "/proc/sys")
    with open("/proc/self/mounts", encoding="ascii") as stream:
        points = [line.split()[1] for line in stream]
    for point in points:
        if (point + "/").startswith(("/sys/", "/proc/sys/")):
            flags = _MS_BIND | _MS_REMOUNT | _MS_RDONLY
            _check(_libc.mount(None, point.encode(), None, flags, None), point)


def _drop_capabilities() -> None:
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as stream:
        last = int(stream.read())
    for number in set(range(last + 1)) - set(_KEPT):
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    _libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    with open("/proc/self/status", encoding="ascii") as stream:
        held = next(int(line.split()[1], 16) for line in stream if line.startswith("CapPrm"))
    kept = held & sum(1 << number for number in _KEPT)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    head = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION, 0))
    data = ctypes.create_string_buffer(struct.pack("<6I", low, low, 0, high, high, 0))
    _check(_libc.capset(head, data), "capset")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    main()
