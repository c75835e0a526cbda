"""What a call was understood as: its tool, typed arguments, and what it will touch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolrest.records import dataclass, replace
from toolrest.policy.fingerprint import fingerprint

if TYPE_CHECKING:
    from toolrest.gate.context import Context
    from toolrest.gate.call.understand import Route
    from toolrest.gate.tool.tool import Tool
    from toolrest.policy.effects import Effects, Risk


@dataclass(slots=True)
class Ready:
    """A call that can be decided."""

    tool: Tool
    args: Any
    ctx: Context
    effects: Effects
    risk: Risk


def canonical_effects(effects: Effects, ctx: Context) -> Effects:
    """Two spellings of one path are one path to the scheduler and to the policy."""
    if not (effects.reads or effects.writes):
        return effects
    real = ctx.files.canonical
    reads = tuple(map(real, effects.reads))
    writes = tuple(map(real, effects.writes))
    if reads == effects.reads and writes == effects.writes:
        return effects
    return replace(effects, reads=reads, writes=writes)


def fingerprint_of(found: Route) -> str:
    """The short name of a call: the same tool with the same arguments has the same one."""
    return fingerprint(found.tool.name, found.text if found.freeform else _loads(found.text))


def _loads(text: str) -> Any:
    try:
        if text.startswith("{"):
            # What `json.loads` comes to after the checks that most of its time goes into.
            value, end = _decode(text)
            if end == len(text):
                return value
        return json.loads(text)
    except ValueError:
        return text


_decode = json.JSONDecoder().raw_decode
