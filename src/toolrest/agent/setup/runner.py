"""The runner of a session's programs, from its settings. Loaded with the first program."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolrest.agent.path_policy import path_policy, shared_tmp
from toolrest.config.files import placeholder_records, vm_folder
from toolrest.config.secrets import key_variables
from toolrest.events import (
    ConnectionBlocked,
    Warning,  # noqa: A004 - the event
    WeakSandbox,
)
from toolrest.gate.approval.user_rules import SessionRules
from toolrest.policy.modes import network_of
from toolrest.policy.paths.names import inside
from toolrest.private_files import make_private
from toolrest.process.limits import Limits
from toolrest.process.shells.environment import EnvironmentPolicy
from toolrest.running.confinement import Confinement
from toolrest.running.runner import Runner
from toolrest.sandbox.backends.container.engine import ContainerOptions
from toolrest.sandbox.vm.options import VmOptions
from toolrest.sandbox.weak import WEAK, WEAK_SENTENCE
from toolrest.tools.files.apply_patch import ApplyPatch

if TYPE_CHECKING:
    from toolrest.agent.undo.watch import Watch
    from toolrest.config import Config, Settings
    from toolrest.gate.session import Ground, Lazy
    from toolrest.gate.tool.registry import Registry
    from toolrest.policy.paths.policy import PathPolicy
    from toolrest.running.tally import CommandCount
    from toolrest.sandbox.confine import Backend
    from toolrest.sandbox.network.tunnel import Blocked
    from toolrest.sandbox.policy import Network


_COLUMNS = 80


def session_runner(ground: Ground, commands: CommandCount, registry: Registry) -> Runner:
    """The runner of a session's programs."""

    def blocked(what: Blocked) -> None:
        ground.bus.emit(ConnectionBlocked(host=what.host, port=what.port, protocol=what.protocol))

    def weak() -> None:
        message = WEAK if ground.settings.sandbox.accept_weak else WEAK_SENTENCE
        conversation = ground.conversation.value
        if conversation is not None and not conversation.says_weak_sandbox(message):
            message = WEAK
        ground.bus.emit(WeakSandbox(message=message))

    def none(message: str) -> None:
        ground.bus.emit(Warning(message=message))

    confinement = confinement_of(ground.settings, external=ground.config.external)
    confinement = ground.known.confined(confinement)
    config, files = ground.config, ground.files

    def columns() -> int:
        return _COLUMNS if ground.columns.value is None else ground.columns.value()

    return _runner(
        config,
        files,
        ground.id,
        ground.environ,
        confinement,
        blocked,
        weak,
        none,
        commands,
        ground.watch,
        columns,
        patches=ApplyPatch.name in registry,
    )


def _runner(
    config: Config,
    files: PathPolicy,
    session_id: str,
    environ: Mapping[str, str],
    confinement: Confinement,
    blocked: Callable[[Blocked], None] | None = None,
    weak: Callable[[], None] | None = None,
    none: Callable[[str], None] | None = None,
    commands: CommandCount | None = None,
    watch: Lazy[Watch] | None = None,
    columns: Callable[[], int] = lambda: _COLUMNS,
    *,
    patches: bool = False,
) -> Runner:
    if confinement.backend == "vm":
        for path in files.shown:  # a folder that comes later would have the machine boot again
            if inside(path, config.home):
                make_private(path)
        options = VmOptions(vm_folder(config.home), config.value.sandbox.vm)
        confinement = replace(confinement, vm=options)
    return Runner(
        files,
        os.path.join(config.home, "run", session_id),
        confinement,
        environ,
        cache_dir=os.path.join(config.home, "cache"),
        registry=placeholder_records(config.home),
        thread_id=session_id,
        on_blocked=blocked,
        on_weak=weak,
        on_none=none,
        tally=commands,
        watch=watch,
        watch_record="" if watch is None else watch().folder,
        columns=columns,
        patches=patches,
    )


def confinement_of(settings: Settings, *, external: bool = False) -> Confinement:
    """The confinement of the settings; `external` where something else confines programs."""
    variables = settings.shell_environment_policy
    return Confinement(
        network="on" if external else network_of(settings),
        allowed_hosts=settings.tool_security.allowed_network_domains or (),
        tmp=settings.sandbox_tmp,
        host_tmp=shared_tmp(settings),
        backend=settings.sandbox_policy,
        container=_container(settings),
        rootfs=settings.sandbox.rootfs,
        environment=EnvironmentPolicy(
            inherit=variables.inherit,
            ignore_default_excludes=variables.ignore_default_excludes,
            exclude=variables.exclude,
            include_only=variables.include_only,
            set=variables.set,
            never=key_variables(settings),
        ),
        require=settings.sandbox.require,
        max_commands=settings.tool_security.max_shell_commands_per_session,
        limits=Limits(settings.limits.processes, settings.limits.memory, settings.limits.file_size),
        external=external,
    )


def standalone_runner(
    config: Config,
    environ: Mapping[str, str],
    *,
    network: Network | None = "off",
    hosts: tuple[str, ...] = (),
    backend: Backend | None = None,
) -> Runner:
    """A runner without a session; without `network`, with the network of a session."""
    files = path_policy(config, config.workspace or os.getcwd())
    session_id = f"sandbox-{uuid.uuid4().hex}"
    confinement = confinement_of(config.value)
    if network is None:
        confinement = SessionRules(config, files.workspace, session_id).confined(confinement)
    else:
        confinement = replace(confinement, network=network, allowed_hosts=hosts)
    if backend is not None:
        confinement = replace(confinement, backend=backend)
    return _runner(config, files, session_id, environ, confinement)


def _container(settings: Settings) -> ContainerOptions:
    options = settings.sandbox
    return ContainerOptions(
        options.image,
        options.engine,
        options.engine_args,
        options.run_args,
        options.user,
        options.read_only_root,
        options.pull,
    )
