"""Confinement of one session's programs: sandbox, network proxy, enforcement notes, containers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, field

from toolrest.errors import RespondToModel
from toolrest.policy.paths.policy import PathPolicy
from toolrest.private_files import make_private
from toolrest.process.command import Command
from toolrest.process.limits import Limits
from toolrest.process.shells.environment import EnvironmentPolicy
from toolrest.process.wakeup import uncancelled
from toolrest.sandbox.backends.container import OWN_LIMITS, ContainerOptions
from toolrest.sandbox.confine import Backend, Confined, Sandbox
from toolrest.sandbox.denial import blocked_words, disturbed
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.sandbox.policy import Control, Network, SandboxPolicy, Tmp
from toolrest.sandbox.vm.options import VmOptions

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
    ) -> None:
        self.unavailable: str | None = None
        """The reason why commands cannot be confined here, once one could not be."""
        self._files = files
        self._confinement = confinement
        self._session_dir = session_dir
        self._cache_dir = cache_dir
        self.registry = registry
        self._on_blocked = on_blocked
        self._turned_away: list[str] = []
        self._proxy: NetworkProxy | None = None
        self._box: Sandbox | None = None

    @property
    def is_confined(self) -> bool:
        """Whether commands run in a sandbox unless approved to run outside."""
        return self._files.mode != "danger-full-access"

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
    def sandbox(self) -> Sandbox:
        """The session's sandbox, made on first use."""
        if self._box is None:
            self._box = Sandbox(
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
        self._turned_away.append(f"{blocked.host}:{blocked.port}")
        if self._on_blocked is not None:
            self._on_blocked(blocked)

    async def enter(self, command: Command, *, outside: bool) -> Confined:
        """Open the network that the command may use, then `confine` it."""
        await self.open_network()
        if outside or not self.is_confined or not self.sandbox.takes_long:
            return self.confine(command, outside=outside, late=True)
        return await asyncio.to_thread(self.confine, command, outside=False)

    async def boot(self) -> None:
        """Boot the virtual machine of the session, if commands run in one."""
        if self._confinement.backend == "vm" and self.is_confined:
            await self.open_network()
            await asyncio.to_thread(self.sandbox.choose)

    def confine(self, command: Command, *, outside: bool, late: bool = False) -> Confined:
        """The command as it will be started: inside the sandbox, or unchanged when `outside`.

        With `late` some of the work is left to the command's `ready`, which runs beside its start;
        what that raises is for `refusal`.
        """
        try:
            return self.wrap(command, outside=outside, late=late)
        except SandboxUnavailable as error:
            raise self.refusal(error) from error

    def wrap(self, command: Command, *, outside: bool, late: bool = False) -> Confined:
        """The same for programs before the decision: SandboxUnavailable when it cannot be."""
        if outside or not self.is_confined:
            return Confined(command, "none")
        return self.sandbox.confine(command, late=late)

    def refusal(self, error: SandboxUnavailable) -> RespondToModel:
        """The error for the model when a command cannot be confined."""
        if not isinstance(error, SandboxBusy):
            self.unavailable = str(error)
        return RespondToModel(str(error), kind="sandbox_denied")

    def blocked(self, backend: str, cwd: str, code: int, stdout: str, stderr: str) -> str | None:
        """A message for the model when the sandbox caused a failure, else None."""
        hosts, self._turned_away = self._turned_away, []
        if backend in ("none", "external"):
            return None
        policy = self.sandbox.policy
        return blocked_words(stdout, stderr, code, backend, policy, cwd, hosts)

    def disturbed(self, backend: str, code: int | None, text: str) -> tuple[str, ...]:
        """A note when the sandbox could not be made this time, so that nothing was run."""
        if backend != "bubblewrap" or code != 1:
            return ()
        return disturbed(text, code)

    async def aclose(self) -> None:
        """End what the sandbox kept between commands, and close the network proxy."""
        if self._box is not None:
            await asyncio.to_thread(self._box.close)
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
    """Ends commands that are not below the process that was started (`PreparedCommand.stop`)."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self, confined: Confined) -> None:
        """End a command for sure, even when cancelled."""
        if confined.stop is not None:
            await uncancelled(asyncio.ensure_future(asyncio.to_thread(confined.stop)))

    def stop_soon(self, confined: Confined) -> None:
        """End a command for sure without waiting for it, and release it then."""
        if confined.stop is None:
            confined.release()
            return
        task = asyncio.get_running_loop().create_task(self._stop(confined))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for all that is being ended."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _stop(self, confined: Confined) -> None:
        try:
            await self.stop(confined)
        finally:
            confined.release()
