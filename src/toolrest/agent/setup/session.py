"""Make a session from its settings: every part once, in one place."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from toolrest import events
from toolrest.agent.mcp.setup import mcp_servers, no_servers
from toolrest.agent.path_policy import path_policy
from toolrest.agent.setup.hooks import session_hooks
from toolrest.agent.undo.turn_checkpoint import Saver
from toolrest.config.secrets import (
    SECRET_NAMES,
    key_values,
    key_variables,
    server_values,
    server_variables,
)
from toolrest.gate.approval.approvals import Approvals, OnAsk
from toolrest.gate.approval.user_rules import SessionRules
from toolrest.gate.approval.waiting import WaitingRequests
from toolrest.gate.audit.log import AuditLog
from toolrest.gate.bus import Bus
from toolrest.gate.call.deadlines import Deadlines
from toolrest.gate.call.schedule import Quota, Scheduler
from toolrest.gate.decision.decide import Decider
from toolrest.gate.decision.mode_limit import ModeLimit
from toolrest.gate.decision.repeated_calls import LoopWatch
from toolrest.gate.decision.taint import Taint
from toolrest.gate.files_read import FilesRead
from toolrest.gate.output.limiter import Limiter
from toolrest.gate.output.redact import Redactor
from toolrest.gate.output.spill import Spill
from toolrest.gate.output.truncate import Limit
from toolrest.gate.session import Ground, Late, Lazy, Session, Shared
from toolrest.gate.tool.registry import Registry
from toolrest.policy.paths.imports import guard_imports
from toolrest.policy.paths.policy import PathPolicy
from toolrest.tools.catalog import built_in, switched_on
from toolrest.tools.shell.open_commands import OpenCommands
from toolrest.tools.skill_folders import SessionSkills, skills_folder
from toolrest.wire.stored_keys import stored_keys

if TYPE_CHECKING:
    from toolrest.agent.mcp.access import HostCall, McpAccess
    from toolrest.agent.offer import NamedTools
    from toolrest.agent.undo.watch import Watch
    from toolrest.config import Config, Settings
    from toolrest.gate.approval.pending_store import FileApprovals
    from toolrest.gate.approval.user_questions import OnQuestion, QuestionChannel
    from toolrest.gate.session import Replies
    from toolrest.mcp.pool import Pool
    from toolrest.running.runner import Runner
    from toolrest.running.tally import CommandCount


_log = logging.getLogger("toolrest")


def make_session(
    config: Config,
    *,
    workspace: str,
    session_id: str,
    on_ask: OnAsk,
    environ: Mapping[str, str],
    call: HostCall,
    on_question: OnQuestion | None = None,
    named: NamedTools | None = None,
    deps: Any = None,
    shares: Shared | None = None,
) -> Session:
    """Make a session, whole. Nothing is written to disk before the first call needs it.

    Built-in tools that are `named` are there whatever the settings say. `call` makes a call of the
    host's.
    """
    settings = config.value
    shared = shares or Shared(mode=ModeLimit(), taint=_taint(settings))
    spill = Spill(config.home, session_id)
    redactor = redactor_for(config, environ)
    files = path_policy(config, workspace, (spill.path, *skills_folder(config.home)))
    guard_imports(files.tool_roots)
    bus = Bus(redactor)
    limiter = _limiter(config, redactor, spill)
    saver = _saver(config, files, bus, shared.undo_id or session_id)
    watch = shared.watch or Lazy(lambda: _watch(config, files, bus, saver, session_id))
    if saver is not None:
        saver.watch = watch
    ground = Ground(
        id=session_id,
        config=config,
        settings=settings,
        environ=environ,
        files=files,
        bus=bus,
        redactor=redactor,
        known=SessionRules(config, files.workspace, session_id, shared.known),
        mode=shared.mode,
        approvals=_approvals(config, files, session_id, bus, on_ask, shared.approvals),
        skills=SessionSkills(config, files, environ),
        conversation=Late(),
        watch=watch,
        columns=Late(),
        sampler=Late(),
    )
    questions = _questions(ground, on_question or getattr(on_ask, "ask_user", None))
    tools = built_in(ground, answers=questions is not None, named=named.names if named else ())
    registry = Registry(switched_on(tools, settings.tools), named)
    hooks = session_hooks(ground)
    audit = _listeners(ground)
    servers = mcp_servers(ground, registry) if shared.pool is None else None
    pool = shared.pool or Lazy(no_servers if servers is None else servers.pool)
    commands = shared.commands or Lazy(_command_count)
    return Session(
        **asdict(ground),
        deps=deps,
        files_outside=Lazy(files.let_out),
        decider=Decider(ground),
        taint=shared.taint,
        questions=questions,
        hooks=hooks,
        registry=registry,
        commands=commands,
        runner=Lazy(lambda: _runner(ground, commands(), registry)),
        servers=servers,
        pool=pool,
        mcp=_mcp_access(pool, call) if servers is not None or shared.has_servers else None,
        limiter=limiter,
        spill=spill,
        audit=audit,
        undo=saver,
        replies=Lazy(_replies),
        scheduler=Scheduler(settings.max_parallel_calls),
        deadlines=Deadlines(),
        loops=LoopWatch(),
        files_read=FilesRead(),
        open_commands=OpenCommands(),
        quota=Quota(settings.max_calls_per_session),
    )


def _taint(settings: Settings) -> Taint:
    # With full access a command may reach anything, so asking about other calls protects nothing.
    return Taint(
        settings.tool_security.ask_after_external_content
        and settings.sandbox_mode != "danger-full-access"
    )


def _command_count() -> CommandCount:
    from toolrest.running.tally import CommandCount

    return CommandCount()


def _runner(ground: Ground, commands: CommandCount, registry: Registry) -> Runner:
    from toolrest.agent.setup.runner import session_runner

    return session_runner(ground, commands, registry)


def _replies() -> Replies:
    from toolrest.wire.apis.sdk_replies import read_calls

    return read_calls


def _mcp_access(pool: Lazy[Pool], call: HostCall) -> McpAccess:
    # It needs what few sessions load.
    from toolrest.agent.mcp.access import McpAccess

    return McpAccess(pool, call)


def _approvals(
    config: Config,
    files: PathPolicy,
    session_id: str,
    bus: Bus,
    on_ask: OnAsk,
    parent: Approvals | None,
) -> Approvals:
    def make_deferring() -> FileApprovals:
        from toolrest.agent.setup.pending_approvals import deferring

        return deferring(config, files, session_id, bus)

    waiting = WaitingRequests(bus)
    return Approvals(bus, on_ask, config.value, make_deferring, waiting, parent)


def _questions(ground: Ground, on_question: OnQuestion | None) -> QuestionChannel | None:
    """The channel for a model's questions to the user; None without a front end or answers."""
    answers = ground.settings.user_input.answers
    if on_question is None and not answers:
        return None
    from toolrest.gate.approval.user_questions import QuestionChannel

    return QuestionChannel(ground.bus, ground.approvals.waiting, on_question, answers)


def _saver(config: Config, files: PathPolicy, bus: Bus, session_id: str) -> Saver | None:
    kept = config.value.checkpoints
    if not kept.enabled:
        return None
    home, workspace = config.home, files.workspace
    return Saver(home, workspace, session_id, bus, kept.max_file_size, kept.max_size)


def _watch(
    config: Config, files: PathPolicy, bus: Bus, saver: Saver | None, session_id: str
) -> Watch:
    from toolrest.agent.undo.watch import Watch

    return Watch(config.home, files.workspace, session_id, bus, saver)


def redactor_for(config: Config, environ: Mapping[str, str]) -> Redactor:
    """The redactor of the secrets in the settings, the environment and the stored keys."""
    settings = config.value
    variables = (*key_variables(settings), *server_variables(settings))
    return Redactor.from_env(
        {**environ, **key_values(settings), **server_values(settings), **_stored(config)},
        names=(*SECRET_NAMES, *variables, *settings.redact.names),
        patterns=settings.redact.patterns,
    )


def _stored(config: Config) -> dict[str, str]:
    """The keys that the user stored, under names that count as secret."""
    keys = stored_keys(config.home) if config.from_files else {}
    return {f"{name}_STORED_KEY": key.reveal() for name, key in keys.items()}


def _family_limit(config: Config) -> Limit | None:
    truncation = config.family.truncation
    return None if truncation is None else Limit(truncation.limit, truncation.mode)


def _limiter(config: Config, redactor: Redactor, spill: Spill) -> Limiter:
    return Limiter(
        _family_limit(config),
        chars=config.value.tool_result_max_chars,
        by_tool=config.value.tools.limits,
        redactor=redactor,
        spill=spill,
    )


def _traces() -> bool:
    """Whether the host program uses OpenTelemetry or asks for it; loading it is slow."""
    return "opentelemetry" in sys.modules or any(name.startswith("OTEL_") for name in os.environ)


def _listeners(ground: Ground) -> AuditLog | None:
    config, files, bus = ground.config, ground.files, ground.bus
    if config.value.otel.enabled and _traces():
        from toolrest.gate.telemetry import subscribe_telemetry

        subscribe_telemetry(bus)
    if not config.value.tool_security.audit_log_enabled:
        return None
    # With full access every folder is writable and nothing protects the log from a program; the
    # folders that the user named are refused all the same.
    roots = (files.workspace, *config.value.sandbox_workspace_write.writable_roots)
    folder, file = config.audit_place
    audit = AuditLog(
        folder,
        ground.id,
        file=file,
        home=config.home,
        writable_roots=roots,
        facts={
            "workspace": files.workspace,
            "approval_policy": config.value.approval_policy,
            "sandbox_mode": config.value.sandbox_mode,
        },
        warn=None if _must_record(config) else lambda text: _warn(bus, text),
    )
    bus.subscribe(audit.on_event)
    return audit


def _must_record(config: Config) -> bool:
    """Whether a call that the audit log cannot record does not run."""
    return config.value.audit.required or config.value.tool_security.audit_log_path is not None


def _warn(bus: Bus, text: str) -> None:
    _log.warning(text)
    bus.emit(events.Warning(message=text))
