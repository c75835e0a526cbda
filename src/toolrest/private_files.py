"""Private files and folders that no other user can read, predict or redirect; hashes and locks.

Everything goes through directory descriptors: a name is created exclusively and never through
a symlink, so what another user plants in a shared place is refused, not followed. A lock marks a
file that a process works on, and ends with the process.

Placeholders: while a sandboxed command runs, an entry of ours stands for each protected name that
a project lacks (`sandbox/guard`). Its time of change tells it from what the user has made.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import subprocess

from toolrest.errors import os_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket as Socket  # noqa: N812

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LONGEST_SOCKET = 107
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_private(path: str) -> None:
    """Make a folder and what is missing above it, each 0700 whatever the umask is."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.lexists(parent):
        make_private(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    else:
        os.chmod(path, 0o700)


def private_folder(base: str, *names: str) -> int:
    """Open `base/names…` as a descriptor, making what is missing; each name is 0700 and ours.

    A folder that belongs neither to us nor to the owner of `base` is refused (OSError).
    """
    make_private(base)
    folder = os.open(base, _FOLDER)
    try:
        trusted = {os.geteuid(), os.fstat(folder).st_uid}
        for name in names:
            inner = _claimed(folder, name, trusted)
            os.close(folder)
            folder = inner
    except BaseException:
        os.close(folder)
        raise
    return folder


def private_file(folder: int, name: str, *, append: bool = False) -> int:
    """Create a 0600 file that did not exist, inside an open folder."""
    flags = _NEW_FILE | os.O_APPEND if append else _NEW_FILE
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    os.fchmod(descriptor, 0o600)
    return descriptor


def regular_file(path: str, flags: int) -> int:
    """The `opener` of `open` for files that are to be read: it waits for nothing.

    A FIFO or a device in the place of a file is an OSError.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "it is no regular file", path)


def own_file(folder: int, name: str, *, append: bool = False) -> int:
    """Open a file that only we can write, inside an open folder; one that is missing is made."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags | (os.O_APPEND if append else 0), 0o600, dir_fd=folder)
    status = os.fstat(descriptor)
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or others:
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "it is no file that only you can write", name)
    return descriptor


def listen_privately(listening: Socket, folder: int, path: str, waiting: int) -> Socket:
    """Let a unix socket listen as a 0600 name in an open folder, instead of what is there.

    The kernel lists it by the name that it is bound to, and sandboxes of all sessions mask what is
    listed. A name of more than 107 bytes cannot be bound to; it goes through the descriptor.
    """
    name = os.path.basename(path)
    with contextlib.suppress(FileNotFoundError):  # of an earlier process
        os.unlink(name, dir_fd=folder)
    try:
        is_long = len(os.fsencode(path)) > _LONGEST_SOCKET
        listening.bind(f"/proc/self/fd/{folder}/{name}" if is_long else path)
        os.chmod(name, 0o600, dir_fd=folder)
        listening.listen(waiting)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, or raise OSError."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def remove_tree(folder: str) -> None:
    """Remove a folder that commands wrote to, as far as that can be done."""
    # It loads every kind of compression.
    import shutil

    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # there are more folders in each other than Python can follow
        argv = ["/bin/rm", "-rf", "--", folder]
        subprocess.run(argv, stderr=subprocess.DEVNULL, check=False)


reason = os_words


def _claimed(parent: int, name: str, trusted: set[int]) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    status = os.fstat(folder)
    try:
        if status.st_uid not in trusted:
            raise PermissionError(errno.EPERM, "the folder belongs to another user", name)
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(folder, 0o700)
    except BaseException:
        os.close(folder)
        raise
    return folder


_CHUNK = 1 << 20


NOT_HASHED = "(not hashed)"


def hash_file(path: str, most: int | None = None) -> str | None:
    """SHA-256 of a regular file's content; None when there is none or it cannot be read.

    With `most`, a larger file gets `NOT_HASHED` instead.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        if most is not None and status.st_size > most:
            return NOT_HASHED
        digest = hashlib.sha256()
        while chunk := os.read(fd, _CHUNK):
            digest.update(chunk)
        return digest.hexdigest()
    except OSError:
        return None
    finally:
        os.close(fd)


def is_first_time(home: str, text: str) -> bool:
    """Return True the first time a home is asked about this text, and record that."""
    name = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    try:
        folder = private_folder(home, "told")
    except OSError:
        return True
    try:
        file = private_file(folder, name)
    except FileExistsError:
        return False
    except OSError:
        return True
    finally:
        os.close(folder)
    with contextlib.suppress(OSError):  # only the file's name counts; its content is for people
        write_all(file, text.encode("utf-8", "surrogatepass") + b"\n")
    os.close(file)
    return True


def is_locked(path: str) -> bool:
    """Whether a process holds a lock on this file; OSError when it cannot be opened."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


_SECOND = 10**9
_FIRST_TIME = 1_000_000_000
PLACEHOLDER_TIMES = 1 << 20
"""The number of times of change that mean a placeholder; each home has one of them."""


def placeholder_time(number: int) -> int:
    """The number-th time of change of placeholders, in ns.

    In whole seconds, and an even number of them, which every file system can store.
    """
    return (_FIRST_TIME + 2 * number) * _SECOND


def is_placeholder(path: str) -> bool:
    """Whether a placeholder of any session's sandbox is at this path, unchanged since."""
    try:
        return is_placeholder_entry(path, os.lstat(path))
    except OSError:
        return False


def is_placeholder_entry(path: str, info: os.stat_result) -> bool:
    """`is_placeholder` for an entry whose status is known."""
    number, odd = divmod(info.st_mtime_ns - _FIRST_TIME * _SECOND, 2 * _SECOND)
    if odd or not 0 <= number < PLACEHOLDER_TIMES:
        return False
    return not os.listdir(path) if stat.S_ISDIR(info.st_mode) else info.st_size == 0


def project_has(path: str) -> bool:
    """Whether an entry is there that is the user's, and not a placeholder."""
    return os.path.lexists(path) and not is_placeholder(path)
