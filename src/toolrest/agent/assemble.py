"""From settings to a session: every part built once, put together in one place."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolrest.agent.hook_setup import session_hooks
from toolrest.agent.mcp_setup import McpServers, mcp_servers
from toolrest.agent.remember import Remembered, kept_from_writing
from toolrest.agent.resume import deferring
from toolrest.agent.skill_setup import SessionSkills, skills_folder
from toolrest.agent.web_setup import offers_search, search_options, web_options
from toolrest.errors import ConfigError
from toolrest.events import ConnectionBlocked
from toolrest.gate.approval import Approvals, OnAsk
from toolrest.gate.bus import Bus
from toolrest.gate.context import Services
from toolrest.gate.decide import Decider
from toolrest.gate.limits import Limit, Limiter
from toolrest.gate.redact import Redactor
from toolrest.gate.registry import Registry
from toolrest.gate.scheduler import Scheduler
from toolrest.gate.spill import Spill
from toolrest.gate.walk import Gate
from toolrest.lazy_dataclass import dataclass, replace
from toolrest.policy.paths import PathPolicy

if TYPE_CHECKING:
    from toolrest.agent.undo.hook import Saver
    from toolrest.config import Config, Settings
    from toolrest.gate.audit import AuditLog
    from toolrest.gate.enclosure import Confinement
    from toolrest.gate.questions import OnQuestion, Questions
    from toolrest.gate.runner import Runner
    from toolrest.gate.tally import Tally
    from toolrest.sandbox.confine import Backend
    from toolrest.sandbox.container import ContainerOptions
    from toolrest.sandbox.policy import Network
    from toolrest.sandbox.tunnel import Blocked
    from toolrest.tools.commands import Surroundings


@dataclass(slots=True)
class Session:
    """A gate and what has to be closed after it."""

    gate: Gate
    spill: Spill
    audit: AuditLog | None
    known: Remembered
    """The user's rules, overrides and earlier answers."""
    saver: Saver | None = None
    mcp: McpServers | None = None
    skills: SessionSkills | None = None

    async def aclose(self) -> None:
        """End the session's programs and close its own files."""
        if self.mcp is not None:
            await self.mcp.aclose()
        runner = self.gate.services.runner
        if runner is not None:
            await runner.aclose()
        if self.gate.hooks is not None:
            await self.gate.hooks.hooks.aclose()
        self.gate.deadlines.close()
        self.spill.close()
        if self.audit is not None:
            self.audit.close()


def assemble(
    config: Config,
    *,
    workspace: str,
    session_id: str,
    on_ask: OnAsk,
    environ: Mapping[str, str],
    parent: Services | None = None,
    on_question: OnQuestion | None = None,
) -> Session:
    """Build a session. Nothing is written to disk before the first call needs it.

    A sub-agent's session shares its parent's MCP servers, session grants, count of commands and
    what it must not send out.
    """
    from toolrest.tools.catalog import built_in, switched_on, web_tools

    settings = config.value
    spill = Spill(config.home, session_id)
    redactor = _redactor(settings, environ)
    files = path_policy(config, workspace, (spill.path, *skills_folder(config.home)))
    bus = Bus(redactor)
    limiter = _limiter(config, redactor, spill)
    services = Services(
        session_id,
        files,
        bus,
        redactor,
        Approvals(bus, on_ask, settings.on_ask, lambda: deferring(config, files, session_id, bus)),
        make_runner=lambda: _runner(
            config,
            files,
            session_id,
            environ,
            known.confined(_confinement(settings)),
            bus=bus,
            tally=services.tally,
        ),
        limit=_family_limit(config),
        limiter=limiter,
        approval_policy=settings.approval_policy,
        legacy_encoding=settings.legacy_encoding,
    )
    if settings.approval_policy in ("never", "dangerous"):
        services.approvals.silent = settings.approval_policy
    shared = None if parent is None else parent.known
    known = services.known = Remembered(config, files.workspace, session_id, shared)
    services.questions = _questions(settings, bus, on_question or getattr(on_ask, "ask_user", None))
    tools = built_in(
        settings.tools,
        config.family,
        lambda: _surroundings(settings, files),
        asks=services.questions is not None,
    )
    tools += web_tools(
        lambda: web_options(settings),
        (lambda: search_options(settings, environ)) if offers_search(settings) else None,
    )
    skills = SessionSkills(config, files, environ)
    tools.append(skills.tool())
    gate = Gate(
        services,
        Registry(switched_on(tools, settings.tools)),
        Decider(
            files,
            settings.approval_policy,
            full_access=settings.sandbox_mode == "danger-full-access",
            network=settings.sandbox_workspace_write.network_access,
            overrides=known.overrides,
        ),
        limiter,
        Scheduler(settings.max_parallel_calls),
        default_timeout=settings.tool_timeout_sec,
        max_calls=settings.max_calls_per_session,
    )
    # With full access a command may reach anywhere: asking about the rest would only pretend.
    services.taint.enabled = (
        settings.tool_security.ask_after_external_content
        and settings.sandbox_mode != "danger-full-access"
    )
    gate.hooks = session_hooks(settings, services, environ)
    audit = _listeners(config, session_id, files, bus)
    if audit is not None:
        gate.sync_soon = audit.sync_soon
    servers = None
    if parent is None:
        servers = mcp_servers(config, services, gate.registry, environ)
    else:
        services.mcp, services.make_mcp = parent.mcp, parent.make_mcp
        services.tally, services.taint = parent.tally, parent.taint
    saver = _saver(config, files, session_id if parent is None else parent.session_id)
    return Session(gate, spill, audit, known, saver, servers, skills)


def _questions(settings: Settings, bus: Bus, on_question: OnQuestion | None) -> Questions | None:
    """Who answers a model's questions in words; None when nobody does."""
    answers = settings.user_input.answers
    if on_question is None and not answers:
        return None
    from toolrest.gate.questions import Questions

    return Questions(bus, on_question, answers)


def _saver(config: Config, files: PathPolicy, session_id: str) -> Saver | None:
    settings = config.value.checkpoints
    if not settings.enabled:
        return None
    from toolrest.agent.undo.hook import Saver

    return Saver(
        config.home, files.workspace, session_id, settings.max_file_size, settings.max_size
    )


def path_policy(config: Config, workspace: str, exceptions: tuple[str, ...] = ()) -> PathPolicy:
    """The one path policy of a session: for its file tools, and compiled into its sandbox."""
    settings = config.value
    return PathPolicy(
        workspace,
        mode=settings.sandbox_mode,
        writable_roots=settings.sandbox_workspace_write.writable_roots,
        read_roots=settings.read_roots,
        hidden=settings.hidden_paths,
        toolrest_home=config.home,
        exceptions=exceptions,
        protected=kept_from_writing(config, os.path.realpath(workspace)),
        max_file_size=settings.tool_security.max_file_access_size,
    )


def _redactor(settings: Settings, environ: Mapping[str, str]) -> Redactor:
    from toolrest.config.provider_secrets import key_values, key_variables
    from toolrest.config.secret_names import SECRET_NAMES
    from toolrest.config.server_secrets import server_values, server_variables

    variables = (*key_variables(settings), *server_variables(settings))
    return Redactor.from_env(
        {**environ, **key_values(settings), **server_values(settings)},
        names=(*SECRET_NAMES, *variables, *settings.redact.names),
        patterns=settings.redact.patterns,
    )


def _runner(
    config: Config,
    files: PathPolicy,
    session_id: str,
    environ: Mapping[str, str],
    confinement: Confinement | None = None,
    bus: Bus | None = None,
    tally: Tally | None = None,
) -> Runner:
    from toolrest.gate.runner import Runner

    def blocked(what: Blocked) -> None:
        if bus is not None:
            bus.emit(ConnectionBlocked(host=what.host, port=what.port, protocol=what.protocol))

    return Runner(
        files,
        os.path.join(config.home, "run", session_id),
        confinement or _confinement(config.value),
        environ,
        cache_dir=os.path.join(config.home, "cache"),
        registry=os.path.join(config.home, "run", "mountpoints"),
        thread_id=session_id,
        on_blocked=blocked,
        tally=tally,
    )


def shared_tmp(settings: Settings) -> tuple[str, ...] | None:
    """The host's folders for temporary files that commands may write, where they share them."""
    if settings.sandbox_tmp == "private":
        return None
    from toolrest.sandbox.policy import host_tmp_folders

    roots = settings.sandbox_workspace_write
    return host_tmp_folders(
        slash_tmp=not roots.exclude_slash_tmp, tmpdir=not roots.exclude_tmpdir_env_var
    )


def _confinement(settings: Settings) -> Confinement:
    from toolrest.config.provider_secrets import key_variables
    from toolrest.gate.enclosure import Confinement
    from toolrest.process.environ import EnvironmentPolicy
    from toolrest.process.limits import Limits

    variables = settings.shell_environment_policy
    return Confinement(
        network=network_of(settings),
        allowed_hosts=settings.tool_security.allowed_network_domains,
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
    )


def standalone_runner(
    config: Config,
    environ: Mapping[str, str],
    *,
    network: Network = "off",
    hosts: tuple[str, ...] = (),
    backend: Backend | None = None,
) -> Runner:
    """What a session's commands run with, without the session."""
    files = path_policy(config, config.workspace or os.getcwd())
    settled = _confinement(config.value)
    confinement = replace(
        settled, network=network, allowed_hosts=hosts, backend=backend or settled.backend
    )
    return _runner(config, files, f"sandbox-{uuid.uuid4().hex}", environ, confinement)


def _container(settings: Settings) -> ContainerOptions | None:
    from toolrest.sandbox.container import ContainerOptions

    options = settings.sandbox
    if settings.sandbox_policy != "docker":
        return None
    if options.image is None:
        raise ConfigError('sandbox_policy = "docker" needs sandbox.image, the image to run in')
    return ContainerOptions(
        options.image,
        options.engine,
        options.engine_args,
        options.run_args,
        options.user,
        options.read_only_root,
    )


def network_of(settings: Settings) -> Network:
    """All of it, the listed hosts, or none."""
    if settings.sandbox_workspace_write.network_access:
        return "on"
    return "allowlist" if settings.tool_security.allowed_network_domains else "off"


def _surroundings(settings: Settings, files: PathPolicy) -> Surroundings:
    from toolrest.tools.commands import Surroundings

    return Surroundings(
        settings.sandbox_mode, files.writable_roots, network_of(settings), settings.approval_policy
    )


def _family_limit(config: Config) -> Limit | None:
    truncation = config.family.truncation
    return None if truncation is None else Limit(truncation.limit, truncation.mode)


def _limiter(config: Config, redactor: Redactor, spill: Spill) -> Limiter:
    return Limiter(
        _family_limit(config),
        ceiling=config.value.tool_result_max_chars,
        ceilings=config.value.tools.limits,
        redactor=redactor,
        spill=spill,
    )


def _listeners(config: Config, session_id: str, files: PathPolicy, bus: Bus) -> AuditLog | None:
    from toolrest.gate.telemetry import subscribe_telemetry

    subscribe_telemetry(bus, enabled=config.value.otel.enabled)
    if not config.value.tool_security.audit_log_enabled:
        return None
    from toolrest.gate.audit import AuditLog

    # With full access every folder is writable and nothing can keep the log from a program; the
    # folders that the user named are still no place for it.
    roots = (files.workspace, *config.value.sandbox_workspace_write.writable_roots)
    audit = AuditLog(
        config.audit_folder,
        session_id,
        home=config.home,
        writable_roots=roots,
        facts={
            "workspace": files.workspace,
            "approval_policy": config.value.approval_policy,
            "sandbox_mode": config.value.sandbox_mode,
        },
    )
    bus.subscribe(audit.on_event)
    return audit


def default_workspace(path: str | os.PathLike[str] | None) -> str:
    """The folder given, else the current one; must exist."""
    try:
        workspace = os.path.realpath(path if path is not None else os.getcwd())
    except FileNotFoundError:
        raise ConfigError("the current folder is gone; change to another, or name one") from None
    if not os.path.isdir(workspace):
        raise ConfigError(f"the workspace {workspace} is not a folder")
    return workspace
