"""Confinement of one session's programs: sandbox, network proxy, enforcement notes, containers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from toolrest.errors import RespondToModel, told
from toolrest.policy.paths.policy import PathPolicy
from toolrest.private_files import make_private
from toolrest.process.child import Child
from toolrest.process.command import Command
from toolrest.process.limits import Limits
from toolrest.process.shells.environment import EnvironmentPolicy
from toolrest.process.wakeup import uncancelled
from toolrest.running.refused import Refused, RefusedConnections
from toolrest.sandbox.backends.container.engine import OWN_LIMITS, ContainerOptions
from toolrest.sandbox.backends.engine import Controls
from toolrest.sandbox.backends.launcher import disturbed
from toolrest.sandbox.backends.probe import Probe
from toolrest.sandbox.confine import OWN_FILES, Backend, Confined, SessionSandbox
from toolrest.sandbox.denial import Denied, find_blocked
from toolrest.sandbox.errors import FolderNotShown, SandboxBusy, SandboxUnavailable
from toolrest.sandbox.policy import Control, Network, SandboxPolicy, Tmp
from toolrest.sandbox.vm.options import VmOptions
from toolrest.sandbox.weak import is_weak

if TYPE_CHECKING:
    from toolrest.sandbox.network.proxy import NetworkProxy
    from toolrest.sandbox.network.tunnel import Blocked


class Confinement(Struct, frozen=True):
    """Settings of the launcher for the sandbox; none of them ever comes from a model."""

    network: Network = "off"
    allowed_hosts: tuple[str, ...] = ()
    denied_hosts: tuple[str, ...] = ()
    tmp: Tmp = "private"
    host_tmp: tuple[str, ...] | None = None
    backend: Backend | None = None
    environment: EnvironmentPolicy = field(default_factory=EnvironmentPolicy)
    require: tuple[Control, ...] = ("writes", "network", "own_files")
    container: ContainerOptions | None = None
    rootfs: str | None = None
    vm: VmOptions | None = None
    max_commands: int | None = None
    limits: Limits = field(default_factory=Limits)
    external: bool = False
    """Programs run without our sandbox, since something else confines them."""


class Watch(Protocol):
    """Records names that a sandbox does not hold, and puts back what changes there."""

    def enter(
        self,
        policy: SandboxPolicy,
        controls: Controls,
        *,
        approved: Collection[str] = (),
        end: Callable[[], None] | None = None,
        lives: Callable[[], bool] = ...,
    ) -> Callable[[], None]:
        """A process is about to start; the function says that it has ended."""
        ...

    def take_notes(self) -> list[str]:
        """What was put back since the last time, for the model."""
        ...

    async def aclose(self) -> None:
        """Compare a last time."""
        ...


class ConfinedCommand(Confined):
    """A command of a model, with the connections that are refused until its release."""

    refused: Refused = field(default_factory=Refused)

    def was_disturbed(self, code: int | None, text: str) -> bool:
        """Whether the sandbox could not be made this time, so that nothing was run.

        To be asked before the release.
        """
        return self.has_run is not None and disturbed(text, code) and not self.has_run()


class Enclosure:
    """The session's sandbox and the proxy to its network, both made when first needed."""

    def __init__(
        self,
        files: PathPolicy,
        confinement: Confinement,
        session_dir: str,
        *,
        cache_dir: str | None = None,
        registry: str | None = None,
        on_blocked: Callable[[Blocked], None] | None = None,
        on_weak: Callable[[], None] | None = None,
        on_none: Callable[[str], None] | None = None,
        watch: Callable[[], Watch] | None = None,
        trees: Callable[[], Collection[Child]] = tuple,
    ) -> None:
        self.unavailable: str | None = None
        """The reason why commands cannot be confined here, once one could not be."""
        self._files = files
        self._confinement = confinement
        self._session_dir = session_dir
        self._cache_dir = cache_dir
        self.registry = registry
        self._on_blocked = on_blocked
        self._on_weak = on_weak
        self._on_none = on_none
        self.why_none = ""
        """The sentence that says that commands do not run here, once that was found out."""
        self._looking = asyncio.Lock()
        self._looked = self._said = False
        self._watch = watch
        self._trees = trees
        self._refused = RefusedConnections()
        self._confining: set[asyncio.Future[Confined]] = set()
        self.stops = Stops()
        self._proxy: NetworkProxy | None = None
        self._box: SessionSandbox | None = None

    @property
    def is_confined(self) -> bool:
        """Whether commands run in a sandbox unless approved to run outside."""
        return self._files.mode != "danger-full-access"

    @property
    def has_own_files(self) -> bool:
        """Whether commands find programs there that are not this machine's."""
        return self.is_confined and self._confinement.backend in OWN_FILES

    @property
    def is_external(self) -> bool:
        """Whether something else confines every program."""
        return self._confinement.external

    @cached_property
    def policy(self) -> SandboxPolicy:
        """The sandbox policy of commands."""
        return self._policy(self._files)

    @property
    def view(self) -> SandboxPolicy:
        """The policy that hides hidden paths, also where commands run unconfined."""
        return self.policy if self.is_confined else self._policy(self._files.read_only())

    def _policy(self, files: PathPolicy) -> SandboxPolicy:
        return SandboxPolicy.from_paths(
            files,
            self._session_dir,
            network=self._confinement.network,
            allowed_hosts=self._confinement.allowed_hosts,
            tmp=self._confinement.tmp,
            host_tmp=self._confinement.host_tmp,
            cache_dir=self._cache_dir,
            require=self._confinement.require,
            external=self._confinement.external,
        )

    @property
    def sandbox(self) -> SessionSandbox:
        """The session's sandbox, made on first use."""
        if self._box is None:
            self._box = SessionSandbox(
                self.policy,
                backend=self._confinement.backend,
                registry=self.registry,
                proxy=self._proxy.for_sandbox() if self._proxy is not None else None,
                container=self._confinement.container,
                rootfs=self._confinement.rootfs,
                limits=self._confinement.limits,
                vm=self._confinement.vm,
            )
        return self._box

    @property
    def weak(self) -> bool:
        """Whether the sandbox that commands run in is a weak one; False until it was found."""
        found = None if self._box is None or not self._may_be_weak else self._box.found
        return found is not None and is_weak(found.controls)

    @property
    def _is_automatic(self) -> bool:
        # The kinds that settings name hold all names, and some of them take long to begin.
        automatic = self._confinement.backend in (None, "landlock")
        return automatic and self.is_confined and not self.is_external

    @property
    def _may_be_weak(self) -> bool:
        return self._is_automatic and bool(self._files.writable_roots)

    async def is_weak(self) -> bool:
        """Whether commands run in a weak sandbox: protected names are watched there, not held.

        Finds the kind of sandbox if no command has needed one yet, and reports a weak one, or
        that none works, once; False where none works.
        """
        if not self._is_automatic:
            return False
        async with self._looking:  # the proxy is started once
            if not self._looked:
                await self.open_network()
                try:
                    await asyncio.to_thread(self.sandbox.is_weak)
                except SandboxUnavailable as error:
                    if error.tried and not self.why_none:
                        self.why_none = self.sandbox.why_none
                        if self._on_none is not None:
                            self._on_none(self.why_none)
                    return False
                self._looked = True
            if self.weak and not self._said:
                self._said = True
                if self._on_weak is not None:
                    self._on_weak()
        return self.weak

    async def has_own_tmp(self) -> bool:
        """Whether commands have folders of their own for temporary files; Landlock gives none."""
        probe = await self._probe()
        return probe is None or probe.backend != "landlock"

    async def _probe(self) -> Probe | None:
        """What the kind of sandbox enforces; None where nothing is confined or no kind works."""
        if not self.is_confined or self.is_external:
            return None
        await self.open_network()
        try:
            return (await asyncio.to_thread(self.sandbox.choose))[0]
        except SandboxUnavailable:
            return None

    async def open_network(self) -> None:
        """Start the proxy of a network allow list, which the first command needs."""
        if self._confinement.network != "allowlist" or self._proxy is not None:
            return
        from toolrest.sandbox.network.proxy import NetworkProxy

        make_private(self._session_dir)
        path = os.path.join(self._session_dir, "proxy.sock")
        proxy = NetworkProxy(
            self._confinement.allowed_hosts,
            path,
            denied=self._confinement.denied_hosts,
            on_blocked=self._note_blocked,
        )
        await proxy.start()
        self._proxy = proxy

    def _note_blocked(self, blocked: Blocked) -> None:
        is_new = self._refused.note(f"{blocked.host}:{blocked.port}")
        if is_new and self._on_blocked is not None:
            self._on_blocked(blocked)

    async def enter(self, command: Command, *, outside: bool) -> ConfinedCommand:
        """The command as it will be started: inside the sandbox, or unchanged when `outside`.

        The network that it may use is open then. Some of the work may be left to the command's
        `ready`, which runs beside its start; what that raises is for `refusal`.
        """
        await self.open_network()
        with self.refusing():
            confined = await self.wrap(command, outside=outside, late=True)
        record = Refused() if outside else self._refused.begin()

        def release() -> None:
            self._refused.end(record)
            confined.release()

        return ConfinedCommand(
            confined.command,
            confined.backend,
            confined.controls,
            release,
            confined.stop,
            confined.has_run,
            record,
        )

    async def boot(self) -> None:
        """Boot the virtual machine of the session, if commands run in one."""
        if self._confinement.backend == "vm" and self.is_confined:
            await self.open_network()
            await asyncio.to_thread(self.sandbox.choose)

    async def wrap(self, command: Command, *, outside: bool, late: bool = False) -> Confined:
        """The same for programs before the decision: SandboxUnavailable when it cannot be.

        In a thread where that takes long. What that thread made for a caller who was cancelled
        meanwhile is released again.
        """
        if outside or not self.is_confined:
            return Confined(command, "none")
        if not self.sandbox.takes_long:
            return self._watched(self.sandbox.confine(command, late=late), command)
        await self.stops.released()  # a container is free then
        work = asyncio.ensure_future(asyncio.to_thread(self.sandbox.confine, command))
        self._confining.add(work)
        work.add_done_callback(self._confining.discard)
        try:
            confined = await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(self._release_unwanted)
            raise
        return self._watched(confined, command)

    def _watched(self, confined: Confined, command: Command) -> Confined:
        """The same, with the names watched that its sandbox does not hold, until its tree ends."""
        if self._watch is None or not self.policy.roots or not self.policy.confines:
            return confined
        before = frozenset(self._trees())
        own: list[frozenset[Child]] = []

        def lives() -> bool:  # without a namespace of its own a command may leave others behind
            own.extend(() if own else [frozenset(self._trees()) - before])
            return not own[0].isdisjoint(self._trees())

        try:
            leave = self._watch().enter(
                self.policy,
                confined.controls,
                approved=command.approved,
                end=self._end_all,
                lives=lives,
            )
        except BaseException:
            self.stops.release_soon(confined)
            raise
        return released_with(confined, leave)

    def _end_all(self) -> None:
        for child in tuple(self._trees()):
            self.stops.keep(child.kill())

    def _release_unwanted(self, work: asyncio.Future[Confined]) -> None:
        if not work.cancelled() and work.exception() is None:
            self.stops.release_soon(work.result())

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Turns the error of a command that cannot be confined into one for the model."""
        try:
            yield
        except SandboxUnavailable as error:
            raise self.refusal(error) from error

    def refusal(self, error: SandboxUnavailable) -> RespondToModel:
        """The error for the model when a command cannot be confined."""
        text = told(error, "\n")
        if not isinstance(error, SandboxBusy | FolderNotShown):
            self.unavailable = text
        said = "No sandbox works here: not run." if error.tried and self.why_none else text
        return RespondToModel(text, kind="sandbox_denied", said=said)

    def look_again(self) -> None:
        """Forget that commands could not be confined: a sandbox may have been installed since."""
        self.unavailable = None

    def blocked(
        self,
        backend: str,
        cwd: str,
        code: int,
        stdout: str,
        stderr: str,
        refused: Refused,
        *,
        proves: bool,
    ) -> Denied | None:
        """What the sandbox blocked, if that is known; `proves`: its exit code is a program's."""
        if backend in ("none", "external"):
            return None
        policy = self.sandbox.policy
        hosts = refused.by_this_command(f"{stdout}\n{stderr}")
        return find_blocked(stdout, stderr, code, backend, policy, cwd, hosts, proves=proves)

    async def aclose(self) -> None:
        """End what the sandbox kept between commands, and close the network proxy."""
        if self._box is not None:
            await asyncio.to_thread(self._box.close)
        if self._confining:
            await asyncio.wait(tuple(self._confining))
        await self.stops.settle()
        if self._proxy is not None:
            await self._proxy.aclose()


class EnforcementNotes:
    """Notes on what is not enforced here, each reported once a session."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._reported: set[str] = set()

    def unreported(self, confined: Confined, taken: Collection[str]) -> tuple[str, ...]:
        """Notes on what is not enforced for this command and was not reported before.

        `taken` are the limits that the session's control group holds.
        """
        found = [
            f"the {confined.backend} sandbox does not enforce {name}: {answer.note}"
            for name, answer in confined.controls.items()
            if answer.level == "none"
        ]
        network = confined.controls.get("network")
        if network is not None and network.level == "partial":
            found.append(f"the {confined.backend} sandbox: {network.note}")
        if self._limits:
            own = confined.backend in OWN_LIMITS
            found += () if own else self._limits.unmet(taken)
        fresh = tuple(note for note in found if note not in self._reported)
        self._reported.update(fresh)
        return fresh


def was_killed(code: int | None) -> bool:
    """Whether a signal ended a command that a client ran, or the shell that ends what it left."""
    return code is None or code >= _SIGNALS


_SIGNALS = 128


class Stops:
    """Ends and releases commands that are not below the process that was started.

    Both may wait for a container or a machine (`PreparedCommand.stop`): not on the event loop.
    """

    def __init__(self) -> None:
        self._stopping: set[asyncio.Task[Any]] = set()
        self._releasing: set[asyncio.Task[Any]] = set()

    async def stop(self, confined: Confined) -> None:
        """End a command for sure, even when cancelled."""
        if confined.stop is not None:
            await uncancelled(asyncio.ensure_future(asyncio.to_thread(confined.stop)))

    async def release(self, confined: Confined) -> None:
        """Release a command that has ended, even when cancelled."""
        if confined.stop is None:
            confined.release()
        else:
            await uncancelled(asyncio.ensure_future(asyncio.to_thread(confined.release)))

    def stop_soon(self, confined: Confined) -> None:
        """End a command for sure without waiting for it, and release it then."""
        if confined.stop is None:
            confined.release()
        else:
            _keep(self._stopping, self._stop(confined))

    def release_soon(self, confined: Confined) -> None:
        """Release a command that has ended, without waiting for that."""
        if confined.stop is None:
            confined.release()
        else:
            _keep(self._releasing, self.release(confined))

    async def released(self) -> None:
        """Wait for all that is being released."""
        while self._releasing:
            await asyncio.wait(tuple(self._releasing))

    def keep(self, work: Coroutine[Any, Any, object]) -> None:
        """Let this go on, and wait for it at the end."""
        _keep(self._stopping, work)

    async def settle(self) -> None:
        """Wait for all that is being ended or released."""
        while tasks := (*self._stopping, *self._releasing):
            await asyncio.wait(tasks)

    async def _stop(self, confined: Confined) -> None:
        try:
            await self.stop(confined)
        finally:
            await self.release(confined)


def released_with(confined: Confined, leave: Callable[[], None]) -> Confined:
    """The same command; its release also calls `leave`, on this event loop."""
    loop, release = asyncio.get_running_loop(), confined.release

    def both() -> None:
        try:
            release()
        finally:
            if confined.stop is None:
                leave()
            else:  # which is released in a thread
                loop.call_soon_threadsafe(leave)

    confined.release = both
    return confined


def _keep(tasks: set[asyncio.Task[Any]], work: Coroutine[Any, Any, object]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
