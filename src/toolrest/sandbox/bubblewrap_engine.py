"""How does a session confine one command after another with bubblewrap?

What a command sees is worked out when no other command of the session is running: a running one
could otherwise swap a folder for a link between our look and bubblewrap's mount. While commands
run side by side they share one view.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable

from toolrest.lazy_dataclass import dataclass
from toolrest.policy.names import inside
from toolrest.process.command import Command
from toolrest.sandbox import landlock, seccomp
from toolrest.sandbox.bubblewrap import (
    Blanks,
    environment,
    namespaces,
    packed,
    view_arguments,
    wrap,
)
from toolrest.sandbox.chroot import check_rootfs
from toolrest.sandbox.engine import Prepared
from toolrest.sandbox.environment import confined_env
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.sandbox.gitdirs import git_plan, only
from toolrest.sandbox.kinds import Kinds, kind_of
from toolrest.sandbox.late import Late
from toolrest.sandbox.mountpoints import MountPoints
from toolrest.sandbox.newly_hidden import NewlyHidden
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import (
    own_files_around,
    own_files_in,
    own_prefixes,
    signal_launchers,
)
from toolrest.sandbox.root import Root
from toolrest.sandbox.sockets import Mounts, Overlays, socket_paths
from toolrest.sandbox.view import RUN, TMP, VAR_TMP, Show, View

PROXY_SOCKET = "/run/toolrest-proxy.sock"
"""Where a command finds the proxy, when there is one."""

_UNKNOWN = (-1, 0)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running allowlist proxy, as far as the sandbox must know it."""

    socket: str
    env: dict[str, str]
    inner: tuple[str, ...]
    """The forwarder that runs inside and then starts the command."""


class BubblewrapEngine:
    """Turns commands into confined commands, for one policy and one bubblewrap."""

    def __init__(
        self,
        policy: SandboxPolicy,
        program: str,
        registry: str,
        *,
        overlays: bool = True,
        proxy: Proxy | None = None,
        rootfs: str | None = None,
    ) -> None:
        self.policy = policy
        self.program = program
        self.name = "bubblewrap" if rootfs is None else "chroot"
        self._is_setuid = bool(os.stat(program).st_mode & stat.S_ISUID)
        self.overlays = overlays and rootfs is None
        self.proxy = proxy
        self.rootfs = None if rootfs is None else check_rootfs(rootfs, policy)
        self._filter = _filter()
        self._launcher = (program, *namespaces(policy))
        self._blanks = Blanks.make(os.path.realpath(registry), overlays=self.overlays)
        self._tmp = os.path.join(policy.session_dir, "tmp")
        os.makedirs(self._tmp, mode=0o700, exist_ok=True)
        self._own = own_files_in(policy.roots)
        self._hidden = (*policy.hidden, policy.session_dir, os.path.realpath(registry))
        deeper = (path for path in policy.protected if os.path.dirname(path) not in policy.roots)
        self._kinds = Kinds((*self._hidden, *deeper, *policy.exceptions))
        self._newly_hidden = NewlyHidden(policy)
        self._mounts = Mounts()
        self._overlaid = Overlays([], [])
        self._variables: tuple[tuple[tuple[str, str], ...] | None, bytes] = (None, b"")
        self._mutex = threading.Lock()
        self._running = 0
        self._seen: object = None
        self._covered: tuple[str, ...] = ()
        """Placeholders and new files that the view masks."""
        self._arguments = b""
        self._registry = registry
        self._points: dict[str, MountPoints] = {}
        """By the folder that the placeholders are in."""
        self._roots = [Root(path) for path in policy.roots]
        for root in self._roots:
            root.git, root.git_identity = git_plan(root.path), _identity(root.path)
            root.protect(self._protected_in(root))
        for path in own_files_around(policy.roots):
            raise SandboxUnavailable(
                f"sandbox: a writable root lies in Toolrest's own files ({path}).",
                remedy="Choose another workspace, or install Toolrest elsewhere.",
            )
        if policy.cache_dir is not None:
            os.makedirs(policy.cache_dir, mode=0o700, exist_ok=True)

    @property
    def within_reach(self) -> tuple[str, ...]:
        """Folders in which a socket that a service opens later could be reached."""
        return tuple(self._overlaid.left_out) if self.overlays else ("/",)

    @property
    def scopes(self) -> int:
        """Landlock's scopes, which a network namespace makes unnecessary.

        They need no_new_privs, under which a bubblewrap that is set-uid root could not work.
        """
        if self.policy.network != "on" or self._is_setuid:
            return 0
        return landlock.scopes()

    def confine(self, command: Command, *, late: bool = False) -> Prepared:
        """The same command, confined.

        With `late` the view is worked out while bubblewrap is starting, if that can be told in
        one piece.
        """
        variables = self._variables_of(command)
        if late:
            pair = Late()
            if 2 * (len(self._arguments) + len(variables)) < pair.room:  # it may have grown
                return self._confine_late(command, variables, pair)
            pair.close()
        return self._confine_now(command, variables)

    def _confine_now(self, command: Command, variables: bytes) -> Prepared:
        arguments, held = self._join(variables)
        try:
            wrapped = self._wrap(command, arguments)
        except BaseException:
            self._release(held)
            raise
        return Prepared(wrapped, _once(lambda: self._release(held)))

    def _confine_late(self, command: Command, variables: bytes, late: Late) -> Prepared:
        held: list[MountPoints] | None = None

        def ready() -> None:
            nonlocal held
            arguments, held = self._join(variables)
            if not late.give(arguments):
                raise SandboxBusy(
                    "sandbox: what the command may see could not be told in one piece, so nothing"
                    " was run.",
                    remedy="Call again.",
                )
            late.close()

        def release() -> None:
            late.close()
            if held is not None:
                self._release(held)

        try:
            return Prepared(self._wrap(command, late, ready), _once(release))
        except BaseException:
            late.close()
            raise

    def _join(self, variables: bytes) -> tuple[bytes, list[MountPoints]]:
        """One more command runs: what bubblewrap must be told, and what to let go at its end."""
        with self._mutex:
            present, held = self._looked_and_held()
            try:
                if self._running == 0:
                    self._refresh(present)
                else:
                    self._refuse_to_show(present)
            except BaseException:
                _let_go(held)
                raise
            self._running += 1
            return self._arguments + variables, held

    def _variables_of(self, command: Command) -> bytes:
        outside = tuple(command.env.items())
        known, variables = self._variables  # as one: several threads may be here
        if outside != known:  # the same variables come with nearly every command
            env = confined_env(command.env, self.policy, self.name, TMP)
            env |= self.proxy.env if self.proxy is not None else {}
            variables = environment(env)
            self._variables = (outside, variables)
        return variables

    def _wrap(
        self, command: Command, arguments: bytes | Late, ready: Callable[[], None] | None = None
    ) -> Command:
        return wrap(
            command,
            self._launcher,
            self._filter,
            arguments,
            signals=signal_launchers() if command.tty else None,
            inner=self.proxy.inner if self.proxy is not None else (),
            scoped=self.scopes,
            ready=ready,
        )

    def _looked_and_held(self) -> tuple[tuple[str, ...], list[MountPoints]]:
        if self._running > 0:
            return self._hold()
        self._look()
        try:
            return self._hold()
        except SandboxUnavailable as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        for root in self._roots:  # a folder in `.git` is gone, a submodule's for one
            root.git_identity = _UNKNOWN
        self._look()
        return self._hold()

    def _look(self) -> None:
        """Has a root's `.git` been replaced from outside since the last command?"""
        for root in self._roots:
            identity = _identity(root.path)
            if identity != root.git_identity:
                pointer = identity is not None and not stat.S_ISDIR(identity[1])
                entry = os.path.join(root.path, ".git")
                root.git = only(entry) if pointer else git_plan(root.path)
                root.git_identity = identity
                root.protect(self._protected_in(root))
            if root.git.refusal is not None:
                raise SandboxUnavailable(f"sandbox: {root.git.refusal}")

    def _hold(self) -> tuple[tuple[str, ...], list[MountPoints]]:
        """Take the names that must stay missing; what exists of them, and what to let go later."""
        present: list[str] = []
        held: list[MountPoints] = []
        try:
            for root in self._roots:
                for folder, wanted in root.wanted().items():
                    points = self._points_in(root, folder)
                    present += points.acquire((), wanted.missing, wanted.there)
                    held.append(points)
        except OSError as error:
            _let_go(held)
            raise SandboxUnavailable(
                f"sandbox: cannot keep a protected name from being created: {error}."
            ) from error
        return tuple(present), held

    def _points_in(self, root: Root, folder: str) -> MountPoints:
        points = self._points.get(folder)
        if points is None:
            points = self._points[folder] = MountPoints(self._registry, root.path, folder)
        return points

    def _release(self, held: list[MountPoints]) -> None:
        with self._mutex:
            self._running -= 1
            _let_go(held)

    def _protected_in(self, root: Root) -> tuple[str, ...]:
        """The root's protected names; what concerns git is in its plan."""
        git = os.path.join(root.path, ".git")
        kept = (git, *root.git.writable)
        return tuple(
            path
            for path in self.policy.protected
            if self.policy.in_root(path) == root.path and not any(inside(path, k) for k in kept)
        )

    def _refresh(self, present: tuple[str, ...]) -> None:
        """Work out the view again, if anything it depends on has changed."""
        changed = self._mounts.refresh()
        if changed and self.overlays:
            kept = (*self.policy.roots, TMP, VAR_TMP, RUN)
            self._overlaid = self._mounts.overlays(kept)
        sockets = socket_paths()
        # Of the names in a root only those are unknown that were not made just now.
        others = [path for root in self._roots for path in root.top if path not in present]
        kinds = tuple(map(kind_of, others))
        # A link is protected at what it points to.
        real = [
            os.path.realpath(p)
            for p, kind in zip(others, kinds, strict=True)
            if kind == stat.S_IFLNK
        ]
        hidden = self._newly_hidden.look(present)
        seen = (present, sockets, kinds, real, hidden, self._kinds.look(), self._mounts.points)
        if seen != self._seen:
            self._arguments = packed(self._build(present, sockets, hidden))
            self._seen = seen
            self._covered = (*present, *hidden)

    def _refuse_to_show(self, present: tuple[str, ...]) -> None:
        """A mask for a new file could be led astray by the command that runs already."""
        new = self._newly_hidden.look((*self._covered, *present))
        if new:
            raise SandboxBusy(
                f"sandbox: {new[0]} is hidden from commands and came while one was running.",
                remedy="Another one can run when that one has ended, or the file is gone.",
            )

    def _build(
        self, present: tuple[str, ...], sockets: tuple[str, ...], hidden: tuple[str, ...]
    ) -> tuple[str, ...]:
        policy = self.policy
        view = View(policy)
        view.private_places(self._tmp, own_prefixes())
        if policy.read_roots is None:
            view.overlay(self._overlaid.chosen)
        if not policy.roots:
            view.put(policy.workspace, Show.READ)
        if policy.cache_dir is not None:
            view.put(policy.cache_dir, Show.WRITE)
        view.git([root.git for root in self._roots], present)
        for root in self._roots:
            view.read_only(root.protected)
        view.read_only(self._own)
        masked = (*self._hidden, *hidden)
        view.hide(masked if self.rootfs is None else filter(policy.in_root, masked))
        for path in policy.exceptions:
            if os.path.exists(path):
                view.put(path, Show.READ, folder=os.path.isdir(path))
        if self.proxy is not None:
            view.put(PROXY_SOCKET, Show.READ, self.proxy.socket, folder=False)
        view.mask_sockets(sockets, kept=(self.proxy.socket,) if self.proxy else ())
        mounts = view.settle()
        self._claim_tmp([mount.path for mount in mounts])
        return view_arguments(policy, mounts, self._blanks, self.rootfs)

    def _claim_tmp(self, paths: list[str]) -> None:
        """Mount points in the private `/tmp` exist before any command could put a link there."""
        if self.policy.tmp != "private":
            return
        for path in paths:
            if os.path.dirname(path) != TMP:
                continue
            own = os.path.join(self._tmp, os.path.basename(path))
            if not os.path.lexists(own) and (os.path.isdir(path) or not os.path.exists(path)):
                os.mkdir(own, 0o755)
            if os.path.islink(own):
                raise SandboxUnavailable(f"sandbox: {own} is a link; remove it")


def _let_go(held: list[MountPoints]) -> None:
    for number, points in enumerate(held, 1):
        try:
            points.release()
        except BaseException:
            _let_go(held[number:])
            raise


def _once(action: Callable[[], None]) -> Callable[[], None]:
    todo = [action]

    def run() -> None:
        if todo:
            todo.pop()()

    return run


def _filter() -> bytes:
    program = seccomp.program("bubblewrap")
    if program is None:
        raise SandboxUnavailable("sandbox: this machine's system calls are not known to Toolrest.")
    return program


def _identity(root: str) -> tuple[int, int] | None:
    try:
        info = os.lstat(os.path.join(root, ".git"))
    except OSError:
        return None
    return info.st_ino, info.st_mode
