"""An overlay of a patch's pending changes over the file system; nothing is written.

Every operation of a patch sees what the ones before it did, as if they had been carried out; what
remains at the end is one change for each path. Symlinks are followed here, component by component,
so that a change is known by the file that it really reaches.
"""

from __future__ import annotations

import errno
import os
import stat

from toolrest.patch.errors import ApplyError
from toolrest.patch.text.encoding import why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    from toolrest.patch.files.file_system import FileSystem

    Kind: TypeAlias = Literal["file", "dir", "link", "other", "missing"]

_MAX_LINKS = 40
PATH_MAX = 4096
"""The bytes of a path, with the one that ends it: longer ones no program can name."""


class PendingChange:
    """The pending change of one path: its new `content`, or its removal when that is None.

    `before` is what is there on disk now. `like` names the file on disk whose mode and owner a
    new file takes. `parting` is written before the name goes: a file's other names keep it.
    `problem` is the error message when it cannot be done.
    """

    __slots__ = (
        "before",
        "content",
        "executable",
        "fresh",
        "like",
        "parting",
        "path",
        "problem",
        "through_link",
    )

    def __init__(self, path: str, before: os.stat_result | None) -> None:
        self.path = path
        self.before = before
        self.content: bytes | None = None
        self.parting: bytes | None = None
        self.fresh = before is None
        self.through_link = False
        self.like: str | None = None
        self.executable: bool | None = None
        self.problem = ""


class PendingFolder:
    """A folder to be made, and the error message when it cannot be."""

    __slots__ = ("path", "problem")

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem


class Spot:
    """A resolved path: the name itself (`entry`), the path it reaches (`real`), and its kind."""

    __slots__ = ("entry", "kind", "real")

    def __init__(self, entry: str, real: str, kind: Kind) -> None:
        self.entry = entry
        self.real = real
        self.kind = kind


class OverlayView:
    """The disk with the pending changes. Reads go to the disk; writes are only recorded."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files
        self.changes: dict[str, PendingChange] = {}
        self.folders: dict[str, PendingFolder] = {}
        self.read_from_disk: dict[str, bytes] = {}
        self.seen: dict[str, os.stat_result | None] = {}
        self._inodes: dict[tuple[int, int], str] = {}

    # Looking

    def spot(self, path: str) -> Spot:
        """Resolve an absolute path; a missing last component is no error."""
        if len(path.encode("utf-8", "surrogateescape")) >= PATH_MAX:
            raise _error(errno.ENAMETOOLONG, path)
        rest = _components(path)
        here = ""
        entry: str | None = None
        links = 0
        while rest:
            name = rest.pop()
            if name == "..":
                here = here.rpartition("/")[0]
                continue
            place = f"{here}/{name}"
            kind = self.kind(place)
            if not rest and entry is None:
                entry = place
            if kind == "link":
                links += 1
                target = self._target(here, place, links)
                here = "" if target.startswith("/") else here
                rest += _components(target)
            elif not rest:
                return Spot(entry or place, place, kind)
            elif kind == "dir":
                here = place
            else:
                raise _error(errno.ENOENT if kind == "missing" else errno.ENOTDIR, path)
        here = here or "/"
        return Spot(entry or here, here, "dir")

    def kind(self, place: str) -> Kind:
        """Kind of the entry at a path whose folders are real, links not followed."""
        if place in self.folders:
            return "dir"
        change = self.changes.get(place)
        if change is not None:
            return "missing" if change.content is None else "file"
        if place.rpartition("/")[0] in self.folders:
            return "missing"
        status = self.on_disk(place)
        if status is None:
            return "missing"
        return _KINDS.get(stat.S_IFMT(status.st_mode), "other")

    def on_disk(self, place: str) -> os.stat_result | None:
        """Status of a path on disk, links not followed; None when nothing is there."""
        if place not in self.seen:
            try:
                self.seen[place] = self.files.lstat(place)
            except FileNotFoundError:
                self.seen[place] = None
        return self.seen[place]

    def read(self, spot: Spot) -> bytes:
        """The content of a file after the changes so far."""
        change = self.changes.get(spot.real)
        if change is not None and change.content is not None:
            return change.content
        data = self.read_from_disk.get(spot.real)
        if data is None:
            data = self.read_from_disk[spot.real] = self.files.read(spot.real)
        return data

    # Changing

    def write(
        self, spot: Spot, content: bytes, problem: str, like: str | None = None
    ) -> PendingChange:
        """Give a file this content; a new one gets mode and owner of the file `like`."""
        self.check_size(spot.real, content, problem)
        change = self._change(spot.real)
        self._refuse_twin(change, problem)
        if spot.kind == "missing":
            change.fresh = True
            change.through_link = False
            change.like = like
        elif not change.fresh:
            change.like = spot.real
            change.through_link = change.through_link or spot.entry != spot.real
        change.content = content
        change.problem = problem
        return change

    def check_size(self, place: str, content: bytes, problem: str) -> None:
        """ApplyError where a file may not become so large."""
        try:
            self.files.check_size(place, len(content))
        except OSError as error:
            raise ApplyError(problem, [why(error)]) from None

    def remove(self, entry: str, problem: str) -> None:
        """Remove a name."""
        change = self._change(entry)
        if not change.fresh and change.before is not None and change.before.st_nlink > 1:
            change.parting = change.content
        change.content = None
        change.problem = problem

    def make_folder(self, place: str, problem: str) -> None:
        """Add a folder that is made before anything is written."""
        self.folders[place] = PendingFolder(place, problem)

    def model(self, spot: Spot) -> str | None:
        """The file on disk that has the mode and owner which this file would have."""
        change = self.changes.get(spot.real)
        return spot.real if change is None else change.like

    def _change(self, place: str) -> PendingChange:
        change = self.changes.get(place)
        if change is None:
            below = place.rpartition("/")[0] in self.folders
            change = PendingChange(place, None if below else self.on_disk(place))
            self.changes[place] = change
        return change

    def _refuse_twin(self, change: PendingChange, problem: str) -> None:
        before = change.before
        if before is None or before.st_nlink < 2:
            return
        # Two names of one file: the second change would not see the first.
        other = self._inodes.setdefault((before.st_dev, before.st_ino), change.path)
        if other != change.path:
            raise ApplyError(problem, [f"it is the same file as {other}: use two patches"])

    def _target(self, here: str, place: str, links: int) -> str:
        if links > _MAX_LINKS:
            raise _error(errno.ELOOP, place)
        folder, link = self.on_disk(here or "/"), self.on_disk(place)
        if folder is not None and link is not None and _planted(folder, link):
            raise _error(errno.EACCES, place)
        return self.files.readlink(place)


_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
}


def _components(path: str) -> list[str]:
    """The parts of a path, last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _planted(folder: os.stat_result, link: os.stat_result) -> bool:
    """Whether another user put a link into a folder like /tmp; kernels do not follow those."""
    open_to_all = stat.S_ISVTX | stat.S_IWOTH
    if folder.st_mode & open_to_all != open_to_all:
        return False
    return link.st_uid not in (os.geteuid(), folder.st_uid)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
