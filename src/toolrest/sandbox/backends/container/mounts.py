"""The mounts of a container: the writable roots, with what is guarded and hidden in them.

The workspace is shown twice: at `/workspace`, and at its own path, which is the one that file
tools name. Everything else is the image's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from toolrest.policy.paths.names import inside
from toolrest.sandbox.backends.bubblewrap_args import Blanks
from toolrest.sandbox.backends.view import TMP, Mount, Show, View
from toolrest.sandbox.errors import FolderNotShown, SandboxUnavailable
from toolrest.sandbox.guard.changes import NewlyHidden, identity_of
from toolrest.sandbox.guard.excludes import GitExcludes
from toolrest.sandbox.guard.guard import NameGuard, let_go
from toolrest.sandbox.guard.placeholders import MountPoints
from toolrest.sandbox.kernel.mounts import Mounts, socket_paths
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import own_files_in

WORKSPACE = "/workspace"


class Shown:
    """The mounts that show a container parts of the host; checked before every command."""

    def __init__(
        self, policy: SandboxPolicy, registry: str, tmp: str, *, other_user: bool = False
    ) -> None:
        """`other_user`: commands do not run as the user of this process."""
        self.policy = policy
        self._other_user = other_user
        self.guard = NameGuard(policy, registry)
        self._tmp = tmp
        self._own = own_files_in(policy.roots)
        places = (*policy.hidden, policy.session_dir, os.path.realpath(registry))
        self._hidden = tuple(path for path in places if policy.shown_root(path))
        self._newly_hidden = NewlyHidden(policy)
        self._excludes = GitExcludes(policy.session_dir)
        self._blanks = Blanks.make(os.path.realpath(registry), overlays=False)
        self._host = Mounts()
        self._present: tuple[str, ...] = ()
        self._mounts: Sequence[Mount] = ()
        self._sockets: tuple[tuple[str, tuple[int, int] | None], ...] = ()

    def look(self, *, alone: bool) -> tuple[object, list[MountPoints]]:
        """The state that the mounts depend on, and placeholders to let go later.

        `alone`: no command of the session runs that could be in the way.
        """
        present, held = self.guard.refresh_and_claim() if alone else self.guard.hold()
        try:
            self._present = tuple(dict.fromkeys((*self._present, *present)))
            links = self.guard.links()
            if links.held:
                raise SandboxUnavailable(
                    f"sandbox: {links.held[0]} is a symbolic link: a command in a container could"
                    " replace it.",
                    remedy="Replace the link by its target, or use another sandbox.",
                )
            self._mounts = mounts = self._settled()
            if alone:
                self._sockets = self._reachable()
            if self._sockets:
                self._mounts = self._settled([path for path, _ in self._sockets])
            self._host.refresh()
        except BaseException:
            let_go(held)
            raise
        # What is replaced from outside, as editors and git do, takes the mount on it away.
        state = tuple((m.path, m.show, m.source, identity_of(m.path)) for m in mounts)
        return (state, self._sockets, *map(self._inner, mounts)), held

    def _reachable(self) -> tuple[tuple[str, tuple[int, int] | None], ...]:
        """Sockets of the host within what is shown, to be looked up while no command runs.

        Services open and close them at any time, which must not stop a second command.
        """
        real = {os.path.realpath(path) for path in socket_paths()}
        return tuple(
            (path, identity_of(path)) for path in sorted(filter(self.policy.shown_root, real))
        )

    def _inner(self, mount: Mount) -> tuple[str, ...]:
        """Mounts of the host within what a mount shows read-only: `readonly` is not for those.

        Parts that have a mount of their own in the view are left to that one.
        """
        if mount.show is not Show.READ:
            return ()
        source = mount.source or mount.path
        within = (point for point, _ in self._host.points if inside(point, source))
        below = sorted({os.path.relpath(point, source) for point in within} - {"."})
        others = [
            m.path for m in self._mounts if m.path != mount.path and inside(m.path, mount.path)
        ]
        places = {name: os.path.join(mount.path, name) for name in below}
        return tuple(
            name for name, path in places.items() if not any(inside(path, o) for o in others)
        )

    def forget(self) -> None:
        """No container shows the placeholders any more."""
        self._present = ()

    def arguments(self) -> tuple[str, ...]:
        """The mounts as arguments of `docker run`."""
        flags: list[str] = []
        if self.policy.tmp == "private":
            flags += bind(self._tmp, TMP)
        mounts = self._mounts
        for index, mount in enumerate(mounts):
            inner = index + 1 < len(mounts) and inside(mounts[index + 1].path, mount.path)
            for target in self._targets(mount.path):
                flags += self._mount(mount, target, inner)
        return tuple(flags)

    def _settled(self, sockets: Sequence[str] = ()) -> Sequence[Mount]:
        policy = self.policy
        if "/" in (policy.workspace, *policy.roots):
            raise SandboxUnavailable(
                "sandbox: / itself cannot be shown in a container.", remedy="Choose a folder."
            )
        view = View(policy, other_user=self._other_user)
        if not policy.roots:
            view.put(policy.workspace, Show.READ)
        roots = self.guard.roots
        view.git([root.git for root in roots], self._present, self._excludes.shown(roots))
        for root in roots:
            view.read_only(root.protected)
        view.read_only(self._own)
        view.hide((*self._hidden, *self._newly_hidden.look(self._present)))
        for path in policy.exceptions:
            is_there = os.path.exists(path) and os.path.realpath(path) == path
            if is_there and policy.shown_root(path):
                view.put(path, Show.READ, folder=os.path.isdir(path))
        view.mask_sockets(sockets, own_root=True)
        return view.settle()

    def _targets(self, path: str) -> tuple[str, ...]:
        workspace = self.policy.workspace
        if not inside(path, workspace):
            return (path,)
        below = os.path.relpath(path, workspace)
        return (path, os.path.normpath(os.path.join(WORKSPACE, below)))

    def _mount(self, mount: Mount, target: str, inner: bool) -> list[str]:
        match mount.show:
            case Show.ROOT | Show.WRITE:
                return bind(mount.source or mount.path, target)
            case Show.READ:
                source = mount.source or mount.path
                names = ("", *self._inner(mount))
                pairs = ((_below(source, name), _below(target, name)) for name in names)
                return [word for pair in pairs for word in bind(*pair, ",readonly")]
            case Show.EMPTY_READ_ONLY if mount.folder:
                return bind(self._blanks.other, target, ",readonly")
            case Show.EMPTY_READ_ONLY:
                name = os.path.basename(mount.path)
                return bind(self._blanks.instead_of(name), target, ",readonly")
            case Show.HIDE if inner:
                return ["--tmpfs", f"{_plain(target)}:mode=0111"]
        blank = self._blanks.folder if mount.folder else self._blanks.file
        return bind(blank, target, ",readonly")

    def inside_path(self, path: str) -> str:
        """Where a folder of the host is in the container; FolderNotShown when it is not there."""
        real = os.path.realpath(path)
        if self.policy.shown_root(real):
            return self._targets(real)[-1]
        if self.policy.tmp == "private" and inside(real, TMP):
            below = os.path.relpath(real, TMP)
            if os.path.isdir(os.path.join(self._tmp, below)):
                return os.path.normpath(os.path.join(TMP, below))
        raise FolderNotShown(
            f"sandbox: {path} is not in the container, so the command was not run.",
            remedy=f"Run it in {self.policy.workspace} or a folder below it.",
        )


def _below(folder: str, name: str) -> str:
    return os.path.join(folder, name) if name else folder


def bind(source: str, target: str, mode: str = "") -> list[str]:
    """A bind mount as arguments; `mode` is `,readonly` or nothing."""
    return ["--mount", f"type=bind,source={_plain(source)},target={_plain(target)}{mode}"]


def _plain(path: str) -> str:
    """Engines split a mount at commas and have no way to quote one."""
    if "," in path or "\n" in path or '"' in path:
        raise SandboxUnavailable(
            f"sandbox: {path!r} cannot be mounted in a container: its name has a comma, a quote"
            " or a line end."
        )
    return path
