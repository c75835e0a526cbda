"""Numbers of the system calls that the filters name, for the two machines we support.

A call that a machine does not have is simply absent from its table.
"""

from __future__ import annotations

import platform

from msgspec import Struct

# The same number everywhere: every call added since Linux 5.1.
_COMMON = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "openat2": 437,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "fchmodat2": 452,
    "open_tree_attr": 467,
}

_X86_64 = {
    "open": 2,
    "ioctl": 16,
    "shmget": 29,
    "shmat": 30,
    "shmctl": 31,
    "socket": 41,
    "connect": 42,
    "accept": 43,
    "sendto": 44,
    "shutdown": 48,
    "bind": 49,
    "listen": 50,
    "getsockname": 51,
    "getpeername": 52,
    "socketpair": 53,
    "setsockopt": 54,
    "getsockopt": 55,
    "clone": 56,
    "semget": 64,
    "semop": 65,
    "semctl": 66,
    "msgget": 68,
    "msgsnd": 69,
    "msgrcv": 70,
    "msgctl": 71,
    "creat": 85,
    "chmod": 90,
    "fchmod": 91,
    "ptrace": 101,
    "syslog": 103,
    "mknod": 133,
    "setpriority": 141,
    "vhangup": 153,
    "pivot_root": 155,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "sethostname": 170,
    "setdomainname": 171,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "semtimedop": 220,
    "clock_settime": 227,
    "mq_open": 240,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "openat": 257,
    "mknodat": 259,
    "fchmodat": 268,
    "unshare": 272,
    "accept4": 288,
    "perf_event_open": 298,
    "recvmmsg": 299,
    "prlimit64": 302,
    "open_by_handle_at": 304,
    "sendmmsg": 307,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
}

_AARCH64 = {
    "ioctl": 29,
    "mknodat": 33,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "chroot": 51,
    "fchmod": 52,
    "fchmodat": 53,
    "openat": 56,
    "vhangup": 58,
    "quotactl": 60,
    "acct": 89,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "clock_settime": 112,
    "syslog": 116,
    "ptrace": 117,
    "setpriority": 140,
    "reboot": 142,
    "sethostname": 161,
    "setdomainname": 162,
    "settimeofday": 170,
    "mq_open": 180,
    "msgget": 186,
    "msgctl": 187,
    "msgrcv": 188,
    "msgsnd": 189,
    "semget": 190,
    "semctl": 191,
    "semtimedop": 192,
    "semop": 193,
    "shmget": 194,
    "shmctl": 195,
    "shmat": 196,
    "socket": 198,
    "socketpair": 199,
    "bind": 200,
    "listen": 201,
    "accept": 202,
    "connect": 203,
    "getsockname": 204,
    "getpeername": 205,
    "sendto": 206,
    "setsockopt": 208,
    "getsockopt": 209,
    "shutdown": 210,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "clone": 220,
    "swapon": 224,
    "swapoff": 225,
    "perf_event_open": 241,
    "accept4": 242,
    "recvmmsg": 243,
    "prlimit64": 261,
    "open_by_handle_at": 265,
    "setns": 268,
    "sendmmsg": 269,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "finit_module": 273,
    "bpf": 280,
    "userfaultfd": 282,
    "kexec_file_load": 294,
}


class Architecture(Struct, frozen=True, eq=False):
    """One architecture as seccomp sees it: its audit number and its call table."""

    name: str
    audit: int
    calls: dict[str, int]
    x32: bool = False


X86_64 = Architecture("x86_64", 0xC000003E, _X86_64 | _COMMON, x32=True)
AARCH64 = Architecture("aarch64", 0xC00000B7, _AARCH64 | _COMMON)
MACHINES = {machine.name: machine for machine in (X86_64, AARCH64)}


def this_machine() -> Architecture | None:
    """The architecture that this Python runs on, or None when there is no table for it."""
    return MACHINES.get({"arm64": "aarch64", "amd64": "x86_64"}.get(_uname(), _uname()))


def _uname() -> str:
    return platform.machine().lower()
