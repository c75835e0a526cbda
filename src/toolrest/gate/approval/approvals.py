"""The channel to the approver; without one, a denial that names the setting that helps."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from toolrest.errors import Fatal, Rejected, ToolCallError
from toolrest.events import ApplyPatchApprovalRequest, ApprovalRequested, ExecApprovalRequest
from toolrest.gate.approval.request import (
    ANSWERS,
    ApprovalRequest,
    Approver,
    Review,
    read_answer,
)
from toolrest.policy.effects import Risk

if TYPE_CHECKING:
    from toolrest.config import Settings
    from toolrest.gate.approval.pending_store import FileApprovals
    from toolrest.gate.approval.waiting import WaitingRequests
    from toolrest.gate.bus import Bus
    from toolrest.gate.context import Context

Unasked: TypeAlias = Literal["deny", "allow", "fail", "defer"]
"""The answer to a request for approval when there is no approver."""
OnAsk: TypeAlias = "Unasked | Approver"


class Approvals:
    """The session's approver. Where there is none, or it cannot ask, `unasked` decides."""

    def __init__(
        self,
        bus: Bus,
        on_ask: OnAsk,
        settings: Settings,
        make_deferring: Callable[[], FileApprovals],
        waiting: WaitingRequests,
        parent: Approvals | None = None,
    ) -> None:
        if not (callable(on_ask) or on_ask in get_args(Unasked)):
            choices = ", ".join(map(repr, get_args(Unasked)))
            raise TypeError(
                f"on_ask is a function that takes a request, or one of {choices}; not {on_ask!r}"
            )
        self._bus = bus
        self._mode = settings.approval_policy
        self._sandbox_mode = settings.sandbox_mode
        own = self._mode if self._mode in ("never", "dangerous") else None
        self.silent: str | None = (None if parent is None else parent.silent) or own
        """The approval policy, if it is one that never asks: the parent's, or its own."""
        self._approver = on_ask if callable(on_ask) else None
        self.unasked: Unasked = settings.on_ask if callable(on_ask) else on_ask
        self._make_deferring = make_deferring
        self._admitted: dict[str, tuple[str, Review]] = {}
        self.waiting = waiting
        """What waits for a person, the model's questions, too; a second front end answers it."""

    @cached_property
    def deferring(self) -> FileApprovals:
        """The store of pending approvals, made on first use."""
        return self._make_deferring()

    def admit(self, call_id: str, pin: str, review: Review) -> None:
        """Use this review for the next request about this call, if its pin is the same."""
        self._admitted[call_id] = (pin, review)

    def _was_admitted(self, request: ApprovalRequest) -> Review | None:
        pin, review = self._admitted.pop(request.call_id, ("", None))
        if review is None or request.exact is None:
            return None
        return review if self.deferring.around.pin(request) == pin else None

    async def ask(self, request: ApprovalRequest, turn_id: str) -> Review:
        """The approval of a request; Rejected when it is denied, Fatal when the turn is aborted."""
        if self.silent is not None:
            setting = f'approval_policy = "{self.silent}"'
            raise _by(
                setting,
                Rejected(
                    f"not run: {request.tool} needs approval ({request.reason}), "
                    f"and {setting} never asks"
                ),
            )
        self._bus.emit(_event(request, turn_id))
        review = self._was_admitted(request) if self._admitted else None
        if review is None:
            review = await self.review(request)
        if review is None:
            review = await self._by_setting(request)
        if review.answer == "denied":
            why = f": {review.note}" if review.note else ""
            note = f': "{review.note}"' if review.note else ""
            message = f"rejected by user{why}"
            raise Rejected(message, kind="approval_denied", said=f"You said no{note}")
        if review.answer == "abort":
            message = "rejected by user, who also ended the turn"
            raise Fatal(message, kind="approval_denied", said="You said no, and stopped the turn")
        return review

    async def review(self, request: ApprovalRequest) -> Review | None:
        """The approver's review; None when there is no approver, or it cannot ask."""
        approver = self._approver
        return None if approver is None else await self._review(approver, request)

    async def _by_setting(self, request: ApprovalRequest) -> Review:
        if self.unasked == "defer" and request.exact is not None:
            return await self.deferring.ask(request)
        setting = f'on_ask = "{self.unasked}"'
        if self.unasked == "allow" and not request.protected:
            return Review("approved", setting=setting)
        if self.unasked == "fail":
            words = f"{request.tool} needs approval ({request.reason}), and on_ask is `fail`"
            raise _by(setting, Fatal(words, kind="approval_denied"))
        if self.unasked == "allow":
            words = f"not run: {request.protected}; {setting} does not approve that"
            raise _by(setting, Rejected(words, kind="approval_denied"))
        raise _by(setting, _no_approver(request, self._mode, self._sandbox_mode))

    async def _review(self, approver: Approver, request: ApprovalRequest) -> Review | None:
        try:
            answer = approver(request)
            if inspect.isawaitable(answer):
                answer = await self.waiting.first(request, answer)
        except Exception as error:
            raise Rejected(
                f"not run: asking for approval failed: {type(error).__name__}: {error}",
                kind="approval_denied",
            ) from error
        if answer is None:
            return None  # it cannot ask about this call
        review = read_answer(answer)
        if review is None:
            raise Rejected(
                f"not run: the approver answered {answer!r}, not one of {', '.join(ANSWERS)}",
                kind="approval_denied",
            )
        return review

    async def ask_plainly(self, ctx: Context, question: str) -> bool:
        """Ask for approval of a tool's own question; False when denied or without an approver."""
        title = question if question.rstrip().endswith("?") else f"Go on with {ctx.tool}?"
        request = ApprovalRequest(
            ctx.call_id, ctx.tool, "", question, Risk.EXECUTE, title=title.strip()
        )
        try:
            await self.ask(request, ctx.turn_id)
        except Rejected:
            return False
        return True


def _by(setting: str, error: ToolCallError) -> ToolCallError:
    error.setting = setting
    return error


def _no_approver(request: ApprovalRequest, mode: str, sandbox_mode: str) -> Rejected:
    rule = f"; rule {request.rule}" if request.rule else ""
    settings = '"defer"' if request.protected else '"allow" or "defer"'
    setting, way = _other_way(request, mode, sandbox_mode)
    allowed = f", or allow it beforehand: {way}" if way else ""
    return Rejected(
        f"not run: {request.tool} needs approval ({request.reason}{rule}), and there is no "
        f"approver here. To allow it, answer through on_ask, set on_ask = {settings}, {setting}.",
        kind="approval_denied",
        said=f"Denied: nobody here can approve. Run it in a terminal{allowed}.",
    )


def _other_way(request: ApprovalRequest, mode: str, sandbox_mode: str) -> tuple[str, str]:
    """The setting that makes the approval unnecessary: for the model and programs, for people.

    Empty for people where only they can answer.
    """
    effects = request.effects
    # Modes that ask about everything also ask about calls that another setting would allow.
    eased = ' and approval_policy = "on-request"' if mode in ("untrusted", "auto", "strict") else ""
    if effects.calls and request.tool.startswith("mcp__"):
        _, server, tool = request.tool.split("__", 2)
        # After external content only the tool's own setting counts.
        by_name = request.rule == "external.content"
        setting = f"tools.{tool}.approval_mode" if by_name else "default_tools_approval_mode"
        row = f'mcp_servers.{server}.{setting} = "approve"'
        return f"or set {row}", row
    if request.rule == "external.content":
        row = "tool_security.ask_after_external_content"
        return f"or set {row} = false", f"-c {row}=false"
    if request.risk == Risk.CRITICAL or request.protected:
        return "or do it yourself", ""
    if request.rule == "command.network.off" or (effects.connects and not effects.runs):
        row = "sandbox_workspace_write.network_access"
        return f"or set {row} = true{eased}", f"-c {row}=true"
    if request.rule == "command.escalated":
        prefix = next((list(choice.prefix) for choice in request.choices if choice.prefix), [])
        words = json.dumps(prefix or ["…"], ensure_ascii=False)
        rule = f"prefix_rule(pattern={words}, outside=True)"
        place = "rules/default.rules in Toolrest's home"
        return f"or add {rule} to {place}", f"{rule} in {place}" if prefix else ""
    if request.leaves or effects.escalates is not None or request.rule == "table.leave":
        if sandbox_mode == "read-only":
            setting = f'or set sandbox_mode = "workspace-write" (-s workspace-write){eased}'
            return setting, "-s workspace-write"
        setting = f"or name the folder in sandbox_workspace_write.writable_roots{eased}"
        return setting, "--add-dir and the folder"
    setting = _eased(request, mode)
    row = f'approvals.tools.{request.tool} = "allow"'
    return setting, row if row in setting else ""


def _eased(request: ApprovalRequest, mode: str) -> str:
    if mode == "strict":
        return 'or set approval_policy = "on-request"'
    if any(choice.scope != "once" for choice in request.choices):
        # What can be granted for longer is an ordinary request, which these settings allow.
        by_mode = request.rule.startswith(("table.", "command.mode."))
        never = ', or set approval_policy = "never"' if by_mode else ""
        return f'or set approvals.tools.{request.tool} = "allow"{never}'
    return "or write it so that its effects can be known beforehand"


def _event(request: ApprovalRequest, turn_id: str) -> ApprovalRequested:
    """The event for an approval request: of a command, a patch or another call."""
    common: dict[str, Any] = {
        "call_id": request.call_id,
        "tool": request.tool,
        "reason": request.reason,
        "risk": request.risk.label,
        "keys": request.keys,
        "turn_id": turn_id,
    }
    if request.command:
        rules = (choice.prefix for choice in request.choices if choice.prefix)
        return ExecApprovalRequest(
            command=request.command,
            cwd=request.cwd,
            proposed_execpolicy_amendment=next(rules, None),
            parsed_cmd=request.parsed_cmd,
            **common,
        )
    if request.changes:
        return ApplyPatchApprovalRequest(changes=request.changes, **common)
    return ApprovalRequested(**common)
