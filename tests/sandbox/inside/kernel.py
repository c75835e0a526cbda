"""Probes about kernel interfaces: namespaces, mounts, /proc/sys, devices, wide system calls."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct

from .kit import Context, NotHere, checked, libc, probe, syscall

X86 = os.uname().machine == "x86_64"
NEWNS, NEWUSER = 0x20000, 0x10000000
UNSHARE = 272 if X86 else 97
NAME_TO_HANDLE, OPEN_BY_HANDLE = (303, 304) if X86 else (264, 265)
BPF = 321 if X86 else 280
PERF = 298 if X86 else 241
ADD_KEY = 248 if X86 else 217
USERFAULTFD = 323 if X86 else 282
FINIT_MODULE = 313 if X86 else 273
IO_URING_SETUP = 425
MS_REMOUNT, MS_BIND = 32, 4096


def mount(source: str, target: str, kind: str | None, flags: int = 0) -> None:
    kind_bytes = kind.encode() if kind else None
    checked(libc.mount(source.encode(), target.encode(), kind_bytes, ctypes.c_ulong(flags), None))


def new_world() -> None:
    """A user and mount namespace in which this process is root."""
    uid, gid = os.getuid(), os.getgid()
    syscall(UNSHARE, NEWUSER | NEWNS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as stream:
            stream.write(text)


@probe("deny")
def unshare_userns(c: Context) -> None:
    syscall(UNSHARE, NEWUSER)


@probe("deny")
def unshare_mntns(c: Context) -> None:
    syscall(UNSHARE, NEWNS)


@probe("deny")
def mount_tmpfs(c: Context) -> None:
    os.makedirs(c["ws"] + "/mnt", exist_ok=True)
    mount("none", c["ws"] + "/mnt", "tmpfs")


@probe("deny")
def userns_remount_rw(c: Context) -> None:
    new_world()
    mount("none", "/", None, MS_REMOUNT | MS_BIND)
    os.close(os.open(c["outside"] + "/remounted", os.O_WRONLY | os.O_CREAT, 0o600))


@probe("deny")
def userns_umount_mask(c: Context) -> None:
    new_world()
    for path in ("/.git/hooks", "/.git"):
        libc.umount2((c["ws"] + path).encode(), 2)
    os.close(os.open(c["ws"] + "/.git/hooks/unmasked", os.O_WRONLY | os.O_CREAT, 0o700))


@probe("deny")
def chroot_ws(c: Context) -> None:
    os.chroot(c["ws"])


@probe("deny")
def sethostname(c: Context) -> None:
    name = os.uname().nodename.encode()
    checked(libc.sethostname(name, len(name)))


@probe("deny")
def open_by_handle(c: Context) -> None:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount_id = ctypes.c_int()
    folder = os.open(c["outside"], os.O_RDONLY)
    syscall(NAME_TO_HANDLE, folder, b"", handle, ctypes.byref(mount_id), 0x1000)
    syscall(OPEN_BY_HANDLE, folder, handle, os.O_RDONLY)


def open_for_writing(path: str) -> None:
    try:
        os.close(os.open(path, os.O_WRONLY))
    except FileNotFoundError:
        raise NotHere(f"no {path}") from None


@probe("deny")
def open_w_proc_sys(c: Context) -> None:
    open_for_writing("/proc/sys/kernel/domainname")


@probe("deny")
def open_w_core_pattern(c: Context) -> None:
    open_for_writing("/proc/sys/kernel/core_pattern")


@probe("deny")
def open_w_sysrq(c: Context) -> None:
    open_for_writing("/proc/sysrq-trigger")


@probe("deny")
def open_w_sys_thp(c: Context) -> None:
    open_for_writing("/sys/kernel/mm/transparent_hugepage/enabled")


@probe("deny")
def open_w_cgroup_procs(c: Context) -> None:
    for path in ("/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"):
        if os.path.exists(path):
            return open_for_writing(path)
    raise NotHere("no cgroup mount")


@probe("deny")
def rewrite_proc_sys(c: Context) -> None:
    with open("/proc/sys/kernel/domainname") as stream:
        value = stream.read()
    with open("/proc/sys/kernel/domainname", "w") as stream:
        stream.write(value)


@probe("deny")
def io_uring(c: Context) -> None:
    syscall(IO_URING_SETUP, 2, ctypes.create_string_buffer(120))


@probe("deny")
def x32_socket(c: Context) -> None:
    if not X86:
        raise NotHere("not x86")
    try:
        syscall(0x40000000 | 41, 2, 1, 0)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise NotHere("no x32") from None
        raise


@probe("deny")
def i386_socket(c: Context) -> None:
    if not X86:
        raise NotHere("not x86")
    code = bytes.fromhex("53b867010000bb02000000b90100000031d2cd805bc3")
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if result < 0:
        raise OSError(-result, os.strerror(-result))


@probe("deny")
def bpf(c: Context) -> None:
    syscall(BPF, 0, ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1) + bytes(112)), 128)


@probe("deny")
def perf_event(c: Context) -> None:
    attributes = ctypes.create_string_buffer(struct.pack("II", 1, 112) + bytes(104))
    syscall(PERF, attributes, 0, -1, -1, 0)


@probe("deny")
def keyctl(c: Context) -> None:
    syscall(ADD_KEY, b"user", b"toolrest-probe", b"x", 1, -2)


@probe("deny")
def userfaultfd(c: Context) -> None:
    syscall(USERFAULTFD, 0)


@probe("info")
def userfaultfd_user(c: Context) -> None:
    syscall(USERFAULTFD, 1)


@probe("deny")
def finit_module(c: Context) -> str | None:
    try:
        syscall(FINIT_MODULE, -1, b"", 0)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise NotHere("no modules") from None
        return errno.errorcode[error.errno or 0] if error.errno == errno.EPERM else None
    return None


def open_device(name: str) -> None:
    try:
        os.close(os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):
            raise NotHere("no such device") from None
        raise


@probe("deny")
def dev_sda(c: Context) -> None:
    open_device("sda")


@probe("deny")
def dev_vda(c: Context) -> None:
    open_device("vda")


@probe("deny")
def dev_kvm(c: Context) -> None:
    open_device("kvm")


@probe("deny")
def dev_mem(c: Context) -> None:
    open_device("mem")


@probe("deny")
def dev_kmsg(c: Context) -> None:
    open_device("kmsg")


@probe("deny")
def dev_fuse(c: Context) -> None:
    open_device("fuse")


@probe("deny")
def dev_loop_control(c: Context) -> None:
    open_device("loop-control")


@probe("deny")
def dev_net_tun(c: Context) -> None:
    open_device("net/tun")


@probe("deny")
def dev_vsock(c: Context) -> None:
    open_device("vsock")


@probe("deny")
def dev_console(c: Context) -> None:
    open_device("console")
