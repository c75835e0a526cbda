"""The command to start: everything about one child that is decided before it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import fsencode

from msgspec import Struct

from toolrest.process.helper import wire

Linked = tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
"""Folders, the folders and the links in each that must stay where they are."""


class ViewCheck(Struct, frozen=True):
    """The mounts that a child must find in its namespace: no others, and each what it should be.

    `places` are paths with a mount, what it must be (`wire.SAME` and so on), and device and inode
    on the host. `points` are other paths that may have a mount, with a closing slash all beneath,
    and `free` those of them where it may be writable.
    """

    places: tuple[tuple[str, int, int, int], ...]
    points: tuple[str, ...] = ()
    free: tuple[str, ...] = ()

    def as_bytes(self) -> wire.Check:
        """The same for the request."""
        return (
            tuple((fsencode(at), kind, device, inode) for at, kind, device, inode in self.places),
            tuple(map(fsencode, self.points)),
            tuple(map(fsencode, self.free)),
        )


def copy_of(number: int) -> str:
    """Path at which a child finds the second copy of the number-th folder of `linked`."""
    return f"{wire.COPIES}/{number}"


class Command(Struct, frozen=True):
    """One child process, as the sandbox room hands it to the process room.

    `argv[0]` is a path, or a name that is looked up in the absolute entries of `env`'s PATH.
    `files` become sealed in-memory files and `fds` are handed over as they are; both name the
    descriptor that the child sees. Every other descriptor is closed.

    The child's last steps before exec are the limits (never above what the host itself has),
    no_new_privs, Landlock and seccomp; one that the kernel refuses means that the child never
    runs. Landlock handles, and so denies, every file right that the kernel knows but for those
    that `landlock` grants per path; paths that do not exist are skipped, since nothing can be
    granted beneath them, and rights that a kernel or a plain file does not know are left out.

    `linked` are folders with folders and symbolic links in them that must stay where they are. In
    a mount namespace of its own the child finds each a second time, at `copy_of`, and a mount on
    each of those in it there: none can be removed or replaced through that copy.

    `masks` are mounts to make in the child's own mount namespace, outer ones first: a path, and the
    path of what is shown there ("" for itself). They are made when the child writes to descriptor
    `wire.MASKS_FD`, and it reads a line from there when all are made; else it is ended.

    With `apart` nothing that the host mounts once the masks are made appears in that namespace,
    nor in those that the child makes. Without, that is seen to a moment later.

    `check` is looked at after the masks and before the command: what runs elsewhere could have
    bent the child's namespace while it was made. Where it did, the command is not run.

    `held` are descriptors that stay open until the whole tree has ended, whatever becomes of this
    process: for the locks on them. The child does not see them.

    With `own_pid_namespace` the first process is a launcher whose death ends the tree: signals
    meant for the command are not sent to it.

    `ready` is called once the child was sent to the helper, for work that can be done beside its
    start; the child waits for that work by its own means. If `ready` raises, the child is killed.

    `approved` are protected names that somebody let this command write.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    tty: bool = False
    rows: int = 24
    cols: int = 80
    files: tuple[tuple[int, bytes], ...] = ()
    fds: tuple[tuple[int, int], ...] = ()
    landlock: tuple[tuple[str, int], ...] | None = None
    landlock_net: bool = False
    landlock_scoped: int = 0
    seccomp: bytes | None = None
    limits: tuple[tuple[int, int, int], ...] = ()
    linked: Linked = ()
    masks: tuple[tuple[str, str], ...] = ()
    apart: bool = False
    check: ViewCheck | None = None
    held: tuple[int, ...] = ()
    own_pid_namespace: bool = False
    ready: Callable[[], None] | None = None
    approved: tuple[str, ...] = ()

    def linked_bytes(self) -> tuple[tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]], ...]:
        """`linked` as bytes, for the request."""
        return tuple(
            (fsencode(folder), tuple(map(fsencode, folders)), tuple(map(fsencode, links)))
            for folder, folders, links in self.linked
        )
