"""Pending approvals: requests that outlive their process, and the pin that an answer holds for."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields  # noqa: TID251 - public values

from msgspec import Struct

from toolrest.errors import ToolrestError
from toolrest.gate.approval.request import ApprovalRequest, Choice, Exact
from toolrest.items import CallItem, CustomToolCall, FunctionCall, JSONObject
from toolrest.policy.effects import Risk

_VERSION = 1


class PendingError(ToolrestError):
    """A pending approval that cannot be used; the message names the reason and what to do."""


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """An approval request that waits for an answer, in this process or another (`on_ask="defer"`).

    Show `request` to the user and answer with `Toolrest.resume` or `Conversation.resume`. The
    answer counts once, for exactly this call: not after `expires`, and not when the programs and
    scripts that the call names have changed.
    """

    id: str
    """The id, for `toolrest approvals` and for front ends."""
    pin: str
    """A hash over the call, how it would run, the files that it names and what was shown."""
    tool: str
    """The name of the tool."""
    arguments: str
    """The arguments as they will run, not redacted: never show them."""
    freeform: bool
    """Whether the arguments are raw text instead of JSON."""
    workspace: str
    """The workspace of the session that asked."""
    approval_policy: str
    """The approval policy of that session."""
    sandbox_mode: str
    """The sandbox mode of that session."""
    created: float
    """When it was asked, in seconds since 1970."""
    expires: float
    """When it can no longer be answered."""
    session_id: str
    """The session that asked."""
    call_id: str
    """The id of the call."""
    shown: JSONObject
    """The request as JSON, redacted."""
    version: int = _VERSION
    """The version of this format."""
    mac: str = ""
    """Proves that Toolrest wrote it, with a key of the same home."""

    def to_json(self) -> str:
        """JSON text that any process of this user can resume from."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str | bytes) -> PendingApproval:
        """Read `to_json`; PendingError for anything else. Its `mac` is checked later."""
        try:
            data = json.loads(text)
            pending = PendingApproval(**data)
        except (ValueError, TypeError, RecursionError):
            raise PendingError("this is not a pending approval") from None
        wrong = [f.name for f in fields(pending) if not _fits(f.name, getattr(pending, f.name))]
        if wrong:
            raise PendingError(f"this is not a pending approval: wrong {', '.join(wrong)}")
        if pending.version != _VERSION:
            raise PendingError(f"this pending approval has the unknown version {pending.version}")
        return pending

    @property
    def item(self) -> CallItem:
        """The call as the model would have sent it."""
        if self.freeform:
            return CustomToolCall(self.call_id, self.tool, self.arguments)
        return FunctionCall(self.call_id, self.tool, self.arguments)

    @property
    def request(self) -> ApprovalRequest:
        """The approval request for front ends: redacted, and nothing is left out."""
        shown = self.shown
        return ApprovalRequest(
            self.call_id,
            self.tool,
            shown["arguments"],
            shown["reason"],
            Risk[shown["risk"].upper()],
            keys=tuple(shown["keys"]),
            choices=tuple(Choice(c["scope"], c["sentence"]) for c in shown["choices"]),
            rule=shown["rule"],
            command=tuple(shown["command"]),
            cwd=shown["cwd"],
            diff=shown["diff"],
            leaves=shown["leaves"],
            retry_reason=shown["retry_reason"],
            purpose=str(shown.get("purpose", "")),
            title=str(shown.get("title", "")),
            notes=tuple(map(str, shown.get("notes", ()))),
        )


_TYPES: dict[str, type | tuple[type, ...]] = {
    "freeform": bool,
    "created": (int, float),
    "expires": (int, float),
    "shown": dict,
    "version": int,
}


def _fits(name: str, value: object) -> bool:
    if name == "shown":
        return isinstance(value, dict) and value.keys() >= _SHOWN
    return isinstance(value, _TYPES.get(name, str))


_SHOWN = {
    "arguments",
    "reason",
    "risk",
    "keys",
    "choices",
    "rule",
    "command",
    "cwd",
    "diff",
    "leaves",
    "retry_reason",
}


class ApprovalScope(Struct, frozen=True):
    """The scope of an approval: the session, workspace and sandbox that it counts for."""

    session_id: str
    workspace: str
    approval_policy: str
    sandbox_mode: str
    network: str = "off"
    writable_roots: tuple[str, ...] = ()

    def pin(self, request: ApprovalRequest) -> str:
        """The hash of exactly this request."""
        exact = request.exact or Exact("")
        parts = [
            request.tool,
            exact.text,
            exact.freeform,
            self.workspace,
            self.sandbox_mode,
            self.network,
            list(self.writable_roots),
            request.cwd,
            request.risk.label,
            list(request.keys),
            request.leaves,
            request.retry_reason is not None,
            request.diff,
        ]
        if exact.files:  # without any, requests of earlier versions stay what they were
            parts.append(exact.files)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def shown_of(request: ApprovalRequest) -> JSONObject:
    """The part of a request that a person is shown, as JSON."""
    return {
        "arguments": request.arguments,
        "reason": request.reason,
        "risk": request.risk.label,
        "keys": list(request.keys),
        "choices": [choice.to_json() for choice in request.choices],
        "rule": request.rule,
        "command": list(request.command),
        "cwd": request.cwd,
        "diff": request.diff,
        "leaves": request.leaves,
        "retry_reason": request.retry_reason,
        "purpose": request.purpose,
        "title": request.title,
        "notes": list(request.notes),
    }
