"""Roles of sub-agents, and the parent's settings narrowed by a role."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolrest.config.config import with_model
from toolrest.config.project import covered

if TYPE_CHECKING:
    from toolrest.config import Config, Settings

_MODES = ("read-only", "workspace-write", "danger-full-access")
_ASKING = ("dangerous", "never", "on-failure", "on-request", "untrusted", "auto", "strict")


class Role(Struct, frozen=True):
    """A kind of sub-agent. Unset fields are the parent's."""

    name: str
    description: str
    instructions: str | None = None
    model: str | None = None
    reasoning_effort: str | None = None
    sandbox_mode: str | None = None
    approval_policy: str | None = None
    enabled: tuple[str, ...] | None = None
    disabled: tuple[str, ...] = ()
    max_seconds: float | None = None
    max_turns: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None


BUILT_IN = {
    "default": Role("default", "a general helper with your own rights"),
    "explorer": Role(
        "explorer",
        "answers questions about the code; it reads and changes nothing",
        instructions=(
            "You answer one question about the code in this folder. Read what you need, change "
            "nothing, and end with the answer and the places (file and line) that show it."
        ),
        sandbox_mode="read-only",
    ),
    "worker": Role(
        "worker",
        "carries out one well-defined change",
        instructions=(
            "You carry out one change. Others may work in the same folder: touch only what your "
            "task names, and end with what you changed and how you checked it."
        ),
    ),
}


def roles(settings: Settings) -> dict[str, Role]:
    """The built-in roles and the user's own; a row with a known name changes what it sets."""
    agents = settings.agents
    limits = {
        "max_seconds": agents.max_seconds,
        "max_turns": agents.max_turns,
        "max_tool_calls": agents.max_tool_calls,
        "max_tokens": agents.max_tokens,
    }
    found = {name: replace(role, **limits) for name, role in BUILT_IN.items()}
    for name, row in agents.roles.items():
        base = found.get(name) or replace(found["default"], name=name, description=name)
        found[name] = replace(base, **row.given())
    return found


def narrowed(config: Config, role: Role) -> Config:
    """The parent's settings, narrowed by the role and never widened.

    The narrower sandbox and the policy that asks more win, tools are switched off and never on
    again, so no call is allowed here that the parent's settings deny.
    """
    settings = config.value
    tools = settings.tools
    update: dict[str, object] = {
        "sandbox_mode": _least(_MODES, settings.sandbox_mode, role.sandbox_mode),
        "approval_policy": _most(_ASKING, settings.approval_policy, role.approval_policy),
        "tools": tools.replace(
            enabled=_both(tools.enabled, role.enabled),
            disabled=(*tools.disabled, *role.disabled),
        ),
    }
    if role.reasoning_effort is not None:
        update["model_reasoning_effort"] = role.reasoning_effort
    config = replace(config, value=settings.replace(**update))
    if role.model is None:
        return config
    return with_model(config, role.model, f"agents.roles.{role.name}.model")


def _least(order: tuple[str, ...], parents: str, own: str | None) -> str:
    return parents if own is None else min(parents, own, key=order.index)


def _most(order: tuple[str, ...], parents: str, own: str | None) -> str:
    return parents if own is None else max(parents, own, key=order.index)


def _both(parents: tuple[str, ...] | None, own: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Patterns that match only what both lists match.

    Two globs have no glob that is their intersection, so beside a parent's list a child's counts
    by its plain names, and by patterns that the parent's list has too.
    """
    if own is None or parents is None:
        return own if parents is None else parents
    return tuple(pattern for pattern in own if covered(pattern, parents))
