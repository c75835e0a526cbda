"""The sandbox of a session: it turns a command into the same command, confined.

Never unconfined by accident: without a backend that enforces what the policy requires, the
answer is an error with a remedy, not a command.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from toolrest.config.files import placeholder_records, toolrest_home, vm_folder
from toolrest.errors import ConfigError
from toolrest.process.command import Command
from toolrest.process.limits import Limits
from toolrest.sandbox.backends.container.engine import ContainerOptions
from toolrest.sandbox.backends.engine import Controls, Engine, Proxy, gaps, once, unmet
from toolrest.sandbox.backends.probe import (
    Probe,
    bubblewrap_runs,
    bwrap_programs,
    probe_bubblewrap,
    probe_container,
    probe_gvisor,
    probe_landlock,
)
from toolrest.sandbox.errors import FolderNotShown, SandboxUnavailable
from toolrest.sandbox.guard.neighbours import Neighbours
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.vm.options import VmOptions
from toolrest.sandbox.weak import NO_SANDBOX, OWN_FILES_IN_REACH, is_weak

Backend: TypeAlias = Literal["bubblewrap", "landlock", "docker", "chroot", "gvisor", "vm"]

OWN_FILES: tuple[Backend, ...] = ("docker", "chroot", "vm")
"""Kinds with programs of their own, and so with a PATH of their own."""

_REMEDY = "`toolrest doctor` says what is missing."
_REMEDY_FOR_ONE = (
    "`toolrest doctor` says what is missing; without sandbox_policy the best that works is used."
)


class Confined(Struct):
    """A command ready to start. Call `release` when its whole tree has ended, not before."""

    command: Command
    backend: str
    controls: Controls = field(default_factory=dict)
    release: Callable[[], None] = lambda: None
    stop: Callable[[], None] | None = None
    """Ends the command where killing what was started does not; see `PreparedCommand`."""
    has_run: Callable[[], bool] | None = None
    """Whether the command itself was started, not only its launcher; see `PreparedCommand`."""

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is not enforced in full, one sentence each."""
        return gaps(self.controls)


class SessionSandbox:
    """The confinement of one session: probes once, then confines command after command."""

    def __init__(
        self,
        policy: SandboxPolicy,
        *,
        backend: Backend | None = None,
        registry: str | None = None,
        proxy: Proxy | None = None,
        container: ContainerOptions | None = None,
        rootfs: str | None = None,
        limits: Limits | None = None,
        vm: VmOptions | None = None,
    ) -> None:
        if backend == "chroot" and rootfs is None:
            raise ConfigError("sandbox_policy: 'chroot' needs the folder of a root file system")
        self.policy = policy
        self.wanted = backend
        self.proxy = proxy
        self.container = container or ContainerOptions()
        self.rootfs = rootfs
        self.limits = limits
        self.vm = vm
        self.registry = registry or default_registry()
        self._neighbours = Neighbours(policy, self.registry)
        self.tried: list[Probe] = []
        self._chosen: tuple[Probe, Engine] | None = None
        self._mutex = threading.Lock()
        self._closed = threading.Event()

    def confine(self, command: Command, *, late: bool = False) -> Confined:
        """The command under the session's policy; raises SandboxUnavailable, never runs it bare.

        With `late` the command's own `ready` may raise it instead.
        """
        if not self.policy.confines:
            return Confined(command, "none" if self.policy.mode != "external" else "external")
        _check_places(self.policy)
        probe, engine = self.choose()
        locks = self._neighbours.enter()
        try:
            ready = engine.confine(command, late=late)
        except BaseException:
            self._neighbours.leave()
            raise

        def release() -> None:
            try:
                ready.release()
            finally:
                leave()

        leave = once(self._neighbours.leave)
        confined = replace(ready.command, held=(*ready.command.held, *locks))
        return Confined(confined, engine.name, probe.controls, release, ready.stop, ready.has_run)

    def close(self) -> None:
        """End what the backend kept between commands; one that is just being chosen ends itself."""
        self._closed.set()
        if not self._mutex.acquire(blocking=False):
            return  # `choose` calls this again, instead of keeping us waiting for a pull or a boot
        try:
            chosen, self._chosen = self._chosen, None
        finally:
            self._mutex.release()
        if chosen is not None:
            chosen[1].close()

    @property
    def takes_long(self) -> bool:
        """Whether confining a command may boot or probe something: not on an event loop."""
        return self._chosen is None or self.wanted in ("docker", "vm")

    @property
    def found(self) -> Probe | None:
        """The backend that was chosen; None before."""
        chosen = self._chosen
        return None if chosen is None else chosen[0]

    @property
    def why_none(self) -> str:
        """The sentence for a person where nothing that was tried is enough."""
        for probe in self.tried:
            lacking = unmet(probe.controls, self.policy.require) if probe.works else []
            if len(lacking) == 1 and unmet(probe.controls, ("own_files",)) == lacking:
                return OWN_FILES_IN_REACH
        return NO_SANDBOX

    def is_weak(self) -> bool:
        """Find out whether the backend is a weak one; nothing is put into the workspace if not."""
        if self._chosen is None and self.wanted is None:
            programs = bwrap_programs(self.policy.tool_roots)
            if any(bubblewrap_runs(self.policy, program) for program in programs):
                return False  # it holds all names, or no command runs in this workspace
        return is_weak(self.choose()[0].controls)

    def choose(self) -> tuple[Probe, Engine]:
        """The best backend that works; found on first use and then kept."""
        with self._mutex:
            if self._chosen is None and not self._closed.is_set():
                self._chosen = self._search()
            chosen = self._chosen
        if chosen is None or self._closed.is_set():
            self.close()
            raise SandboxUnavailable("sandbox: the session is closed, so the command was not run.")
        return chosen

    def _search(self) -> tuple[Probe, Engine]:
        self._check_network()
        self.tried.clear()
        for probe, engine in self._candidates():
            self.tried.append(probe)
            if engine is not None and not unmet(probe.controls, self.policy.require):
                if engine.name == "landlock":
                    self.policy = self.policy.without_list()
                return probe, engine
        raise self._nothing_works()

    def _check_network(self) -> None:
        if self.policy.network == "allowlist" and self.proxy is None:
            raise SandboxUnavailable("sandbox: the network allowlist needs its proxy running first")

    def _candidates(self) -> Iterator[tuple[Probe, Engine | None]]:
        """In order of preference; each is run only when the ones before were not enough.

        An older bubblewrap without overlays comes after a newer one that has them.
        """
        if self.wanted == "docker":
            yield probe_container(
                self.policy,
                self.container,
                self.registry,
                proxy=self.proxy,
                limits=self.limits,
                closed=self._closed,
            )
        if self.wanted == "gvisor":
            yield self._gvisor()
        if self.wanted == "vm":
            yield self._virtual_machine()
        if self.wanted in (None, "bubblewrap", "chroot"):
            yield from self._bubblewraps()
        if self.wanted in (None, "landlock"):
            yield probe_landlock(self.policy)

    def _bubblewraps(self) -> Iterator[tuple[Probe, Engine | None]]:
        programs = bwrap_programs(self.policy.tool_roots)
        if not programs:
            yield Probe("bubblewrap", False, "not installed"), None
        for overlays in (True, False):
            for program in programs:
                yield probe_bubblewrap(
                    self.policy,
                    program,
                    self.registry,
                    overlays=overlays,
                    proxy=self.proxy,
                    rootfs=self.rootfs if self.wanted == "chroot" else None,
                    neighbours=self._neighbours,
                )

    def _gvisor(self) -> tuple[Probe, Engine | None]:
        programs = bwrap_programs(self.policy.tool_roots)
        if not programs:
            return Probe("gvisor", False, "needs bubblewrap, which is not installed"), None
        return probe_gvisor(
            self.policy,
            programs[0],
            self.registry,
            proxy=self.proxy,
            neighbours=self._neighbours,
        )

    def _virtual_machine(self) -> tuple[Probe, Engine]:
        # Few sessions are in one.
        from toolrest.sandbox.vm.probe import probe_vm

        options = self.vm or VmOptions(vm_folder(toolrest_home(None, os.environ)))
        return probe_vm(
            self.policy,
            options,
            self.registry,
            proxy=self.proxy,
            limits=self.limits,
            closed=self._closed,
            neighbours=self._neighbours,
        )

    def _nothing_works(self) -> SandboxUnavailable:
        reasons, tried = [], []
        for probe in self.tried:
            lacking = unmet(probe.controls, self.policy.require) if probe.works else []
            reason = "; ".join(lacking) or probe.detail.removeprefix("sandbox: ").rstrip(".")
            where = f"{probe.backend} ({probe.program})" if probe.program else probe.backend
            reasons.append(f"{probe.backend}: {reason}")
            tried.append(f"{where}: {reason}")
        return SandboxUnavailable(
            "sandbox: none works here, so the command was not run "
            f"({', '.join(dict.fromkeys(reasons))}).",
            remedy=_REMEDY if self.wanted is None else _REMEDY_FOR_ONE,
            tried=tuple(tried),
        )


def _check_places(policy: SandboxPolicy) -> None:
    """Raises where a folder that is to be shown has become a link, which could lead anywhere."""
    for path in policy.roots or (policy.workspace,):
        if os.path.realpath(path) != path:
            raise FolderNotShown(
                f"sandbox: {path} is reached through a symbolic link since the session began, so"
                " the command was not run.",
                remedy="Put the folder back, or start another session in the one that is meant.",
            )


def default_registry() -> str:
    """Where all sessions of this user record their mount points."""
    return placeholder_records(toolrest_home(None, os.environ))
