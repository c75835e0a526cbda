"""Scripts of models: replies made of parts, the same on every wire.

A script is a list of replies, given one per request. A reply is a text, a part, a list of
those, a `Reply`, or a function that is given the request's JSON and returns one of those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from toolrest.items import JSONObject
from toolrest.wire.model import Usage


class Say(Struct):
    """Assistant text; `chunks` is in how many deltas it comes, `seconds` how long that takes."""

    text: str
    chunks: int = 2
    seconds: float = 0.0


class Think(Struct):
    """Reasoning; `signature` is what must come back unchanged on wires that sign it."""

    text: str
    signature: str = "scripted-signature"


class Call(Struct):
    """A function call; `arguments` as a string is sent as it is, valid JSON or not."""

    name: str
    arguments: JSONObject | str | None = None
    call_id: str = ""

    @property
    def arguments_text(self) -> str:
        """The arguments as the model would write them."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments or {}, ensure_ascii=False)


class Freeform(Struct):
    """A call of a freeform (custom) tool; a function call with `input` where there are none."""

    name: str
    input: str
    call_id: str = ""


class LocalShell(Struct):
    """A call of the hosted shell; a call of the function `shell` where there is none."""

    command: Sequence[str]
    call_id: str = ""
    timeout_ms: int | None = None
    workdir: str | None = None


class Raw(Struct):
    """Any Responses item, sent as it is (Responses API and `ScriptedModel` only)."""

    item: JSONObject


class Fail(Struct):
    """Instead of an answer, an HTTP error; in the middle of a reply, an error inside the stream.

    `code` is the API's own error code (`context_length_exceeded`, `rate_limit_exceeded`...).
    """

    status: int = 500
    code: str = "server_error"
    message: str = "scripted failure"
    retry_after: float | str | None = None


class Cut(Struct):
    """The connection ends here, in the middle of the stream."""


class Pause(Struct):
    """A silence in the stream, in seconds."""

    seconds: float


class Garbage(Struct):
    """An event of the stream that is not JSON: the stream is broken there."""

    text: str = "{not json"


class Incomplete(Struct):
    """The server ends the answer early: `max_output_tokens`, `content_filter`..."""

    reason: str = "max_output_tokens"


def context_full(message: str = "Your input exceeds the context window of this model.") -> Fail:
    """The error of each API for a history that is too long."""
    return Fail(400, "context_length_exceeded", message)


Part: TypeAlias = (
    Say | Think | Call | Freeform | LocalShell | Raw | Fail | Cut | Pause | Garbage | Incomplete
)


class Reply(Struct):
    """Parts in order, with the usage to report (None: a made-up small one)."""

    parts: Sequence[Part] = ()
    usage: Usage | None = None
    end_turn: bool | None = None


Answer: TypeAlias = str | Part | Sequence[str | Part] | Reply
Step: TypeAlias = Answer | Callable[[Any], Answer]
Script: TypeAlias = Iterable[Step]


def as_reply(step: Step, request: Any) -> Reply:
    """The step as a `Reply`; a function is called with the request."""
    answer = step(request) if callable(step) else step
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, str):
        return Reply([Say(answer)])
    if isinstance(answer, Sequence):
        return Reply([Say(part) if isinstance(part, str) else part for part in answer])
    return Reply([answer])


class Player:
    """The position of a scripted model in its script, which may be an endless iterator."""

    def __init__(self, script: Script) -> None:
        self._steps = iter(script)
        self.played = 0

    def next(self, request: Any) -> Reply | None:
        """The reply to this request; None when the script is over."""
        try:
            step = next(self._steps)
        except StopIteration:
            return None
        self.played += 1
        return as_reply(step, request)

    def call_id(self, position: int, given: str) -> str:
        """The id of the part at that position: the script's own, else one that is stable."""
        return given or f"call_{self.played}_{position}"
