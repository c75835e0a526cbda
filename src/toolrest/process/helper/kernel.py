"""System calls that the standard library has no name for: prctl, mounts, Landlock, seccomp."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct

_libc = ctypes.CDLL(None, use_errno=True)

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_SET_SECCOMP = 22
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2

_CLOSE_RANGE = 436
_OPEN_AT_2, _NO_LINKS = 437, 4  # RESOLVE_NO_SYMLINKS
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_GET_OWNER = 0xB701  # NS_GET_USERNS
_HERE = -100  # AT_FDCWD
_STATX_BASIC, _STATX_MOUNT = 0x7FF, 0x1000
_STATX = struct.Struct("=I28xQ96xIIQ")  # mask, inode, major and minor of the device, mount
_ITSELF, _BY_FD = 0x100, 0x1000  # AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH
_CLONE, _RECURSIVE = 1, 0x8000
_FROM_FD = 4
_READ_ONLY = 1
_NOSUID_NODEV = 2 | 4
_SLAVES = 0x4000 | 0x80000  # MS_REC, MS_SLAVE
_PRIVATE = 0x4000 | 0x40000  # MS_REC, MS_PRIVATE
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ABI_QUERY = 1
_RULE_PATH_BENEATH = 1
# Every file right that each ABI knows; a right that is handled but not granted is denied.
_FILE_RIGHTS = {
    1: (1 << 13) - 1,
    2: (1 << 14) - 1,
    3: (1 << 15) - 1,
    5: (1 << 16) - 1,
    9: (1 << 17) - 1,
}
# execute, write, read, truncate and ioctl are all that a rule on a single file may carry.
_RIGHTS_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_NET_ABI, _NET_RIGHTS = 4, 0b11
_SCOPE_ABI = 6


Linked = tuple[tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]], ...]
"""Folders, the folders and the links in each that must stay where they are."""


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_fs", ctypes.c_uint64),
        ("handled_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _prctl(option: int, *arguments: int) -> None:
    padded = (*arguments, 0, 0, 0, 0)[:4]
    _checked(_libc.prctl(option, *(ctypes.c_ulong(value) for value in padded)))


def close_from(first: int) -> None:
    """Close every descriptor from this number on."""
    if _libc.syscall(_CLOSE_RANGE, first, ctypes.c_uint(0xFFFFFFFF), 0) == 0:
        return
    for name in os.listdir("/proc/self/fd"):
        if int(name) >= first:
            try:
                os.close(int(name))
            except OSError:
                continue


def become_subreaper() -> None:
    """Make orphans below this process its children instead of init's."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Keep other processes of this user from tracing this one or reading its memory."""
    _prctl(_SET_DUMPABLE, 0)


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send this signal when the parent ends."""
    _prctl(_SET_PDEATHSIG, signal_number)


def hold_links(linked: Linked, copies: bytes) -> None:
    """In a mount namespace of our own, show each folder a second time with its links held fast.

    On each link there is a mount of the link itself: the command sees it unchanged and cannot
    remove, replace or rename it. The same for parent folders. The mounts have the flags that
    bubblewrap would set: bubblewrap does so by path, and would follow the link. A second copy,
    since a folder with mounts in it cannot be a layer of bubblewrap's overlays.
    """
    _leave_mounts()
    _mount(b"tmpfs", copies, b"tmpfs", _NOSUID_NODEV)
    for number, (whole, folders, links) in enumerate(linked):
        copy = b"%s/%d" % (copies, number)
        os.mkdir(copy, 0o700)
        _show_again(whole, copy, _RECURSIVE, 0)
        base = whole.rstrip(b"/")
        for path in folders:
            place = copy + path.removeprefix(base)
            _show_again(place, place, _ITSELF | _RECURSIVE, _NOSUID_NODEV)
        for path in links:
            place = copy + path.removeprefix(base)
            _show_again(place, place, _ITSELF, _READ_ONLY | _NOSUID_NODEV)


def _show_again(source: bytes, target: bytes, how: int, flags: int) -> None:
    fd = _checked(_libc.syscall(_OPEN_TREE, _HERE, source, _CLONE | os.O_CLOEXEC | how))
    try:
        if flags:
            attributes = (ctypes.c_uint64 * 4)(flags)
            size = ctypes.c_size_t(ctypes.sizeof(attributes))
            _checked(_libc.syscall(_MOUNT_SETATTR, fd, b"", _BY_FD, attributes, size))
        _checked(_libc.syscall(_MOVE_MOUNT, fd, b"", _HERE, target, _FROM_FD))
    finally:
        os.close(fd)


def _mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int) -> None:
    _checked(_libc.mount(source, target, kind, ctypes.c_ulong(flags), None))


def _leave_mounts() -> None:
    """Enter a mount namespace of our own, with a user namespace where that is needed for it."""
    if _libc.unshare(_NEW_MOUNTS) != 0:
        user, group = os.geteuid(), os.getegid()
        _prctl(_SET_DUMPABLE, 1)  # else we may not write the maps
        _checked(_libc.unshare(_NEW_MOUNTS | _NEW_USER))
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, text.encode())
            os.close(fd)
    _mount(None, b"/", None, _SLAVES)


def enter_mounts(pid: int) -> None:
    """Go into the mount namespace of a process of this user, with the rights of its owner."""
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(mounts, _GET_OWNER)
    _checked(_libc.setns(owner, _NEW_USER))
    _checked(_libc.setns(mounts, _NEW_MOUNTS))


def keep_apart() -> None:
    """Let nothing that is mounted elsewhere from now on appear in this mount namespace."""
    _mount(None, b"/", None, _PRIVATE)


def show_at(source: bytes, target: bytes) -> None:
    """Mount what is at one path on another; the flags are those of the source."""
    _show_again(source, target, _ITSELF | _RECURSIVE, 0)


def identity(path: bytes) -> tuple[int, int, int]:
    """Device, inode and the number of the mount of what is at a path; a link is not followed."""
    status = ctypes.create_string_buffer(256)
    mask = ctypes.c_uint(_STATX_BASIC | _STATX_MOUNT)
    _checked(_libc.statx(_HERE, path, _ITSELF, mask, status))
    found, inode, major, minor, mount = _STATX.unpack_from(status)
    if not found & _STATX_MOUNT:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return os.makedev(major, minor), inode, mount


def no_new_privileges() -> None:
    """Set no_new_privs: no later exec gains privileges; Landlock and seccomp need it."""
    _prctl(_SET_NO_NEW_PRIVS, 1)


def install_seccomp(program: bytes) -> None:
    """Install a BPF program that filters every later system call."""
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_ = _Program(len(program) // 8, ctypes.addressof(buffer))
    _prctl(_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filter_))


def landlock_abi() -> int:
    """Version of Landlock in this kernel; raises OSError where there is none."""
    return _checked(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ABI_QUERY))


def landlock(rules: tuple[tuple[bytes, int], ...] | None, net: bool, scoped: int) -> None:
    """Confine this process with Landlock: deny every file right that `rules` do not grant.

    With `rules` None files are not confined; only `net` and `scoped` apply.
    """
    abi = landlock_abi()
    handled = 0
    if rules is not None:
        handled = max(mask for since, mask in _FILE_RIGHTS.items() if since <= abi)
    elif abi < _SCOPE_ABI:
        return
    attributes = _Ruleset(
        handled,
        _NET_RIGHTS if net and abi >= _NET_ABI else 0,
        scoped if abi >= _SCOPE_ABI else 0,
    )
    # Older kernels take the longer structure as long as the fields they lack are zero.
    ruleset = _checked(
        _libc.syscall(
            _CREATE_RULESET,
            ctypes.byref(attributes),
            ctypes.c_size_t(ctypes.sizeof(attributes)),
            0,
        )
    )
    for path, mask in rules or ():
        _allow(ruleset, path, mask & handled)
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _open_itself(path: bytes) -> int:
    """Open a path on which there is no link: one that a command put there could lead anywhere."""
    how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, _NO_LINKS)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    return _checked(_libc.syscall(_OPEN_AT_2, _HERE, path, ctypes.byref(how), size))


def _allow(ruleset: int, path: bytes, mask: int) -> None:
    try:
        parent = _open_itself(path)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return  # nothing can be granted beneath a path that is not there, or is another
        raise
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            mask &= _RIGHTS_OF_FILES
        if mask:
            rule = _PathBeneath(mask, parent)
            _checked(_libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(parent)
