"""The guard of protected names in the writable roots, and of the links that lead to them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from toolrest.policy.paths.links import Links
from toolrest.policy.paths.names import prefixes
from toolrest.sandbox.errors import SandboxUnavailable, unseen
from toolrest.sandbox.guard.changes import kind_of
from toolrest.sandbox.guard.git_dirs import GitPlan
from toolrest.sandbox.guard.placeholders import MountPoints
from toolrest.sandbox.guard.root import Root
from toolrest.sandbox.policy import SandboxPolicy

_MOST_RECORDS = 64


class NameGuard:
    """The protected names of all roots: holds the missing ones, and looks at the others."""

    def __init__(self, policy: SandboxPolicy, registry: str) -> None:
        self.roots = [
            Root(root, tuple(p for p in policy.protected if policy.in_root(p) == root))
            for root in policy.roots
        ]
        self._policy = policy
        self._registry = registry
        self._points: dict[str, MountPoints] = {}
        """By the folder that the placeholders are in."""
        self._planned: list[GitPlan] = []
        self._parents: list[str] = []

    def refresh_and_claim(self) -> tuple[tuple[str, ...], list[MountPoints]]:
        """As `hold`, when nothing runs that could be in the way of a look."""
        for root in self.roots:
            root.look()
        self._check_parents()
        try:
            return self.hold()
        except SandboxUnavailable as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        for root in self.roots:  # a folder in `.git` is gone, a submodule's for one
            root.look(again=True)
        return self.hold()

    def _check_parents(self) -> None:
        """Raises where a folder of a guarded or hidden name cannot be looked into.

        A command that makes one so would have its name count as missing.
        """
        plans = [root.git for root in self.roots]
        if plans != self._planned:
            self._planned, self._parents = plans, self._find_parents()
        for folder in self._parents:
            try:
                os.stat(folder + "/.")
            except PermissionError as error:
                raise unseen(folder) from error
            except OSError:
                continue

    def _find_parents(self) -> list[str]:
        names = [*self._policy.protected, *self._policy.hidden, *self._policy.exceptions]
        for root in self.roots:
            names += (*root.git.read_only, *root.git.writable, *root.missing, *root.top)
        writable = prefixes(self.writable())
        found: dict[str, None] = dict.fromkeys(self.writable())
        for name in names:
            folder = os.path.dirname(name)
            while (folder + "/").startswith(writable) and folder not in found:
                found[folder] = None
                folder = os.path.dirname(folder)
        return list(found)

    def hold(self) -> tuple[tuple[str, ...], list[MountPoints]]:
        """Take the names that must stay missing; what exists of them, and what to let go later."""
        present: list[str] = []
        held: list[MountPoints] = []
        try:
            for root in self.roots:
                for folder, wanted in root.wanted().items():
                    points = self._points_in(folder)
                    present += points.acquire((), wanted.missing, wanted.there)
                    held.append(points)
        except OSError as error:
            let_go(held)
            raise SandboxUnavailable(
                f"sandbox: cannot keep commands from creating a protected name: {error}."
            ) from error
        return tuple(present), held

    def _points_in(self, folder: str) -> MountPoints:
        points = self._points.get(folder)
        if points is None:
            points = self._points[folder] = MountPoints(self._registry, folder)
        return points

    def is_settled(self) -> bool:
        """Whether the next command needs placeholders only in folders that have had some."""
        return all(
            not root.is_stale() and self._points.keys() >= root.wanted().keys()
            for root in self.roots
        )

    def records(self) -> tuple[int, ...]:
        """Descriptors whose locks say that commands run on placeholders; as many as may be sent."""
        return tuple(points.record for points in self._points.values())[:_MOST_RECORDS]

    def look(self, present: tuple[str, ...]) -> tuple[tuple[int, ...], Links]:
        """What kind the names are that were not made just now, and the links that lead to any."""
        others = [path for root in self.roots for path in root.top if path not in present]
        others += [path for root in self.roots for path in root.missing]
        kinds = tuple(map(kind_of, others))
        if stat.S_IFLNK in kinds or any(root.deeper or root.git.followed for root in self.roots):
            return kinds, self.links()
        return kinds, Links()

    def links(self) -> Links:
        """The links that lead to a protected name, and could be replaced."""
        names = (path for root in self.roots for path in (*root.top, *root.missing, *root.deeper))
        followed = (path for root in self.roots for path in root.git.followed)
        writable = prefixes(self.writable())
        return Links.towards(names, lambda path: (path + "/").startswith(writable), followed)

    def writable(self) -> Iterator[str]:
        """The folders that a command may write."""
        yield from self._policy.roots
        if self._policy.cache_dir is not None:
            yield self._policy.cache_dir
        for root in self.roots:
            yield from root.git.writable


def let_go(held: list[MountPoints]) -> None:
    """Release all of them, whatever becomes of one."""
    for number, points in enumerate(held, 1):
        try:
            points.release()
        except BaseException:
            let_go(held[number:])
            raise
