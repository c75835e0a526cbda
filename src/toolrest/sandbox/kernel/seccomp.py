"""Seccomp filters, as bytes: the system calls that a confined command does not get.

Beneath bubblewrap namespaces already isolate processes, files and the network, so
only what could undo or bypass them is refused; beneath Landlock the filter is also what takes the
network away. Both refuse the 32-bit and x32 doors, through which every rule could be walked
around. A third one, for a program that brings a kernel of its own, only keeps root from making
setuid files. Nothing here needs libseccomp; a filter is generated once per kind and kept.
"""

from __future__ import annotations

import os
from errno import EAFNOSUPPORT, ENOSYS, EPERM
from functools import cache
from typing import Literal, TypeAlias

from toolrest.sandbox.kernel.bpf import ALLOW, KILL, Assembler, errno
from toolrest.sandbox.kernel.syscalls import Architecture, this_machine

Kind: TypeAlias = Literal["bubblewrap", "landlock", "landlock-network", "set-id"]

KERNEL_DOORS: tuple[str, ...] = (
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "keyctl",
    "add_key",
    "request_key",
    "open_by_handle_at",
)
"""Wide kernel interfaces that no ordinary program needs, or that ignore other confinement."""

NAMESPACES: tuple[str, ...] = (
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "open_tree_attr",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "unshare",
    "setns",
)
"""What could rearrange the view that the sandbox gives."""

ADMINISTRATION: tuple[str, ...] = (
    "acct",
    "clock_settime",
    "delete_module",
    "finit_module",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "setdomainname",
    "sethostname",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "vhangup",
)
"""Needs capabilities that a confined command does not have; refused all the same."""

NETWORK: tuple[str, ...] = (
    "connect",
    "accept",
    "accept4",
    "bind",
    "listen",
    "getpeername",
    "getsockname",
    "shutdown",
    "sendmmsg",
    "recvmmsg",
    "getsockopt",
    "setsockopt",
)
"""What makes a network, where no namespace takes it away."""

OTHER_PROCESSES: tuple[str, ...] = (
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "shmget",
    "shmat",
    "shmctl",
    "semget",
    "semop",
    "semctl",
    "semtimedop",
    "msgget",
    "msgsnd",
    "msgrcv",
    "msgctl",
    "mq_open",
)
"""What reaches processes outside, where no pid and IPC namespace separates them."""

_UNIX, _INET, _INET6 = 1, 2, 10
_DGRAM, _RAW, _PACKET = 2, 3, 10
_TYPE_BITS = 0xF
_CLONE_NEW = 0x7E020000  # every CLONE_NEW* that clone() can carry
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PRIO_USER = 2
_SET_ID = 0o6000  # S_ISUID, S_ISGID
_MAKES = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE
_MODES = {
    "chmod": 1,
    "fchmod": 1,
    "fchmodat": 2,
    "fchmodat2": 2,
    "mknod": 1,
    "mknodat": 2,
    "creat": 1,
    "open": 2,
    "openat": 3,
}
"""Which argument is a file's mode. For `open` and `openat` the one before are the flags."""
_X32_BIT = 0x40000000
_SKIPPED = 0xFFFFFFFF  # a tracer cancelled the call


def program(
    kind: Kind, machine: Architecture | None = None, *, root: bool | None = None
) -> bytes | None:
    """The filter for this machine; None where the call numbers are not known.

    What `root` runs can make no setuid or setgid file: it would be root's on the host, too.
    """
    chosen = machine or this_machine()
    as_root = os.geteuid() == 0 if root is None else root
    return None if chosen is None else _build(kind, chosen, as_root)


@cache
def _build(kind: Kind, machine: Architecture, root: bool) -> bytes:
    asm = Assembler()
    _check_entry(asm, machine)
    if root:
        _no_set_id(asm, machine)
    if kind != "set-id":
        _confine(asm, kind, machine)
    asm.label("allow")
    asm.verdict(ALLOW)
    asm.label("eperm")
    asm.verdict(errno(EPERM))
    asm.label("enosys")
    asm.verdict(errno(ENOSYS))
    asm.label("family")
    asm.verdict(errno(EAFNOSUPPORT))
    asm.label("kill")
    asm.verdict(KILL)
    return asm.assemble()


def _confine(asm: Assembler, kind: Kind, machine: Architecture) -> None:
    for name in _refused(kind):
        if name in machine.calls:
            asm.equal(machine.calls[name], "eperm")
    asm.equal(machine.calls["clone3"], "enosys")
    _clone(asm, machine)
    _ioctl(asm, machine)
    _sockets(asm, machine, inet=kind != "landlock")
    if kind != "bubblewrap":
        _only_itself(asm, machine)
    if kind == "landlock":
        _sendto(asm, machine)


def _refused(kind: Kind) -> tuple[str, ...]:
    shared = (*KERNEL_DOORS, *NAMESPACES, *ADMINISTRATION)
    if kind == "bubblewrap":
        return shared
    return (*shared, *OTHER_PROCESSES, *(NETWORK if kind == "landlock" else ()))


def _check_entry(asm: Assembler, machine: Architecture) -> None:
    """Only the native door: other call tables have other numbers for the same calls."""
    asm.arch()
    asm.equal(machine.audit, None, "kill")
    asm.number()
    if machine.x32:
        asm.equal(_SKIPPED, "allow")
        asm.at_least(_X32_BIT, "kill")


def _no_set_id(asm: Assembler, machine: Architecture) -> None:
    """No mode with setuid or setgid; openat2() hides its mode in memory and does not exist."""
    asm.equal(machine.calls["openat2"], "enosys")
    for name, place in _MODES.items():
        if name not in machine.calls:
            continue
        after = asm.fresh()
        asm.equal(machine.calls[name], None, after)
        if name in ("open", "openat"):
            asm.argument(place - 1)
            asm.any_bit(_MAKES, None, "allow")
        asm.argument(place)
        asm.any_bit(_SET_ID, "eperm", "allow")
        asm.label(after)


def _clone(asm: Assembler, machine: Architecture) -> None:
    """clone() without new namespaces; clone3() hides its flags in memory and does not exist."""
    after = asm.fresh()
    asm.equal(machine.calls["clone"], None, after)
    asm.argument(0)
    asm.any_bit(_CLONE_NEW, "eperm", "allow")
    asm.label(after)


def _ioctl(asm: Assembler, machine: Architecture) -> None:
    """No typing into a terminal. The kernel looks at the low half of the request only."""
    after = asm.fresh()
    asm.equal(machine.calls["ioctl"], None, after)
    asm.argument(1)
    asm.equal(_TIOCSTI, "eperm")
    asm.equal(_TIOCLINUX, "eperm", "allow")
    asm.label(after)


def _sockets(asm: Assembler, machine: Architecture, *, inet: bool) -> None:
    """AF_UNIX streams, and TCP and UDP where a namespace or the user's will covers them.

    AF_UNIX datagrams can be sent anywhere without connect(), from a socketpair too; the kernel
    takes SOCK_RAW for SOCK_DGRAM there.
    """
    after, judge, unix = asm.fresh(), asm.fresh(), asm.fresh()
    asm.equal(machine.calls["socket"], judge)
    asm.equal(machine.calls["socketpair"], None, after)
    asm.label(judge)
    asm.argument(0)
    asm.equal(_UNIX, unix)
    if inet:
        internet = asm.fresh()
        asm.equal(_INET, internet)
        asm.equal(_INET6, None, "family")
        asm.label(internet)
        asm.argument(1)
        asm.mask(_TYPE_BITS)
        asm.equal(_RAW, "eperm")
        asm.equal(_PACKET, "eperm", "allow")
    else:
        asm.equal(_INET, "eperm")
        asm.equal(_INET6, "eperm", "family")
    asm.label(unix)
    asm.argument(1)
    asm.mask(_TYPE_BITS)
    asm.equal(_DGRAM, "eperm")
    asm.equal(_RAW, "eperm", "allow")
    asm.label(after)


def _sendto(asm: Assembler, machine: Architecture) -> None:
    """send() on a connected socket is sendto() without an address; that much is harmless."""
    after = asm.fresh()
    asm.equal(machine.calls["sendto"], None, after)
    asm.argument(4)
    asm.equal(0, None, "eperm")
    asm.argument(4, high=True)
    asm.equal(0, "allow", "eperm")
    asm.label(after)


def _only_itself(asm: Assembler, machine: Architecture) -> None:
    """Calls that name a process by number: 0 is the caller, anything else may be outside."""
    limits, after = asm.fresh(), asm.fresh()
    asm.equal(machine.calls["prlimit64"], limits)
    asm.equal(machine.calls["setpriority"], None, after)
    asm.argument(0)
    asm.equal(_PRIO_USER, "eperm")
    asm.argument(1)
    asm.equal(0, "allow", "eperm")
    asm.label(limits)
    asm.argument(0)
    asm.equal(0, "allow", "eperm")
    asm.label(after)
