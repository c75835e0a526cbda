"""The bubblewrap backend: it confines the commands of a session one after another.

What a command sees is worked out when no other command of the session is running: a running one
could otherwise swap a folder for a link between our look and bubblewrap's mount. While commands
run side by side they share one view.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from toolrest.policy.paths.links import Links
from toolrest.private_files import make_private
from toolrest.process.command import Command, Linked
from toolrest.sandbox.backends.argument_pipe import ArgumentPipe
from toolrest.sandbox.backends.bubblewrap_args import (
    Blanks,
    Masks,
    environment,
    loaded_settings,
    namespaces,
    packed,
    view_arguments,
    wrap,
)
from toolrest.sandbox.backends.chroot import HOST, check_rootfs, host_python, shells_in
from toolrest.sandbox.backends.engine import PreparedCommand
from toolrest.sandbox.backends.view import RUN, TMP, VAR_TMP, Show, View
from toolrest.sandbox.environment import (
    STANDARD_PATH,
    confined_env,
    for_other_root,
    with_shell,
)
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.sandbox.guard.changes import FileKindCache, NewlyHidden
from toolrest.sandbox.guard.excludes import GitExcludes
from toolrest.sandbox.guard.guard import NameGuard, let_go
from toolrest.sandbox.guard.placeholders import MountPoints
from toolrest.sandbox.guard.symlinks import by_folder, check, linked
from toolrest.sandbox.kernel import landlock_rules as landlock
from toolrest.sandbox.kernel import seccomp
from toolrest.sandbox.kernel.mounts import Mounts, Overlays, socket_paths
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import (
    own_files_around,
    own_files_in,
    own_prefixes,
    signal_launchers,
)

PROXY_SOCKET = "/run/toolrest-proxy.sock"
"""Where a command finds the proxy, when there is one."""


Identities = tuple[tuple[str, Show, tuple[int, int] | None], ...]
"""Paths that are not shown as they are, how they are shown, and device and inode of each."""


class Proxy(Struct, frozen=True):
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
        self._shells = () if self.rootfs is None else shells_in(self.rootfs)
        inner = proxy.inner if proxy is not None else ()
        chroot = rootfs is not None and proxy is not None
        self._forwarder = host_python(inner) if chroot else ((), inner)
        self._filter = _filter()
        self._launcher = (program, *namespaces(policy))
        self._blanks = Blanks.make(os.path.realpath(registry), overlays=self.overlays)
        self._tmp = os.path.join(policy.session_dir, "tmp")
        make_private(self._tmp)
        self._own = own_files_in(policy.roots)
        self._hidden = (*policy.hidden, policy.session_dir, os.path.realpath(registry))
        deeper = (path for path in policy.protected if os.path.dirname(path) not in policy.roots)
        self._kinds = FileKindCache((*self._hidden, *deeper, *policy.exceptions))
        self._newly_hidden = NewlyHidden(policy)
        self._excludes = GitExcludes(policy.session_dir)
        self._mounts = Mounts()
        self._overlaid = Overlays([], [])
        self._variables: tuple[tuple[tuple[str, str], ...] | None, bytes] = (None, b"")
        self._mutex = threading.Lock()
        self._running = 0
        self._seen: object = None
        self._covered: tuple[str, ...] = ()
        """Placeholders and new files that the view masks."""
        self._arguments = b""
        self.shown: tuple[tuple[str, Show], ...] = ()
        """Paths that the last view does not show as they are, without the host's sockets."""
        self._guarded = NameGuard(policy, registry)
        self._links = self._guarded.links()
        self._linked: Linked = ()
        self._masks: Masks = ()
        for path in own_files_around(policy.roots):
            raise SandboxUnavailable(
                f"sandbox: a writable root lies in Toolrest's own files ({path}).",
                remedy="Choose another workspace, or install Toolrest elsewhere.",
            )
        if policy.cache_dir is not None:
            make_private(policy.cache_dir)

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

    def confine(self, command: Command, *, late: bool = False) -> PreparedCommand:
        """The same command, confined.

        With `late` the view is worked out while bubblewrap is starting, if that can be told in
        one piece.
        """
        if self._shells:
            command = replace(command, argv=with_shell(command.argv, self._shells))
        variables = self._variables_of(command)
        if late:
            pair = ArgumentPipe()
            room = pair.room - 2 * (len(self._arguments) + len(variables))  # it may have grown
            # What the helper has to know from the start must not come up on the way.
            settled = not (self._links.held or self._masks) and self._guarded.is_settled()
            if room > 0 and settled:
                return self._confine_late(command, variables, pair)
            pair.close()
        return self._confine_now(command, variables)

    def close(self) -> None:
        """Nothing outlives a command."""

    def look(self) -> Identities:
        """What a new command would see that is not plainly the host: only while none does anything.

        For a virtual machine, which has one view for many commands and must know when another one
        is due. Sockets and mounts of the host's are left out: they are not in a machine anyway.
        """
        with self._mutex:
            present, held = self._guarded.refresh_and_claim()
            try:
                self._refresh(present)
            finally:
                let_go(held)
            return tuple((path, show, identity_of(path)) for path, show in self.shown)

    def _confine_now(self, command: Command, variables: bytes) -> PreparedCommand:
        arguments, links, masks, held = self._join(variables)
        try:
            loaded = loaded_settings(self._env_of(command)) if masks else ()
            arguments += packed([f"--unsetenv\0{name.partition('=')[0]}" for name in loaded])
            wrapped = self._wrap(command, arguments, links, masks, loaded)
        except BaseException:
            self._release(held)
            raise
        return PreparedCommand(wrapped, _once(lambda: self._release(held)))

    def _confine_late(
        self, command: Command, variables: bytes, late: ArgumentPipe
    ) -> PreparedCommand:
        held: list[MountPoints] | None = None
        records = self._guarded.records()  # the keeper holds their locks from the start

        def ready() -> None:
            nonlocal held
            arguments, links, masks, held = self._join(variables)
            grown = self._guarded.records() != records
            if links or masks or grown or not late.send(arguments):
                raise SandboxBusy(
                    "sandbox: what the command may see changed while it was starting, so nothing"
                    " was run.",
                    remedy="Call again.",
                )
            late.close()

        def release() -> None:
            late.close()
            if held is not None:
                self._release(held)

        try:
            return PreparedCommand(self._wrap(command, late, ready=ready), _once(release))
        except BaseException:
            late.close()
            raise

    def _join(self, variables: bytes) -> tuple[bytes, Linked, Masks, list[MountPoints]]:
        """One more command runs: what bubblewrap is told, which links stay, what to let go."""
        with self._mutex:
            looked = self._guarded.refresh_and_claim if self._running == 0 else self._guarded.hold
            present, held = looked()
            try:
                if self._running == 0:
                    self._refresh(present)
                else:
                    self._refuse_to_show(present)
            except BaseException:
                let_go(held)
                raise
            self._running += 1
            return self._arguments + variables, self._linked, self._masks, held

    def _variables_of(self, command: Command) -> bytes:
        outside = tuple(command.env.items())
        known, variables = self._variables  # as one: several threads may be here
        if outside != known:  # the same variables come with nearly every command
            variables = environment(self._env_of(command))
            self._variables = (outside, variables)
        return variables

    def _env_of(self, command: Command) -> dict[str, str]:
        env = confined_env(command.env, self.policy, self.name, TMP)
        if self._shells:
            env = for_other_root(env, self.policy, STANDARD_PATH, self._shells)
        return env | (self.proxy.env if self.proxy is not None else {})

    def _wrap(
        self,
        command: Command,
        arguments: bytes | ArgumentPipe,
        links: Linked = (),
        masks: Masks = (),
        loaded: tuple[str, ...] = (),
        ready: Callable[[], None] | None = None,
    ) -> Command:
        return wrap(
            command,
            self._launcher,
            self._filter,
            arguments,
            signals=signal_launchers() if command.tty else None,
            inner=self._forwarder[1],
            scoped=self.scopes,
            linked=links,
            masks=masks,
            loaded=loaded,
            held=self._guarded.records(),
            ready=ready,
        )

    def _release(self, held: list[MountPoints]) -> None:
        with self._mutex:
            self._running -= 1
            let_go(held)

    def _refresh(self, present: tuple[str, ...]) -> None:
        """Work out the view again, if anything it depends on has changed."""
        changed = self._mounts.refresh()
        if changed and self.overlays:
            kept = (*self.policy.roots, TMP, VAR_TMP, RUN)
            self._overlaid = self._mounts.overlays(kept)
        sockets = socket_paths()
        kinds, links = self._guarded.look(present)
        check(links, self.policy.roots, present)
        hidden = self._newly_hidden.look(present)
        state = (self._kinds.snapshot(), self._mounts.points)
        excludes = self._excludes.stamps(self._guarded.roots)
        seen = (present, sockets, kinds, links, hidden, excludes, *state)
        if seen != self._seen:
            self._seen = None
            self._arguments, self._linked, self._masks = self._build(
                present, sockets, hidden, links
            )
            self._links, self._seen = links, seen
            self._covered = (*present, *hidden)

    def _refuse_to_show(self, present: tuple[str, ...]) -> None:
        """Refuse to mask new files now: a running command could swap the path under the mount."""
        if self._guarded.look(present)[1] != self._links:
            raise SandboxBusy(
                "sandbox: a symbolic link that leads to a protected name came or went while a"
                " command was running.",
                remedy="Another one can run when that one has ended.",
            )
        new = self._newly_hidden.look((*self._covered, *present))
        if new:
            raise SandboxBusy(
                f"sandbox: {new[0]} is hidden from commands and came while one was running.",
                remedy="Another one can run when that one has ended, or the file is gone.",
            )

    def _build(
        self,
        present: tuple[str, ...],
        sockets: tuple[str, ...],
        hidden: tuple[str, ...],
        links: Links,
    ) -> tuple[bytes, Linked, Masks]:
        policy = self.policy
        view = View(policy, may_mask=self.rootfs is None and not self._is_setuid)
        view.private_places(self._tmp, own_prefixes())
        if policy.read_roots is None:
            view.overlay(self._overlaid.chosen)
        if not policy.roots:
            view.put(policy.workspace, Show.READ)
        if policy.cache_dir is not None:
            view.put(policy.cache_dir, Show.WRITE)
        roots = self._guarded.roots
        view.git([root.git for root in roots], present, self._excludes.shown(roots))
        for root in self._guarded.roots:
            view.read_only(root.protected)
        found = by_folder(links, self._guarded.writable())
        view.hold(found, links)
        view.read_only(self._own)
        masked = (*self._hidden, *hidden)
        view.hide(masked if self.rootfs is None else filter(policy.in_root, masked))
        for path in policy.exceptions:
            if os.path.exists(path):
                view.put(path, Show.READ, folder=os.path.isdir(path))
        if self.proxy is not None:
            view.put(PROXY_SOCKET, Show.READ, self.proxy.socket, folder=False)
            for path in self._forwarder[0]:
                view.put(HOST + path, Show.READ, path, folder=os.path.isdir(path))
        self.shown = view.shown()
        view.mask_sockets(sockets, kept=(self.proxy.socket,) if self.proxy else ())
        mounts = view.settle()
        self._claim_tmp([mount.path for mount in mounts])
        arguments = view_arguments(policy, mounts, self._blanks, self.rootfs)
        return packed(arguments), linked(found, view.pinned), tuple(view.masks.items())

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


def _once(action: Callable[[], None]) -> Callable[[], None]:
    todo = [action]

    def run() -> None:
        if todo:
            todo.pop()()

    return run


def identity_of(path: str) -> tuple[int, int] | None:
    """Device and inode of what is at a path, or None."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _filter() -> bytes:
    program = seccomp.program("bubblewrap")
    if program is None:
        raise SandboxUnavailable("sandbox: this machine's system calls are not known to Toolrest.")
    return program
