"""The hooks of a session, from its `[hooks]` settings; nothing is loaded when there are none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from toolrest.config.files import user_home
from toolrest.config.layer_check import expand_user
from toolrest.errors import Rejected

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest
    from toolrest.config import Settings
    from toolrest.gate.hooks.around_call import HookedWalks
    from toolrest.gate.hooks.hooks import Hooks
    from toolrest.gate.hooks.program import Hook
    from toolrest.gate.session import Ground


def session_hooks(ground: Ground) -> HookedWalks | None:
    """The hooks of a session, or None; ConfigError for one that a model could rewrite."""
    settings, files, environ = ground.settings, ground.files, ground.environ
    table = settings.hooks
    rows = (
        table.PreToolUse,
        table.PostToolUse,
        table.PermissionRequest,
        table.SessionStart,
        table.Stop,
    )
    if not any(rows):
        return None
    from toolrest.gate.hooks.around_call import HookedWalks
    from toolrest.gate.hooks.hooks import Hooks
    from toolrest.gate.hooks.program import HookPrograms, hook_environment, refuse_unsafe

    hooks = _hooks(settings, environ)
    refuse_unsafe(hooks, files)
    env = hook_environment(environ, files, settings.shell_environment_policy.exclude)
    facts = {
        "session_id": ground.id,
        "cwd": files.cwd,
        "permission_mode": settings.approval_policy,
    }
    programs = HookPrograms(files.cwd, env)
    return HookedWalks(Hooks(hooks, programs, ground.bus, ground.redactor, facts))


def expanded(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """A command of the settings with `~/` replaced by the user's home."""
    home = user_home(environ)
    start = "~" + os.sep
    return tuple(expand_user(word, home) if word.startswith(start) else word for word in argv)


def _hooks(settings: Settings, environ: Mapping[str, str]) -> list[Hook]:
    from toolrest.gate.hooks.program import Hook, HookEvent

    return [
        Hook(
            event,
            expanded(row.command, environ),
            row.matcher,
            row.timeout_sec,
            row.on_error,
        )
        for event in get_args(HookEvent)
        for row in getattr(settings.hooks, event)
    ]


class AgentHooks:
    """SessionStart and Stop hooks, as the agent's loop runs them."""

    def __init__(self, hooks: Hooks, source: str) -> None:
        self._hooks = hooks
        self._source = source
        self._held = False

    async def session_start(self) -> Sequence[str]:
        """Run SessionStart hooks; returns their texts for the model, Rejected when one denies."""
        found = await self._hooks.session_start(self._source)
        if found.denies:
            raise Rejected(f"a SessionStart hook denied the session: {found.reason}")
        return [found.context] if found.context else []

    async def stop(self, text: str) -> str | None:
        """Run Stop hooks; returns a message that makes the model go on, or None."""
        found = await self._hooks.stop(text, again=self._held)
        self._held = found.denies and not found.ends_turn
        return found.reason if self._held else None


def agent_hooks(rest: Toolrest, *, resumed: bool) -> AgentHooks | None:
    """SessionStart and Stop hooks of a session; sub-agents have none."""
    if rest.session.hooks is None:
        return None
    hooks = rest.session.hooks.hooks
    if not (hooks.has("SessionStart") or hooks.has("Stop")):
        return None
    return AgentHooks(hooks, "resume" if resumed else "startup")
