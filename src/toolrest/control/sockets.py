"""Control sockets in the home: one a session, for this user's own unconfined processes."""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import stat
import struct
import time
from contextlib import suppress

from toolrest.private_files import listen_privately, private_folder

FOLDER = "control"
_ENDING = ".sock"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DEAD_AFTER = 60.0
_CONFINING = ("NoNewPrivs", "Seccomp_filters")
_WAITING = 64
"""Connections that wait while the session is busy: as many as it takes."""
_PEER_PIDFD = 77
"""SO_PEERPIDFD, of Linux 6.5."""


def listen(home: str, session_id: str) -> socket.socket:
    """The listening socket of a session; its last change is when it can be connected to."""
    sweep(home)
    folder = private_folder(home, FOLDER)
    try:
        path = path_of(os.path.realpath(home), session_id)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listen_privately(listening, folder, path, _WAITING)
        os.utime(os.path.basename(path), dir_fd=folder)
    finally:
        os.close(folder)
    return listening


def path_of(home: str, session_id: str) -> str:
    """The path of a session's socket."""
    return os.path.join(home, FOLDER, session_id + _ENDING)


def connect(home: str, session_id: str) -> socket.socket:
    """A connection to a session; ConnectionError or FileNotFoundError when it is not running."""
    if not _ID.fullmatch(session_id):
        raise FileNotFoundError(session_id)
    folder = os.open(os.path.join(home, FOLDER), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # A full queue refuses at once, so a session that hangs holds no one up.
        connection.setblocking(False)
        connection.connect(f"/proc/self/fd/{folder}/{session_id}{_ENDING}")
        if _peer(connection)[1] != os.geteuid():
            raise PermissionError(errno.EPERM, "the session is another user's", session_id)
    except BaseException as error:
        connection.close()
        if isinstance(error, ConnectionRefusedError):
            _remove_dead(path_of(home, session_id))
        raise
    finally:
        os.close(folder)
    return connection


def sessions(home: str) -> list[str]:
    """The ids of sessions that have a socket; one that has crashed may be among them."""
    try:
        names = os.listdir(os.path.join(home, FOLDER))
    except OSError:
        return []
    return [name[: -len(_ENDING)] for name in names if name.endswith(_ENDING) and name[0] != "."]


def sweep(home: str) -> None:
    """Remove the sockets of sessions that have crashed."""
    for session_id in sessions(home):
        with suppress(OSError):
            connect(home, session_id).close()  # which removes one that nobody listens to


def _remove_dead(path: str) -> None:
    """Remove the socket of a session that has crashed, unless it was made just now."""
    with suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISSOCK(found.st_mode) and time.time() - found.st_mtime > _DEAD_AFTER:
            os.unlink(path)


def is_own_peer(connection: socket.socket) -> bool:
    """Whether the other end is a process of this user that is no more confined than this one.

    A sandboxed command is in deeper namespaces, or has given up privileges that we have. It sees
    no socket in the first place; this is the second lock.
    """
    pid, uid = _peer(connection)
    if uid != os.geteuid() or pid <= 0:
        return False
    try:
        peer, own = _status(pid), _status(os.getpid())
        depth = len(peer["NSpid"].split()) == len(own["NSpid"].split())
        free = all(int(peer[name]) <= int(own[name]) for name in _CONFINING)
        # Last: as long as it lives, no other process has had its number.
        return depth and free and _is_alive(connection)
    except (OSError, KeyError, ValueError):
        return False


def _peer(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = struct.unpack("3i", credentials)
    return pid, uid


def _is_alive(connection: socket.socket) -> bool:
    """Whether the process that connected still runs; older kernels do not say it."""
    try:
        pidfd = connection.getsockopt(socket.SOL_SOCKET, _PEER_PIDFD)
    except OSError as error:
        return error.errno == errno.ENOPROTOOPT
    try:
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        return not ended.poll(0)
    finally:
        os.close(pidfd)


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        rows = (line.partition(":") for line in file)
        return {name: value.strip() for name, _, value in rows}
