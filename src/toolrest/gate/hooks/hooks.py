"""Hooks: the user's own programs around tool calls, their input, and what their answers do.

| how a hook ends | before a call | at an approval | after a call |
|---|---|---|---|
| exit 0, nothing printed | go on | ask the approver | go on |
| exit 0, JSON | allow, ask, deny, other input | approve, deny | other text, withhold |
| exit 2 | blocked, standard error is the reason | denied | result withheld |
| anything else | `on_error`: block (default), continue, ask | the same | the same |

Hooks of one event run one after the other, in the order of the settings; the strictest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from toolrest import events
from toolrest.answer import Answer
from toolrest.gate.bus import Bus
from toolrest.gate.hooks.program import (
    Hook,
    HookEvent,
    HookPrograms,
    HookReply,
    HookResult,
)
from toolrest.gate.output.redact import Redactor
from toolrest.items import JSONObject

_MOST_CONTEXT = 8000


class Hooked(Struct):
    """The joint answer of one event's hooks; `rule`: a deliberate answer, or a failed hook."""

    choice: Answer | None = None
    reason: str = ""
    rule: Literal["hook", "hook_error"] = "hook"
    updated_input: JSONObject | None = None
    updated_output: str | None = None
    notes: list[str] = field(default_factory=list)
    ends_turn: bool = False

    @property
    def denies(self) -> bool:
        """Whether a hook denied, or failed in a way that counts as a denial."""
        return self.choice == Answer.DENY

    @property
    def context(self) -> str:
        """The hooks' notes for the model."""
        return "\n".join(self.notes)

    def take(self, reply: HookReply, rule: Literal["hook", "hook_error"]) -> None:
        """Add the answer of one more hook."""
        if reply.updated_input is not None:
            # An earlier hook allowed another input.
            self.choice = None if self.choice == Answer.ALLOW else self.choice
            self.updated_input = reply.updated_input
        before = self.choice
        self.choice = max((c for c in (before, reply.choice) if c is not None), default=None)
        if reply.choice is not None and self.choice != before:
            self.reason, self.rule = reply.reason, rule
        if reply.updated_output is not None:
            self.updated_output = reply.updated_output
        self.notes += [line for line in reply.context[:_MOST_CONTEXT].splitlines() if line.strip()]
        self.ends_turn = self.ends_turn or reply.ends_turn


class HookCall(Struct):
    """A call as hooks get it, with every name that a matcher may use."""

    call_id: str
    turn_id: str
    tool: str
    names: tuple[str, ...]
    input: JSONObject
    rewrite: Callable[[JSONObject], tuple[str, ...]] | None = None
    """Takes a changed input, raises when it is not valid, returns the names it now has."""

    def payload(self) -> JSONObject:
        """The fields that every event about a call has."""
        return {
            "turn_id": self.turn_id,
            "tool_name": self.tool,
            "tool_input": self.input,
            "tool_use_id": self.call_id,
        }


class Hooks:
    """The hooks of one session."""

    def __init__(
        self,
        hooks: Sequence[Hook],
        programs: HookPrograms,
        bus: Bus,
        redactor: Redactor,
        facts: JSONObject,
    ) -> None:
        self._hooks = tuple(hooks)
        self._programs = programs
        self._bus = bus
        self._redactor = redactor
        self._facts = facts

    @staticmethod
    def none() -> Hooks:
        """An empty set of hooks."""
        return Hooks((), HookPrograms("/", {}), Bus(), Redactor({}), {})

    @property
    def listed(self) -> tuple[Hook, ...]:
        """Every hook, in the order in which those of one event run."""
        return self._hooks

    def has(self, event: HookEvent) -> bool:
        """Whether a hook runs at this event."""
        return any(hook.event == event for hook in self._hooks)

    async def before(self, call: HookCall) -> Hooked:
        """Run PreToolUse hooks: deny the call, ask for approval, allow it, or change its input."""
        found = Hooked()
        for hook in self._hooks:
            if hook.event != "PreToolUse" or not hook.matches(call.names):
                continue
            reply, rule = await self._reply(hook, call, call.payload())
            if reply.updated_input is not None and call.rewrite is not None:
                call.names = call.rewrite(reply.updated_input)
                call.input = reply.updated_input
            found.take(reply, rule)
            if found.denies:
                break
        return found

    async def after(self, call: HookCall, response: JSONObject) -> Hooked:
        """Run PostToolUse hooks: withhold the result, replace its text, or add to it."""
        # Only before a call does a hook need the exact input with its secrets.
        seen = self._redactor.redact_json(call.input)
        payload = {**call.payload(), "tool_input": seen, "tool_response": response}
        return await self._all("PostToolUse", call, call.names, payload)

    async def at_question(self, call: HookCall, question: JSONObject) -> Hooked:
        """Run PermissionRequest hooks: approve or deny; without an answer the approver is asked."""
        payload = {**call.payload(), **question}
        return await self._all("PermissionRequest", call, call.names, payload)

    async def session_start(self, source: str = "startup") -> Hooked:
        """Run SessionStart hooks: `context` is for the model; a denial stops the session."""
        return await self._all("SessionStart", None, (source,), {"source": source})

    async def stop(self, last_message: str = "", *, again: bool = False) -> Hooked:
        """Run Stop hooks: a denial means that the agent must go on, and its reason is what to do.

        A hook that fails never keeps an agent going: that is only reported.
        """
        message = self._redactor.redact(last_message)
        payload: JSONObject = {"stop_hook_active": again, "last_assistant_message": message}
        return await self._all("Stop", None, ("stop",), payload)

    async def aclose(self) -> None:
        """End the processes that hooks left running."""
        await self._programs.aclose()

    async def _all(
        self, event: HookEvent, call: HookCall | None, names: Iterable[str], payload: JSONObject
    ) -> Hooked:
        found = Hooked()
        for hook in self._hooks:
            if hook.event == event and hook.matches(names):
                found.take(*await self._reply(hook, call, payload))
                if found.denies:
                    break
        return found

    async def _reply(
        self, hook: Hook, call: HookCall | None, payload: JSONObject
    ) -> tuple[HookReply, Literal["hook", "hook_error"]]:
        given = {**self._facts, "hook_event_name": hook.event, **payload}
        result = await self._programs.run(hook, given)
        if result.problem is None and result.reply.updated_input and hook.event != "PreToolUse":
            problem = "only a PreToolUse hook may change the input"
            result = replace(result, reply=HookReply(), problem=problem)
        failed = result.problem is not None
        reply = self._redacted(self._after_error(hook, result) if failed else result.reply)
        self._emit(hook, call, result, reply)
        return reply, "hook_error" if failed else "hook"

    def _after_error(self, hook: Hook, result: HookResult) -> HookReply:
        reason = f"the {hook.label} failed: {result.problem}"
        if hook.on_error == "continue" or hook.event == "Stop":
            self._bus.emit(events.Warning(message=f"{reason}; it was ignored"))
            return HookReply()
        return HookReply(Answer.ASK if hook.on_error == "ask" else Answer.DENY, reason)

    def _redacted(self, reply: HookReply) -> HookReply:
        redact = self._redactor.redact
        return replace(reply, reason=redact(reply.reason), context=redact(reply.context))

    def _emit(
        self, hook: Hook, call: HookCall | None, result: HookResult, reply: HookReply
    ) -> None:
        self._bus.emit(
            events.HookRan(
                call_id=call.call_id if call else "",
                event=hook.event,
                command=hook.command,
                outcome=_outcome(result),
                reason=reply.reason or result.problem or "",
                effect="continue" if reply.choice is None else reply.choice.value,
                exit_code=result.exit_code,
                duration=result.duration,
                turn_id=call.turn_id if call else "",
            )
        )
        if reply.notice:
            self._bus.emit(events.Warning(message=reply.notice))


def _outcome(result: HookResult) -> Any:
    if result.problem is not None:
        return "error"
    if result.reply.choice is not None:
        return result.reply.choice
    changed = result.reply.updated_input is not None or result.reply.updated_output is not None
    return "changed" if changed else "continue"
