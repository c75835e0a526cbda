"""The protocol of host and helper: short records of integers over packet sockets.

The host sends a command to the owner's socket as a marshalled `Request`, in the packet or, when
it is long, in a memory file. With it go descriptors: the command's own socket, that file if any,
then whatever the child shall see. From there on host and keeper talk over the command's own socket.
"""

from __future__ import annotations

import struct

# keeper → host
STARTED = 1  # pid of the command, pid of its keeper
FAILED = 2  # index into STEPS, errno
EXITED = 3  # wait status, the two pids again, 1 if nothing is left of the tree, else what is
SURVIVORS = 4  # pids that a kill could not end in time (none: the tree is gone)

# host → keeper
KILL = 1  # milliseconds between SIGTERM and SIGKILL
SIGNAL = 2  # signal number, for the command's process group

# One byte per keeper, in memory that all of them share
FREE, IDLE, BUSY = b"\0", b"i", b"b"

STEPS = (
    "fork",
    "session",
    "descriptors",
    "terminal",
    "links",
    "workdir",
    "limits",
    "no_new_privs",
    "landlock",
    "seccomp",
    "exec",
)
"""Steps of a child between fork and exec, in order; a failure names its step."""

COPIES = "/dev/shm"  # noqa: S108 - a place to mount on, in a namespace of one's own
"""Folder of the numbered copies of `linked` folders; every Linux has it, no sandbox shows it."""

MASKS_FD = 9
"""Where a child says that its namespace is ready for masks; a shell knows descriptors up to 9."""

Check = tuple[tuple[tuple[bytes, int, int, int], ...], tuple[bytes, ...], tuple[bytes, ...]]
"""What `command.ViewCheck` says, in bytes."""

SAME, SAME_READ_ONLY, COVERED, OPEN, CLOSED = range(5)
"""What a mount must be: the host's own, that but read-only, something else that is read-only,
anything, anything that is read-only."""

CHANGED = (
    b"toolrest: nothing was run: what the command may see was changed while it was starting;"
    b" call again"
)
"""Sent instead of an empty line when the masks are made and the check found something else."""

NULL = -1
"""In a request's descriptor plan: the null device instead of a descriptor that was sent."""

SOCKET_FD = 3
"""Descriptor of the owner's socket."""

INLINE = 32_768
"""Longest request that travels in the packet itself."""

ELSEWHERE = b"m"
"""Sent instead of a request that is in the memory file sent along."""

MAX_FDS = 240
"""Most descriptors that one message carries (the kernel takes 253)."""

_MOST = 4000


def pack(*numbers: int) -> bytes:
    """One record; what does not fit into a packet is left out at the end."""
    numbers = numbers[:_MOST]
    return struct.pack(f"<{len(numbers)}i", *numbers)


def unpack(record: bytes) -> tuple[int, ...]:
    """The integers of one record."""
    return struct.unpack(f"<{len(record) // 4}i", record[: len(record) // 4 * 4])
