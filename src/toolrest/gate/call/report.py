"""The events of a call: begin, decision, end."""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING, Any

from toolrest.answer import Answer
from toolrest.events import ToolCallBegin, ToolCallDecision, ToolCallEnd

if TYPE_CHECKING:
    from toolrest.errors import ToolCallError
    from toolrest.gate.call.walk import Walk
    from toolrest.gate.decision.decide import Decision
    from toolrest.gate.output.limiter import Limited
    from toolrest.gate.tool.call import ToolCall


def emit_begin(walk: Walk, unknown: tuple[str, ...]) -> None:
    """Emit the begin of a call, with the arguments that its tool does not know."""
    tool = walk.tool
    walk.session.bus.emit(
        ToolCallBegin(
            call_id=walk.call_id,
            tool=walk.name,
            arguments=walk.arguments or _raw_arguments(walk),
            unknown_fields=unknown,
            turn_id=walk.turn.id,
            icon="other" if tool is None else tool.icon,
            exec_item="" if tool is None else tool.exec_item,
        )
    )


def emit_decision(
    walk: Walk, call: ToolCall, decision: Decision, source: str = "policy", said: str = ""
) -> None:
    """Emit the decision on a call and its source; `said` is the reason for people."""
    walk.session.bus.emit(
        ToolCallDecision(
            call_id=walk.call_id,
            tool=call.tool.name,
            arguments=walk.arguments,
            fingerprint=walk.fingerprint,
            verdict=decision.verdict,
            rule=decision.rule,
            risk=call.risk.label,
            source=source,
            reason=decision.reason,
            said=said,
            keys=call.effects.keys(),
            writes=_known_writes(call) if decision.verdict == Answer.DENY else (),
            mutating=call.mutating,
            sandbox="confined" if call.effects.confined else "none",
            turn_id=walk.turn.id,
        )
    )


def _known_writes(call: ToolCall) -> tuple[str, ...]:
    return (*call.effects.writes, *call.known_writes())


def emit_refusal(walk: Walk, error: ToolCallError) -> None:
    """Emit a denial for a call that failed before its decision, so that the audit log has it."""
    session = walk.session
    session.bus.emit(
        ToolCallDecision(
            call_id=walk.call_id,
            tool=walk.name,
            arguments=walk.arguments or _raw_arguments(walk),
            fingerprint=walk.fingerprint,
            verdict=Answer.DENY,
            rule=error.kind,
            risk="none",
            reason=session.redactor.redact(error.message),
            turn_id=walk.turn.id,
        )
    )


def emit_end(walk: Walk, limited: Limited) -> None:
    """Emit the end of a call, with its output."""
    session = walk.session
    output = limited.output
    failure = output.failure
    session.bus.emit(
        ToolCallEnd(
            call_id=walk.call_id,
            tool=walk.name,
            success=output.success,
            failure=failure.kind if failure else None,
            said=failure.said if failure else "",
            duration=monotonic() - walk.started,
            bytes=limited.total_bytes,
            output=session.redactor.redact(output.text) if output.secrets else output.text,
            truncated=limited.truncated,
            spill=limited.spill,
            exit_code=output.metadata.get("exit_code"),
            signal=output.metadata.get("signal"),
            sandbox=str(output.metadata.get("sandbox", "none")),
            files=walk.files,
            fields=failure.fields if failure else (),
            turn_id=walk.turn.id,
        )
    )


def _raw_arguments(walk: Walk) -> str:
    """The arguments as the model sent them, for a call that was not understood."""
    for name in ("arguments", "input", "action", "image_path", "query"):
        value = getattr(walk.item, name, None)
        if value is not None:
            text = value if isinstance(value, str) else _json(value)
            return walk.session.redactor.redact(text)
    return ""


def _json(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__} that is not JSON"
