"""Every rule of the filters: by a small BPF machine for both architectures, and by the kernel."""

from __future__ import annotations

import errno
import json
import os
import platform
import shlex
import struct
import sys
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.sandbox.kernel.bpf import ALLOW, KILL, Assembler
from toolrest.sandbox.kernel.bpf import errno as failing
from toolrest.sandbox.kernel.seccomp import Kind, program
from toolrest.sandbox.kernel.syscalls import AARCH64, MACHINES, X86_64, Architecture

KINDS: tuple[Kind, ...] = ("bubblewrap", "landlock", "landlock-network")
EPERM = failing(errno.EPERM)
FAMILY = failing(errno.EAFNOSUPPORT)
MASK = (1 << 64) - 1


def judge(code: bytes, arch: int, number: int, *arguments: int) -> int:
    """What the kernel's interpreter would return for this call."""
    padded = [value & MASK for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    accumulator = at = 0
    while True:
        op, then, other, value = struct.unpack_from("<HBBI", code, at * 8)
        at += 1
        if op == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif op == 0x54:
            accumulator &= value
        elif op == 0x06:
            return int(value)
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value}
            at += then if test.get(op, bool(accumulator & value)) else other


@pytest.fixture(params=sorted(MACHINES))
def machine(request: pytest.FixtureRequest) -> Architecture:
    return MACHINES[request.param]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


class Judge(Protocol):
    def __call__(self, name: str, *arguments: int) -> int: ...


@pytest.fixture
def call(machine: Architecture, kind: Kind) -> Judge:
    code = program(kind, machine)
    assert code is not None

    def run(name: str, *arguments: int) -> int:
        return judge(code, machine.audit, machine.calls[name], *arguments)

    return run


SHARED = """
io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd keyctl add_key
request_key open_by_handle_at mount umount2 pivot_root chroot open_tree open_tree_attr move_mount
fsopen fsconfig fsmount fspick mount_setattr unshare setns acct clock_settime delete_module
finit_module init_module ioperm iopl kexec_file_load kexec_load quotactl quotactl_fd reboot
setdomainname sethostname settimeofday swapoff swapon syslog vhangup
""".split()
OTHER_PROCESSES = """
ptrace process_vm_readv process_vm_writev shmget shmat shmctl semget semop semctl semtimedop msgget
msgsnd msgrcv msgctl mq_open
""".split()
NETWORK = """
connect accept accept4 bind listen getpeername getsockname shutdown sendmmsg recvmmsg getsockopt
setsockopt
""".split()
ONLY_X86 = {"ioperm", "iopl"}


def test_refused_everywhere(call: Judge, machine: Architecture) -> None:
    assert machine is X86_64 or not ONLY_X86 & machine.calls.keys()
    names = [name for name in SHARED if machine is X86_64 or name not in ONLY_X86]
    assert {name: call(name) for name in names} == dict.fromkeys(names, EPERM)
    assert {name: call(name, MASK, MASK, MASK) for name in names} == dict.fromkeys(names, EPERM)


def test_other_processes(call: Judge, kind: Kind) -> None:
    expected = ALLOW if kind == "bubblewrap" else EPERM
    assert {n: call(n) for n in OTHER_PROCESSES} == dict.fromkeys(OTHER_PROCESSES, expected)


def test_the_network_calls(call: Judge, kind: Kind) -> None:
    expected = EPERM if kind == "landlock" else ALLOW
    assert {name: call(name) for name in NETWORK} == dict.fromkeys(NETWORK, expected)


def test_clone(call: Judge) -> None:
    assert call("clone", 0x01200011) == ALLOW
    assert call("clone", 0x003D0F00) == ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert call("clone", flag | 17) == EPERM
        assert call("clone", (1 << 32) | flag) == EPERM
    assert call("clone3") == failing(errno.ENOSYS)


def test_terminals(call: Judge) -> None:
    assert call("ioctl", 0, 0x5401) == ALLOW
    for request in (0x5412, 0x541C):
        assert call("ioctl", 0, request) == EPERM
        assert call("ioctl", 0, (0xFFFF << 32) | request) == EPERM


@pytest.mark.parametrize("name", ["socket", "socketpair"])
def test_unix_sockets(call: Judge, name: str) -> None:
    for flags in (0, 0o2000000, 0o4000, 0o2004000):
        for kind in (1, 5):
            assert call(name, 1, kind | flags) == ALLOW
        for kind in (2, 3):  # the kernel makes a datagram socket of SOCK_RAW
            assert call(name, 1, kind | flags) == EPERM
            assert call(name, (7 << 32) | 1, kind | flags) == EPERM


@pytest.mark.parametrize("family", [2, 10])
def test_internet_sockets(call: Judge, kind: Kind, family: int) -> None:
    for type_ in (1, 2):
        assert call("socket", family, type_) == (EPERM if kind == "landlock" else ALLOW)
    for type_ in (3, 10, 3 | 0o2000000):
        assert call("socket", family, type_) == EPERM


def test_other_families(call: Judge) -> None:
    for family in (0, 3, 4, 9, 15, 16, 17, 29, 30, 38, 40, 44, 45, 99):
        assert call("socket", family, 1) == FAMILY
        assert call("socket", family, 3) == FAMILY


def test_send_without_an_address(call: Judge, kind: Kind) -> None:
    assert call("sendto", 3, 1, 1, 0, 0, 0) == ALLOW
    refused = EPERM if kind == "landlock" else ALLOW
    assert call("sendto", 3, 1, 1, 0, 0x1000, 16) == refused
    assert call("sendto", 3, 1, 1, 0, 1 << 32, 16) == refused


def test_only_oneself(call: Judge, kind: Kind) -> None:
    other = ALLOW if kind == "bubblewrap" else EPERM
    assert call("prlimit64", 0) == ALLOW
    assert call("prlimit64", 77) == other
    assert call("setpriority", 0, 0) == ALLOW
    assert call("setpriority", 0, 77) == other
    assert call("setpriority", 2, 0) == other


def test_other_doors_kill(machine: Architecture, kind: Kind) -> None:
    code = program(kind, machine)
    assert code is not None
    for other in MACHINES.values():
        if other is not machine:
            assert judge(code, other.audit, 0) == KILL
    assert judge(code, 0x40000003, 102) == KILL  # i386
    assert judge(code, 0x40000028, 281) == KILL  # arm
    if machine.x32:
        assert judge(code, machine.audit, 0x40000000 | 41, 2, 1) == KILL
        assert judge(code, machine.audit, 0xFFFFFFFF) == ALLOW  # cancelled by a tracer


@given(st.integers(0, 0x3FFFFFFF), st.lists(st.integers(0, MASK), min_size=6, max_size=6))
def test_any_other_call_is_allowed(number: int, arguments: list[int]) -> None:
    for machine in (X86_64, AARCH64):
        for kind in KINDS:
            code = program(kind, machine)
            assert code is not None
            verdict = judge(code, machine.audit, number, *arguments)
            if number not in machine.calls.values():
                assert verdict == ALLOW
            else:
                assert verdict in (ALLOW, EPERM, FAMILY, failing(errno.ENOSYS))


def test_the_filter_for_a_kernel_between(machine: Architecture) -> None:
    code = program("set-id", machine, root=True)
    assert code is not None

    def call(name: str, *arguments: int) -> int:
        return judge(code, machine.audit, machine.calls[name], *arguments)

    for name in (*SHARED, "clone3", "socket", "ptrace"):
        if name in machine.calls:
            assert call(name, MASK, MASK, MASK) == ALLOW
    for mode in (0o4755, 0o2755, 0o6000):
        assert call("fchmod", 3, mode) == EPERM
        assert call("fchmodat", 3, 0, mode) == EPERM
        assert call("mknodat", 3, 0, 0o100000 | mode) == EPERM
        assert call("openat", 3, 0, 0o101, mode) == EPERM
    assert call("openat", 3, 0, 0, 0o4755) == ALLOW  # makes nothing
    assert call("fchmod", 3, 0o1777) == ALLOW
    assert call("openat2") == failing(errno.ENOSYS)


def test_programs_are_small_and_made_once() -> None:
    for kind in KINDS:
        code = program(kind, X86_64)
        assert code is not None
        assert len(code) // 8 < 256
        assert program(kind, X86_64) is code


def test_jumps_that_reach_too_far_are_noticed() -> None:
    asm = Assembler()
    asm.equal(1, "end")
    for _ in range(300):
        asm.number()
    asm.label("end")
    asm.verdict(ALLOW)
    with pytest.raises(ValueError, match="spans"):
        asm.assemble()


def test_numbers_agree_with_the_systems_headers() -> None:
    headers = {
        X86_64: "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
        AARCH64: "/usr/include/asm-generic/unistd.h",
    }
    for machine, header in headers.items():
        if not os.path.exists(header):
            continue
        with open(header) as stream:
            words = [line.split() for line in stream if line.startswith("#define __NR")]
        known = {w[1].replace("__NR3264_", "__NR_")[5:]: w[2] for w in words if len(w) > 2}
        for name, number in machine.calls.items():
            assert known.get(name, str(number)) in (str(number), f"__NR3264_{name}"), name


class Person(Protocol):
    def confined(self, *lines: str, **wish: Any) -> list[Any]: ...


ASK_KERNEL = """
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
answers = {}
for name, number, arguments in json.loads(sys.argv[1]):
    pid, status = os.fork(), 0
    if pid == 0:
        ctypes.set_errno(0)
        wide = [ctypes.c_long(a) for a in arguments] + [ctypes.c_long(-1)] * (6 - len(arguments))
        result = libc.syscall(ctypes.c_long(number), *wide)
        os._exit(ctypes.get_errno() if result < 0 else 0)
    _, status = os.waitpid(pid, 0)
    answers[name] = os.waitstatus_to_exitcode(status)
print(json.dumps(answers))
"""


def test_the_kernel_agrees(person: Person, backend: str, python: str) -> None:
    """Each refused call, made for real inside."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return
    refused = list(SHARED)
    if backend == "landlock":
        refused += [*NETWORK, *OTHER_PROCESSES]
    calls: list[tuple[str, int, list[int]]]
    calls = [(name, X86_64.calls[name], []) for name in refused if name in X86_64.calls]
    calls += [("clone3", X86_64.calls["clone3"], []), ("setns", X86_64.calls["setns"], [-1, 0])]
    calls.append(("netlink", X86_64.calls["socket"], [16, 3, 0]))
    line = f"{shlex.quote(python)} -I -c '{ASK_KERNEL}' '{json.dumps(calls)}'"
    (result,) = person.confined(line, backend=backend)
    answers = json.loads(result.text)
    assert answers.pop("clone3") == errno.ENOSYS
    assert answers.pop("netlink") == errno.EAFNOSUPPORT
    assert {name: code for name, code in answers.items() if code != errno.EPERM} == {}
