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

from msgspec.structs import replace

from toolrest.own_code import package_folder
from toolrest.policy.paths.links import Links
from toolrest.private_files import make_private
from toolrest.process.command import Command, Linked
from toolrest.sandbox.backends.bubblewrap_args import (
    Blanks,
    Joined,
    Masks,
    claim_mount_points,
    environment,
    loaded_settings,
    namespaces,
    packed,
    view_arguments,
    wrap,
)
from toolrest.sandbox.backends.chroot import HOST, check_rootfs, host_python, shells_in
from toolrest.sandbox.backends.engine import PROXY_SOCKET, PreparedCommand, Proxy, once
from toolrest.sandbox.backends.launcher import ArgumentPipe, StartReport
from toolrest.sandbox.backends.live_view import LiveView
from toolrest.sandbox.backends.meant import ViewChecks
from toolrest.sandbox.backends.view import RUN, TMP, VAR_TMP, Mount, Show, View
from toolrest.sandbox.environment import (
    STANDARD_PATH,
    confined_env,
    for_other_root,
    with_shell,
)
from toolrest.sandbox.errors import SandboxBusy, SandboxChanged, SandboxUnavailable
from toolrest.sandbox.guard.changes import FileKindCache, NewlyHidden, identity_of
from toolrest.sandbox.guard.excludes import GitExcludes
from toolrest.sandbox.guard.guard import NameGuard, let_go
from toolrest.sandbox.guard.neighbours import Neighbours
from toolrest.sandbox.guard.placeholders import MountPoints
from toolrest.sandbox.guard.symlinks import by_folder, check, linked
from toolrest.sandbox.kernel import landlock_rules as landlock
from toolrest.sandbox.kernel import seccomp
from toolrest.sandbox.kernel.mounts import Mounts, Overlays, socket_paths
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import own_files_in, own_prefixes, refuse_own_files, signal_launchers

Identities = tuple[tuple[str, Show, tuple[int, int] | None], ...]
"""Paths that are not shown as they are, how they are shown, and device and inode of each."""


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
        neighbours: Neighbours | None = None,
    ) -> None:
        self.policy = policy
        self.program = program
        self.name = "bubblewrap" if rootfs is None else "chroot"
        self._is_setuid = bool(os.stat(program).st_mode & stat.S_ISUID)
        self.overlays = overlays and rootfs is None
        self.proxy = proxy
        self.rootfs = None if rootfs is None else check_rootfs(rootfs, policy)
        self._shells = () if self.rootfs is None else shells_in(self.rootfs)
        self._checks = ViewChecks(policy, None if self._is_setuid else neighbours)
        inner = proxy.inner if proxy is not None else ()
        chroot = rootfs is not None and proxy is not None
        self._forwarder = host_python(inner) if chroot else ((), inner)
        self._filter = _filter()
        self._launcher = (program, *namespaces(policy))
        self._blanks = Blanks.make(os.path.realpath(registry), overlays=self.overlays)
        self._tmp = os.path.join(policy.session_dir, "tmp")
        make_private(self._tmp)
        self._own = own_files_in(policy.roots)
        if rootfs is not None or policy.read_roots is not None:
            self._own += (package_folder(),)  # the program `apply_patch`, and its code
        self._hidden = (*policy.hidden, policy.session_dir, os.path.realpath(registry))
        deeper = (path for path in policy.protected if os.path.dirname(path) not in policy.roots)
        self._kinds = FileKindCache((*self._hidden, *deeper, *policy.exceptions))
        self._newly_hidden = NewlyHidden(policy)
        self._excludes = GitExcludes(policy.session_dir)
        self._mounts = Mounts()
        self._overlaid = Overlays([], [], [])
        self._variables: tuple[tuple[tuple[str, str], ...] | None, bytes] = (None, b"")
        self._mutex = threading.Lock()
        self._running = 0
        self._seen: object = None
        self._covered: tuple[str, ...] = ()
        """Placeholders and new files that the view masks."""
        self._arguments = b""
        self._live = LiveView(View(policy))
        self._made: list[Mount] = []
        self._words: tuple[str, ...] = ()
        self.shown: tuple[tuple[str, Show], ...] = ()
        """Paths that the last view does not show as they are, without the host's sockets."""
        self._guarded = NameGuard(policy, registry)
        self._links = self._guarded.links()
        self._linked: Linked = ()
        self._masks: Masks = ()
        refuse_own_files(policy.roots)
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
            settled = settled and not self._checks.are_due()
            if room > 0 and settled:
                return self._confine_late(command, variables, pair, StartReport())
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
        report = StartReport()
        try:
            joined = self._join(variables)
        except BaseException:
            report.close()
            raise

        def release() -> None:
            report.close()
            self._release(joined.held)

        try:
            loaded = loaded_settings(self._env_of(command)) if joined.waits else ()
            unset = packed([f"--unsetenv\0{name.partition('=')[0]}" for name in loaded])
            wrapped = self._wrap(command, joined.arguments + unset, report, joined, loaded)
        except BaseException:
            release()
            raise
        return PreparedCommand(wrapped, once(release), has_run=report.has_run)

    def _confine_late(
        self, command: Command, variables: bytes, late: ArgumentPipe, report: StartReport
    ) -> PreparedCommand:
        joined: Joined | None = None
        records = self._guarded.records()  # the keeper holds their locks from the start

        def ready() -> None:
            nonlocal joined
            joined = self._join(variables)
            grown = self._guarded.records() != records
            if joined.links or joined.waits or grown or not late.send(joined.arguments):
                raise SandboxChanged(
                    "sandbox: files or mounts changed while the command was starting, so it was not"
                    " run.",
                    remedy="Call again.",
                )
            late.close()

        def release() -> None:
            late.close()
            report.close()
            if joined is not None:
                self._release(joined.held)

        try:
            wrapped = self._wrap(command, late, report, ready=ready)
        except BaseException:
            release()
            raise
        return PreparedCommand(wrapped, once(release), has_run=report.has_run)

    def _join(self, variables: bytes) -> Joined:
        """Join the running commands."""
        with self._mutex:
            looked = self._guarded.refresh_and_claim if self._running == 0 else self._guarded.hold
            present, held = looked()
            try:
                if self._running == 0:
                    self._refresh(present)
                else:
                    self._refuse_to_show(present)
                    self._follow()
                links, masks = self._linked, self._masks
                host = (point for point, _ in self._mounts.points)
                check = self._checks.of(self._made, masks, links, self._words, host)
            except BaseException:
                let_go(held)
                raise
            self._running += 1
            return Joined(self._arguments + variables, held, links, masks, check)

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
        report: StartReport,
        joined: Joined | None = None,
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
            joined=joined,
            loaded=loaded,
            held=self._guarded.records(),
            ready=ready,
            report=report,
        )

    def _release(self, held: list[MountPoints]) -> None:
        with self._mutex:
            self._running -= 1
            if self._running == 0:
                self._live.end()
            let_go(held)

    def _refresh(self, present: tuple[str, ...]) -> None:
        """Work out the view again, if anything it depends on has changed."""
        self._look_at_mounts()
        sockets = socket_paths()
        kinds, links = self._guarded.look(present)
        check(links, self.policy.roots, present)
        hidden = self._newly_hidden.look(present)
        state = (self._kinds.snapshot(), self._mounts.points, self._overlaid)
        excludes = self._excludes.stamps(self._guarded.roots)
        seen = (present, sockets, kinds, links, hidden, excludes, *state)
        if seen != self._seen:
            self._seen = None
            self._arguments, self._linked, self._masks = self._build(
                present, sockets, hidden, links
            )
            self._links, self._seen = links, seen
            self._covered = (*present, *hidden)
        self._live.begin()

    def _look_at_mounts(self) -> None:
        if self._mounts.refresh() and self.overlays:
            kept = (*self.policy.roots, TMP, VAR_TMP, RUN)
            self._overlaid = self._mounts.overlays(kept)

    def _follow(self) -> None:
        """Adjust the view that running commands have to what came and went on the host."""
        self._look_at_mounts()
        readable = self.policy.read_roots is None
        chosen = self._overlaid.chosen if readable else []
        view = self._live.now(chosen, self._overlaid.stores)
        real = map(os.path.realpath, socket_paths())
        self._mask_sockets(view, tuple(path for path in real if not view.is_writable(path)))
        mounts, masks = view.in_order(), tuple(view.masks.items())
        if (mounts, masks) != (self._made, self._masks):
            self._seen = None  # the view is worked out anew when none runs
            self._arguments, self._masks = self._pack(mounts), masks

    def _pack(self, mounts: list[Mount]) -> bytes:
        if self.policy.tmp == "private":
            claim_mount_points(self._tmp, (mount.path for mount in mounts))
        self._words = view_arguments(self.policy, mounts, self._blanks, self.rootfs)
        self._made = mounts
        return packed(self._words)

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
        view.hide(masked if self.rootfs is None else filter(policy.shown_root, masked))
        for path in policy.exceptions:
            if os.path.exists(path) and os.path.realpath(path) == path:
                view.put(path, Show.READ, folder=os.path.isdir(path))
        if self.proxy is not None:
            view.put(PROXY_SOCKET, Show.READ, self.proxy.socket, folder=False)
            for path in self._forwarder[0]:
                view.put(HOST + path, Show.READ, path, folder=os.path.isdir(path))
        self.shown = view.shown()
        for path in self._overlaid.stores:
            view.put(path, Show.HIDE)
        self._mask_sockets(view, sockets)
        mounts = view.settle()
        self._live = LiveView(view)
        return self._pack(mounts), linked(found, view.pinned), tuple(view.masks.items())

    def _mask_sockets(self, view: View, sockets: tuple[str, ...]) -> None:
        kept = (self.proxy.socket,) if self.proxy else ()
        view.mask_sockets(sockets, kept, own_root=self.rootfs is not None)
        if self.rootfs is not None:
            view.mask_sockets_below(self.rootfs, sockets)


def _filter() -> bytes:
    program = seccomp.program("bubblewrap")
    if program is None:
        raise SandboxUnavailable("sandbox: this machine's system calls are not known to Toolrest.")
    return program
