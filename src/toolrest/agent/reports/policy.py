"""Policy reports: the verdict on a command line (`policy check`), and the policy in force."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolrest.agent.path_policy import path_policy
from toolrest.answer import Answer
from toolrest.gate.approval.user_rules import SessionRules
from toolrest.policy.grants.command_keys import RunsHow, granted_by
from toolrest.policy.launch import Executables
from toolrest.policy.modes import MODES, WORDS, need, network_of
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.outcome import (
    Outcome,
    Setting,
    outcome,
)
from toolrest.policy.verdict.verdict import Judgement
from toolrest.process.shells.shells import Shells

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.gate.session import Session
    from toolrest.policy.grants.key import GrantKey


class Checked(Struct, frozen=True):
    """The verdict on a command line, with the decision on each of its commands."""

    verdict: Judgement
    outcome: Outcome
    setting: Setting
    warnings: tuple[str, ...]

    @property
    def risk(self) -> str:
        """The risk of the whole command line."""
        return self.verdict.effects().risk.label

    @property
    def reason(self) -> str:
        """The reason why it asks or is denied."""
        required = self.outcome.requirement
        if required.answer == Answer.ALLOW:
            return "outside the sandbox, by rule" if required.bypass_sandbox else ""
        if required.answer == Answer.DENY and required.detail:
            return f"{required.reason} ({required.detail})"
        return required.reason or required.detail

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        required = self.outcome.requirement
        amendment = required.amendment
        return {
            "verdict": self.outcome.answer,
            "risk": self.risk,
            "approval_policy": self.setting.mode,
            "sandbox_mode": self.setting.sandbox,
            "reason": self.reason,
            "outside_the_sandbox": required.bypass_sandbox,
            "segments": [decided.to_json() for decided in self.outcome.decided],
            "proposed_amendment": None if amendment is None else list(amendment),
        }


def check_command(config: Config, command: str | Sequence[str], workspace: str) -> Checked:
    """Judge a script (one text) or an argument list as a session there would; nothing runs."""
    settings = config.value
    files = path_policy(config, workspace)
    known = SessionRules(config, files.workspace, "check")
    setting = Setting(
        settings.approval_policy,
        settings.sandbox_mode,
        network=network_of(settings) != "off",
    )
    roots = files.command_roots
    shell = Shells.of_this_user(os.environ, avoid=files.writable_roots).default()
    verdict = judge(command, cwd=files.cwd, writable_roots=roots, shell=shell.kind)

    def stored(need: GrantKey, cwds: Sequence[str]) -> bool:
        return known.memory.grants.covering(need, cwds) is not None

    found = outcome(verdict, known.book.rules, setting)
    if found.answer == Answer.ASK and setting.mode != "strict":
        is_script = isinstance(command, str)
        # On our own PATH; a login profile may set another.
        path = os.environ.get("PATH", os.defpath)
        programs = Executables(path, files.cwd, files.writable_roots)
        how = RunsHow(found.leaves, programs.path, shell.path if is_script else "")
        granted = granted_by(stored, how)
        again = outcome(verdict, known.book.rules, setting, granted=granted)
        found = again if again.answer == Answer.ALLOW else found
    return Checked(verdict, found, setting, known.book.warnings)


_SHOWN = (
    "approval_policy",
    "on_ask",
    "sandbox_mode",
    "sandbox_policy",
    "sandbox_workspace_write.network_access",
    "tool_security.allowed_network_domains",
)


def effective_policy(session: Session) -> dict[str, Any]:
    """Mode, sandbox, overrides, rules and grants in force, each with where it came from."""
    config, settings = session.config, session.settings
    mode = settings.approval_policy
    files = session.files
    sandboxed = settings.sandbox_mode != "danger-full-access"
    book, memory = session.known.book, session.known.memory
    grants = memory.grants.listed()
    return {
        "settings": {
            key: {"value": row.value, "source": row.source}
            for key in _SHOWN
            for row in (config.get(key),)
        },
        "workspace": files.workspace,
        "project": memory.project,
        "trusted": config.trusted,
        "writable_roots": list(files.writable_roots),
        "table": {what: need(what, mode, sandboxed=sandboxed) for what in WORDS},
        "overrides": {
            name: value
            for name, value in settings.approvals.as_dict().items()
            if name not in ("wait_sec", "expire_sec")
        },
        "rules": {
            "files": list(book.files),
            "count": sum(map(len, book.rules.by_program.values())),
            "warnings": list(book.warnings),
        },
        "grants": {
            "count": len(grants),
            "problem": memory.grants.problem,
            "items": [{"id": grant.id, **grant.to_json()} for grant in grants],
        },
        "modes": list(MODES),
    }
