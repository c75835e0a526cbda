"""Assemble a session from its settings: every part is built once, in one place."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from toolrest import events
from toolrest.agent.mcp.setup import McpServers, mcp_servers
from toolrest.agent.path_policy import network_of, path_policy
from toolrest.agent.setup.hooks import session_hooks
from toolrest.agent.setup.tools import SessionSkills, offers_search, skills_folder
from toolrest.agent.undo.turn_checkpoint import Saver
from toolrest.agent.user_rules import SessionRules
from toolrest.config.secrets import (
    SECRET_NAMES,
    key_values,
    key_variables,
    server_values,
    server_variables,
)
from toolrest.gate.approval.approvals import Approvals, OnAsk
from toolrest.gate.audit.log import AuditLog
from toolrest.gate.bus import Bus
from toolrest.gate.call.schedule import Scheduler
from toolrest.gate.call.walk import Gate
from toolrest.gate.context import Services
from toolrest.gate.decision.decide import Decider
from toolrest.gate.output.limiter import Limiter
from toolrest.gate.output.redact import Redactor
from toolrest.gate.output.spill import Spill
from toolrest.gate.output.truncate import Limit
from toolrest.gate.tool.registry import Registry
from toolrest.policy.paths.imports import guard_imports
from toolrest.policy.paths.policy import PathPolicy
from toolrest.tools.catalog import ToolParts, built_in, switched_on
from toolrest.wire.stored_keys import stored_keys

if TYPE_CHECKING:
    from toolrest.config import Config, Settings
    from toolrest.gate.approval.pending_store import FileApprovals
    from toolrest.gate.approval.user_questions import OnQuestion, QuestionChannel
    from toolrest.running.runner import Runner
    from toolrest.tools.shell.sandbox_description import SandboxDescription
    from toolrest.tools.web.web_search import SearchOptions
    from toolrest.tools.web.webfetch import WebOptions


_log = logging.getLogger("toolrest")


class SessionParts(Struct):
    """The parts of a session: the gate, and what has to be closed with it."""

    gate: Gate
    spill: Spill
    audit: AuditLog | None
    known: SessionRules
    """The user's rules, overrides and grants."""
    parts: ToolParts
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
    named: Collection[str] = (),
) -> SessionParts:
    """Build a session. Nothing is written to disk before the first call needs it.

    A sub-agent's session shares its parent's MCP servers, session grants, count of commands,
    mode and taint. Built-in tools that are `named` are there whatever the settings say.
    """
    settings = config.value
    spill = Spill(config.home, session_id)
    redactor = redactor_for(config, environ)
    files = path_policy(config, workspace, (spill.path, *skills_folder(config.home)))
    guard_imports(files.tool_roots)
    bus = Bus(redactor)
    limiter = _limiter(config, redactor, spill)

    def make_runner() -> Runner:
        from toolrest.agent.setup.runner import confinement_of, session_runner

        confinement = known.confined(confinement_of(settings, external=config.external))
        tally = services.tally
        return session_runner(config, files, session_id, environ, confinement, bus, tally)

    shared = None if parent is None else parent.known
    known = SessionRules(config, files.workspace, session_id, shared)
    services = Services(
        session_id,
        files,
        bus,
        redactor,
        _approvals(config, files, session_id, bus, on_ask),
        known,
        limiter,
        make_runner,
        settings.approval_policy,
        _family_limit(config),
        legacy_encoding=settings.legacy_encoding,
    )
    services.questions = _questions(settings, bus, on_question or getattr(on_ask, "ask_user", None))
    skills = SessionSkills(config, files, environ)
    parts = ToolParts(
        settings.tools,
        config.family,
        surroundings=lambda: _surroundings(settings, files),
        web=lambda: _web_options(settings),
        search=(lambda: _search_options(settings, environ)) if offers_search(settings) else None,
        skills=lambda: skills.skills,
        has_skills=bool(skills.places),
        answers=services.questions is not None,
        named=named,
    )
    gate = Gate(
        services,
        Registry(switched_on(built_in(parts), settings.tools)),
        _decider(settings, services, known),
        limiter,
        Scheduler(settings.max_parallel_calls),
        default_timeout=settings.tool_timeout_sec,
        max_calls=settings.max_calls_per_session,
    )
    # With full access a command may reach anything, so asking about other calls protects nothing.
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
        gate.share_mode(parent.mode_limit)
    saver = _saver(config, files, session_id if parent is None else parent.session_id)
    return SessionParts(gate, spill, audit, known, parts, saver, servers, skills)


def _approvals(
    config: Config, files: PathPolicy, session_id: str, bus: Bus, on_ask: OnAsk
) -> Approvals:
    def make_deferring() -> FileApprovals:
        from toolrest.agent.setup.pending_approvals import deferring

        return deferring(config, files, session_id, bus)

    return Approvals(bus, on_ask, config.value, make_deferring)


def _decider(settings: Settings, services: Services, known: SessionRules) -> Decider:
    return Decider(
        services.files,
        settings.approval_policy,
        full_access=settings.sandbox_mode == "danger-full-access",
        network=settings.sandbox_workspace_write.network_access,
        overrides=known.overrides,
        limit=services.mode_limit,
    )


def _questions(
    settings: Settings, bus: Bus, on_question: OnQuestion | None
) -> QuestionChannel | None:
    """The channel for a model's questions to the user; None without a front end or answers."""
    answers = settings.user_input.answers
    if on_question is None and not answers:
        return None
    from toolrest.gate.approval.user_questions import QuestionChannel

    return QuestionChannel(bus, on_question, answers)


def _saver(config: Config, files: PathPolicy, session_id: str) -> Saver | None:
    settings = config.value.checkpoints
    if not settings.enabled:
        return None
    return Saver(
        config.home, files.workspace, session_id, settings.max_file_size, settings.max_size
    )


def _web_options(settings: Settings) -> WebOptions:
    from toolrest.agent.setup.web import web_options

    return web_options(settings)


def _search_options(settings: Settings, environ: Mapping[str, str]) -> SearchOptions:
    from toolrest.agent.setup.web import search_options

    return search_options(settings, environ)


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
    return {f"{name}_STORED_KEY": key for name, key in keys.items()}


def _surroundings(settings: Settings, files: PathPolicy) -> SandboxDescription:
    from toolrest.tools.shell.sandbox_description import SandboxDescription

    return SandboxDescription(
        settings.sandbox_mode, files.writable_roots, network_of(settings), settings.approval_policy
    )


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


def _listeners(config: Config, session_id: str, files: PathPolicy, bus: Bus) -> AuditLog | None:
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
        session_id,
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
