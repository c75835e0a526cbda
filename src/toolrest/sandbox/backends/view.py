"""The view of a confined command: its mounts, as data.

Every path has at most one mount; parents come before children, so the innermost one counts. A
command can rename any folder in a writable root that is not itself a mount point, and with it
whatever is mounted further in; so each folder between a root and a mount inside it becomes a
mount point too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from copy import copy as duplicate
from enum import IntEnum

from msgspec import Struct

from toolrest.policy.paths.links import Links
from toolrest.policy.paths.names import inside
from toolrest.private_files import is_placeholder_entry
from toolrest.process.command import copy_of
from toolrest.process.helper import wire
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.guard.changes import kind_of
from toolrest.sandbox.guard.git_dirs import GitPlan
from toolrest.sandbox.guard.placeholders import UNLISTED
from toolrest.sandbox.policy import SandboxPolicy


class Show(IntEnum):
    """How a path is shown; of two wishes for the same path the greater wins."""

    OVERLAY = 0
    PARENT_OF_MOUNT = 1
    """A folder that only leads to mounts further in."""
    SCRATCH = 2
    """A new folder in memory, writable, gone with the command."""
    WRITE = 3
    PRIVATE = 4
    """Another folder in its place, writable."""
    LINK = 5
    READ = 6
    EMPTY_READ_ONLY = 7
    """An empty folder or file to which nothing can be written; a folder is the cheapest mount."""
    HIDE = 8
    ROOT = 9
    """Writable by the user's settings; nothing on this very path overrules that."""


class Mount(Struct, frozen=True):
    """One path and what is there instead of the bare host."""

    path: str
    show: Show
    source: str = ""
    folder: bool = True


TMP = "/tmp"  # noqa: S108
VAR_TMP = "/var/tmp"  # noqa: S108
RUN = "/run"
_DEEPEST = 120
"""Mounts in each other take bubblewrap longer and longer."""
_MANY = 16
"""So many hidden files in the roots are not left to bubblewrap."""
_WRITABLE = (Show.ROOT, Show.WRITE)
BINDS = (*_WRITABLE, Show.READ)
"""What shows the host's own files."""
_REPLACED = (Show.PRIVATE, Show.SCRATCH, Show.PARENT_OF_MOUNT, Show.HIDE)
_DEAF = (*_REPLACED, Show.OVERLAY)
_UNSEEN_OVERLAY = (*_WRITABLE, *_REPLACED)
"""An overlay inside of these would show what is replaced, or close what is writable."""
_RUN_KEPT = ("/run/current-system", "/run/booted-system", "/run/opengl-driver", "/run/wrappers")
"""Where NixOS and Guix keep the programs themselves."""


class View:
    """Collects wishes and settles them."""

    def __init__(
        self, policy: SandboxPolicy, *, may_mask: bool = False, other_user: bool = False
    ) -> None:
        self.policy = policy
        self._other_user = other_user
        self._may_mask = may_mask
        self._mounts: dict[str, Mount] = {}
        self._linked: dict[str, list[str]] = {}
        self._passed: tuple[str, ...] = ()
        self.pinned: set[str] = set()
        """Folders that a mount in the copy keeps where they are, once the view is settled."""
        self.masks: dict[str, str] = {}
        """Mounts that bubblewrap does not make, once the view is settled; see `Command.masks`."""
        for root in policy.roots:
            self.put(root, Show.ROOT)

    def put(self, path: str, show: Show, source: str = "", *, folder: bool = True) -> None:
        """Wish for a mount; a stronger wish for the same path stays."""
        held = self._mounts.get(path)
        if held is None or held.show < show:
            self._mounts[path] = Mount(path, show, source, folder)

    def private_places(self, tmp: str, kept: Iterable[str] = ()) -> None:
        """`/tmp` and `/run` of its own; host sockets and other sessions' files live there.

        What is in `kept` can be read all the same: the Python that Toolrest itself runs on, when
        it is installed there.
        """
        if self.policy.tmp == "private":
            if os.path.realpath(TMP) == TMP:
                self.put(TMP, Show.PRIVATE, tmp)
            if os.path.realpath(VAR_TMP) == VAR_TMP and os.path.isdir(VAR_TMP):
                self.put(VAR_TMP, Show.SCRATCH)
        if os.path.realpath(RUN) == RUN and os.path.isdir(RUN):
            self.put(RUN, Show.SCRATCH)
            for path in (*_RUN_KEPT, *self._resolver()):
                self._keep(path)
        for path in kept:
            if any(inside(path, place) for place in (TMP, VAR_TMP, RUN) if place in self._mounts):
                self._keep(path)

    def _resolver(self) -> Iterable[str]:
        """Name resolution often goes through a file in /run; only of use with a network."""
        real = os.path.realpath("/etc/resolv.conf")
        return [real] if self.policy.network == "on" and inside(real, RUN) else []

    def _keep(self, path: str) -> None:
        if os.path.islink(path):
            self.put(path, Show.LINK, os.readlink(path))
        elif os.path.exists(path):
            self.put(path, Show.READ, folder=os.path.isdir(path))

    def git(
        self, plans: Sequence[GitPlan], present: Iterable[str], excludes: Mapping[str, str]
    ) -> None:
        """Git folders are writable but for the parts that make git run something.

        `excludes` are copies with what git does not list, by where they are shown.
        """
        for path, copy in excludes.items():
            self.put(path, Show.READ, copy, folder=os.path.isdir(copy))
        for plan in plans:
            for path in (*plan.writable, *plan.pinned):
                self.put(path, Show.WRITE)
            for path in plan.read_only:
                self._read_only(path)
        for path in present:
            if path not in excludes:
                self._placeholder(path)

    def _placeholder(self, path: str) -> None:
        """A name that must stay missing; what is ours there is an empty folder, or a file."""
        if os.path.isdir(path) and os.path.realpath(path) == path and not os.listdir(path):
            self.put(path, Show.EMPTY_READ_ONLY)
        else:
            self._read_only(path)

    def read_only(self, paths: Iterable[str]) -> None:
        """Protected entries that exist; a link is protected at what it points to."""
        for path in paths:
            real = os.path.realpath(path)
            if real == path or self.policy.in_root(real):
                self._read_only(real)

    def hold(self, linked: dict[str, list[str]], links: Links) -> None:
        """Links that stay where they are, as must the folders on their way and their ends.

        Those in each key of `linked` are in a copy of it, from which all in it is shown.
        """
        self._linked = linked
        self._passed = links.passed
        for end in links.ends:
            self._read_only(end)

    def _read_only(self, path: str) -> None:
        info = _lstat(path)
        # A link that leads back to itself is its own real path.
        if info is None or stat.S_ISLNK(info.st_mode) or os.path.realpath(path) != path:
            return
        if os.path.basename(path) in UNLISTED and is_placeholder_entry(path, info):  # any session's
            self.put(path, Show.EMPTY_READ_ONLY, folder=False)
        else:
            self.put(path, Show.READ, folder=stat.S_ISDIR(info.st_mode))

    def hide(self, paths: Iterable[str]) -> None:
        """Mask places that may not be read. What does not exist needs no mask."""
        for path in paths:
            info = _lstat(path)
            if path == "/" or info is None or stat.S_ISLNK(info.st_mode):
                continue  # nothing is mounted on `/`, so nothing in it would be hidden
            if self.policy.in_root(path) and os.path.realpath(path) != path:
                continue
            if self._is_closed(path, info):
                continue
            self.put(path, Show.HIDE, folder=stat.S_ISDIR(info.st_mode))

    def _is_closed(self, path: str, info: os.stat_result) -> bool:
        """Whether this user cannot read it anyway, nor change that."""
        if self._other_user or info.st_uid == os.geteuid():
            return False
        return not os.access(path, os.R_OK)

    def overlay(self, paths: Iterable[str]) -> None:
        """Folders whose sockets must not answer."""
        for path in paths:
            self.put(path, Show.OVERLAY)

    def mask_sockets(
        self, paths: Iterable[str], kept: Sequence[str] = (), *, own_root: bool = False
    ) -> None:
        """Sockets that can still be reached through what is shown so far.

        With `own_root` nothing of the host is shown but by a mount.
        """
        for path in paths:
            real = os.path.realpath(path)
            holder = self._holder(real)
            deaf = own_root if holder is None else holder.show in _DEAF
            if real not in kept and not deaf and _is_socket(real):
                self.put(real, Show.HIDE, folder=False)

    def mask_sockets_below(self, rootfs: str, paths: Iterable[str]) -> None:
        """Sockets in a folder that is shown as `/`, where no mount is in its place.

        A service that was started in that folder opens them by the names they have inside.
        """
        for path in paths:
            real = os.path.realpath(path if inside(path, rootfs) else rootfs + path)
            inner = real.removeprefix(rootfs)
            if inside(real, rootfs) and self._holder(inner) is None and _is_socket(real):
                self.put(inner, Show.HIDE, folder=False)

    def shown(self) -> tuple[tuple[str, Show], ...]:
        """The paths that are not as on the host, and how they are shown; an empty one is read."""
        return tuple(
            (path, Show.READ if mount.show == Show.EMPTY_READ_ONLY else mount.show)
            for path, mount in sorted(self._mounts.items())
            if mount.show != Show.OVERLAY
        )

    def settle(self) -> list[Mount]:
        """The mounts in the order in which to make them, ancestors of inner ones pinned."""
        self._drop_unseen()
        many = self._take_many()
        held = (link for links in self._linked.values() for link in links)
        passed = (os.path.join(folder, ".") for folder in self._passed)
        for path in (*self._mounts, *held, *passed):
            self._pin(path)
        self._check()
        self._mask(many)
        return self.in_order()

    def settled(self) -> Mapping[str, Mount]:
        """All mounts by their paths, once they are settled."""
        return self._mounts

    def with_mounts(self, mounts: dict[str, Mount], masks: dict[str, str]) -> View:
        """A copy with other mounts and masks, of which `in_order` gives the order."""
        other = duplicate(self)
        other._mounts, other.masks = mounts, masks
        return other

    def is_writable(self, path: str) -> bool:
        """Whether what is at a path could be replaced by a command, were it not mounted on."""
        return self._is_under(path, _WRITABLE)

    def can_overlay(self, path: str) -> bool:
        """Whether an overlay shows no more than the view, and closes nothing that is writable."""
        return not self._is_under(path, _UNSEEN_OVERLAY)

    def _is_under(self, path: str, kinds: Sequence[Show]) -> bool:
        holder = self._holder(path)
        return holder is not None and holder.show in kinds

    def in_order(self) -> list[Mount]:
        """The settled mounts in the order in which to make them."""
        order = sorted(self._mounts, key=lambda path: path.split("/"))
        return [self._from_copy(self._mounts[path]) for path in order]

    def _check(self) -> None:
        """Raises where bubblewrap would take for ever, or show where links are held."""
        for path in self._mounts:
            if path.count("/") > _DEEPEST:
                raise SandboxUnavailable(
                    f"sandbox: {path[:100]}…{path[-100:]} is more than {_DEEPEST} folders deep: too"
                    " deep for being hidden or kept from commands.",
                    remedy="Remove it.",
                )
        for mount in self._mounts.values() if self._linked else ():
            source = mount.source or mount.path
            shown = inside(source, wire.COPIES) or inside(wire.COPIES, source)
            if mount.show in (*BINDS, Show.PRIVATE) and shown and source != "/":
                raise SandboxUnavailable(
                    f"sandbox: {source} cannot be shown where symbolic links lead to protected"
                    f" names ({next(iter(self._linked.values()))[0]}): {wire.COPIES} is needed for"
                    " holding them.",
                    remedy="Move it elsewhere, or replace the link by its target.",
                )

    def _take_many(self) -> list[str]:
        """Take hidden files of the roots out of what bubblewrap mounts, if they are many.

        It reads the whole mount table again for each mount. One stays, to be shown for the others.
        """
        files = [
            path
            for path, mount in self._mounts.items()
            if mount.show == Show.HIDE and not mount.folder and self.policy.in_root(path)
        ]
        if not self._may_mask or len(files) < _MANY:
            return []
        for path in files[1:]:
            del self._mounts[path]
        return files

    def _mask(self, files: Sequence[str]) -> None:
        """Masks for these, of which the first has one, and mounts that keep their folders there."""
        found: dict[str, str] = {}
        for path in files[1:]:
            holder = self._holder(path)
            folder = os.path.dirname(path)
            while holder and holder.show in _WRITABLE and folder not in (holder.path, *found):
                found[folder] = ""
                folder = os.path.dirname(folder)
            found[path] = files[0]
        order = sorted(found, key=lambda path: path.split("/"))
        self.masks = {path: found[path] for path in order}

    def _from_copy(self, mount: Mount) -> Mount:
        """Where links are held, the copy in which they are is what is shown."""
        if mount.show in BINDS and not mount.source:
            for number, folder in enumerate(self._linked):
                if inside(mount.path, folder):
                    source = copy_of(number) + mount.path.removeprefix(folder.rstrip("/"))
                    return Mount(mount.path, mount.show, source, mount.folder)
        return mount

    def _drop_unseen(self) -> None:
        """Inside a place that is replaced anyway only what is opened again needs a mount."""
        for path, mount in list(self._mounts.items()):
            holder = self._holder(path)
            if holder is None or mount.show in (Show.ROOT, Show.WRITE, Show.LINK):
                continue
            unseen = holder.show in _REPLACED and mount.show != Show.READ
            if unseen or (mount.show == Show.OVERLAY and holder.show in _WRITABLE):
                del self._mounts[path]

    def _pin(self, path: str) -> None:
        """Make every folder between a mount and the one that holds it unmovable."""
        holder = self._holder(path)
        if holder is None:
            return
        names = path[len(holder.path) :].strip("/").split("/")[:-1]
        steps = [os.path.join(holder.path, *names[: n + 1]) for n in range(len(names))]
        if holder.show in _WRITABLE and any(inside(path, folder) for folder in self._linked):
            # Many binds of one in the other would each take all mounts along that are further in.
            self.pinned.update(steps)
        elif holder.show in _WRITABLE:
            for step in steps:
                self.put(step, Show.WRITE)
        elif holder.show == Show.PRIVATE and steps:
            self.put(steps[0], Show.PARENT_OF_MOUNT)

    def _holder(self, path: str) -> Mount | None:
        """The innermost mount strictly above a path."""
        while path != "/":
            path = os.path.dirname(path)
            if path in self._mounts:
                return self._mounts[path]
        return None


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _is_socket(path: str) -> bool:
    return kind_of(path) == stat.S_IFSOCK
