"""The policy of a session in one answer, for every surface that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolrest.policy.modes import MODES, WORDS, need

if TYPE_CHECKING:
    from toolrest.agent.setup.assemble import Session
    from toolrest.config import Config

_SHOWN = (
    "approval_policy",
    "on_ask",
    "sandbox_mode",
    "sandbox_policy",
    "sandbox_workspace_write.network_access",
    "tool_security.allowed_network_domains",
)


def effective_policy(config: Config, session: Session) -> dict[str, Any]:
    """Mode, sandbox, overrides, rules and grants in force, each with where it came from."""
    settings = config.value
    mode = settings.approval_policy
    files = session.gate.services.files
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
            name: said
            for name, said in settings.approvals.as_dict().items()
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
