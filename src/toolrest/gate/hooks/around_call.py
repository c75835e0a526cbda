"""Hooks around a call: PreToolUse, PermissionRequest, PostToolUse. Not loaded without hooks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from toolrest.answer import Answer
from toolrest.errors import AuditError, Fatal, Rejected, ToolCallError
from toolrest.gate.call.report import emit_decision
from toolrest.gate.call.understand import rewrite
from toolrest.gate.decision.decide import Decision
from toolrest.gate.hooks.hooks import HookCall, Hooked, Hooks
from toolrest.gate.output.redact import Redactor
from toolrest.gate.output.truncate import Limit, truncate
from toolrest.items import JSONObject, ToolOutput
from toolrest.policy.effects import Risk

if TYPE_CHECKING:
    from toolrest.gate.approval.request import ApprovalRequest
    from toolrest.gate.call.walk import Walk
    from toolrest.gate.tool.call import ToolCall

_MOST_RESPONSE = 1 << 20


class Line:
    """A first-in, first-out queue for calls while their hooks run."""

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for earlier calls, so that the scheduler gets calls in the model's order."""
        loop = asyncio.get_running_loop()
        before, mine = self._last, loop.create_future()
        if before is not None and (before.done() or before.get_loop() is not loop):
            before = None
        self._last = mine
        try:
            yield
            if before is not None:
                await asyncio.wait({before})
        finally:
            if before is None or before.done():
                mine.set_result(None)
            else:
                before.add_done_callback(lambda _: mine.set_result(None))


class HookedWalks:
    """The hooks of a session, as each call's walk runs them."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self._line = Line()

    async def before(self, walk: Walk, call: ToolCall) -> ToolCall:
        """Run PreToolUse hooks; the call as it now is, or Rejected."""
        if not self.hooks.has("PreToolUse"):
            return call
        if walk.place.shared:
            return await self._before(walk, call)
        async with self._line.place():
            return await self._before(walk, call)

    async def _before(self, walk: Walk, call: ToolCall) -> ToolCall:
        ready = [call]

        def rewritten(values: JSONObject) -> tuple[str, ...]:
            try:
                ready.append(rewrite(walk, values))
            except ToolCallError as error:
                message = f"not run: a PreToolUse hook gave an input that is not valid: {error}"
                raise _refused(walk, call, "hook_error", message) from None
            return _names(ready[-1])

        hook_call = _hook_call(walk, call)
        hook_call.rewrite = rewritten
        hooked = await self.hooks.before(hook_call)
        call, walk.hooked = ready[-1], hooked
        if hooked.denies:
            raise _refused(walk, call, hooked.rule, _blocked(hooked), hooked.ends_turn)
        if hooked.updated_input is not None:
            hooked.notes.insert(0, "a hook of the user changed the arguments of this call")
        return call

    async def answered(self, walk: Walk, call: ToolCall, request: ApprovalRequest) -> Hooked | None:
        """Run PermissionRequest hooks; their approval, or None to ask the approver."""
        if not self.hooks.has("PermissionRequest"):
            return None
        question: JSONObject = {
            "reason": request.reason,
            "risk": request.risk.label,
            "rule": request.rule,
            "leaves_sandbox": request.leaves,
            "retry_reason": request.retry_reason,
            "keys": list(request.keys),
            "fingerprint": walk.fingerprint,
        }
        hooked = await self.hooks.at_question(_hook_call(walk, call), question)
        if hooked.denies:
            message = f"rejected by a PermissionRequest hook: {hooked.reason}"
            kind = Fatal if hooked.ends_turn else Rejected
            raise kind(message, kind="approval_denied")
        return hooked if hooked.choice == Answer.ALLOW else None

    def decided(self, walk: Walk, call: ToolCall, decision: Decision) -> Decision:
        """The policy's decision after the PreToolUse hooks' answers."""
        if walk.hooked is None:
            return decision
        return applied(decision, walk.hooked, call.risk, walk.session.approval_policy)

    async def after(self, walk: Walk, output: ToolOutput) -> ToolOutput:
        """The output after PostToolUse hooks, which run if the tool itself was started."""
        if walk.ended or walk.aborting:
            return output
        try:
            final = await self._finish(walk, output)
        except asyncio.CancelledError:
            return walk.aborted("the work finished all the same")
        except AuditError as error:
            return walk.fatal(error)
        if final is not output:
            walk.limited = None
        return final

    async def _finish(self, walk: Walk, output: ToolOutput) -> ToolOutput:
        if walk.ran is not None and self.hooks.has("PostToolUse"):
            output = await self._after(walk, walk.ran, output)
        return with_notes(output, walk.hooked)

    async def _after(self, walk: Walk, call: ToolCall, output: ToolOutput) -> ToolOutput:
        response = _response(walk, output)
        hooked = await self.hooks.after(_hook_call(walk, call), response)
        if hooked.ends_turn:
            walk.turn.fail(Fatal(f"a PostToolUse hook ended the turn: {hooked.reason}"))
        if hooked.choice == Answer.ASK:
            question = f"{hooked.reason} Show the model what {call.tool.name} returned?"
            if not await call.ctx.ask(question):
                hooked.choice = Answer.DENY
        if hooked.denies:
            reason = f": {hooked.reason}" if hooked.reason else ""
            message = f"PostToolUse hook blocked the tool result{reason}"
            withheld = ToolOutput.error(message, "policy_denied")
            withheld.notes.append("the call itself has run; only its result is withheld")
            withheld.metadata = dict(output.metadata)
            withheld.metadata.pop("collected", None)
            return withheld
        return _added(output, hooked)


def applied(decision: Decision, hooked: Hooked, risk: Risk, mode: str) -> Decision:
    """The policy's decision after the PreToolUse hooks' answers; a denial stays one.

    A hook's `allow` approves an ordinary call. One that is critical, writes a protected name or
    leaves the sandbox is for the approver, or for a PermissionRequest hook, whose input says so.
    """
    if decision.verdict == Answer.ALLOW and hooked.choice == Answer.ASK:
        reason = hooked.reason or "a PreToolUse hook wants this asked"
        if mode == "never":
            return Decision(Answer.DENY, hooked.rule, f'{reason} (approval_policy is "never")')
        return Decision(Answer.ASK, hooked.rule, reason)
    ordinary = risk < Risk.CRITICAL and decision.what != "critical" and not decision.leaves
    if decision.verdict == Answer.ASK and hooked.choice == Answer.ALLOW and ordinary:
        return Decision(Answer.ALLOW, hooked.rule, hooked.reason or "a PreToolUse hook allows it")
    return decision


def _refused(
    walk: Walk, call: ToolCall, rule: str, message: str, ends_turn: bool = False
) -> ToolCallError:
    """The error to raise when a hook denies; its decision is emitted for the audit log."""
    walk.decided = True
    emit_decision(walk, call, Decision(Answer.DENY, rule, message), "hook")
    return Fatal(message, kind="policy_denied") if ends_turn else Rejected(message)


def _blocked(hooked: Hooked) -> str:
    if hooked.rule == "hook_error":
        return f"not run: hook_error: {hooked.reason}"
    return f"blocked by a PreToolUse hook: {hooked.reason}"


def _hook_call(walk: Walk, call: ToolCall) -> HookCall:
    route = walk.route
    values = input_of(route.text, route.freeform) if route is not None else {}
    return HookCall(walk.call_id, walk.turn.id, call.tool.name, _names(call), values)


def _names(call: ToolCall) -> tuple[str, ...]:
    return (call.tool.name, *call.tool.aliases, *call.tool.hook_names(call.effects))


def _response(walk: Walk, output: ToolOutput) -> JSONObject:
    text = walk.session.redactor.redact(output.text)
    if output.secrets:
        text = Redactor(output.secrets).redact(text)
    failure = output.failure
    return {
        "text": truncate(text, Limit(_MOST_RESPONSE)) if len(text) > _MOST_RESPONSE else text,
        "success": not output.failed and output.success is not False,
        "failure": failure.kind if failure else None,
        "exit_code": output.metadata.get("exit_code"),
        "truncated": len(text) > _MOST_RESPONSE,
    }


def _added(output: ToolOutput, hooked: Hooked) -> ToolOutput:
    if hooked.updated_output is not None:
        metadata = {k: v for k, v in output.metadata.items() if k != "collected"}
        notes = [*output.notes, "a hook of the user replaced this result"]
        output = replace(
            output, content=hooked.updated_output, structured=None, metadata=metadata, notes=notes
        )
    return with_notes(output, hooked)


def with_notes(output: ToolOutput, hooked: Hooked | None) -> ToolOutput:
    """The output with the hooks' notes for the model, one line each."""
    if hooked is None or not hooked.notes:
        return output
    return replace(output, notes=[*output.notes, *hooked.notes])


def input_of(text: str, freeform: bool) -> JSONObject:
    """A call's arguments as hooks get them: always an object."""
    if not freeform:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
    return {"input": text}
