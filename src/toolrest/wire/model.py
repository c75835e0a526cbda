"""The interface of a model: requests, events of the reply, errors.

History is a list of JSON objects in the shape of Responses items, whatever wire the model is on:
that is also what a rollout stores. What another wire needs to get back unchanged (an Anthropic
thinking signature, a Chat server's `reasoning_content`) is in extra keys of a `reasoning` item
and is left out of requests on any other wire.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from toolrest.errors import ToolrestError
from toolrest.items import JSONObject, Wire

ModelErrorKind: TypeAlias = Literal[
    "context_window",
    "quota",
    "usage_limit",
    "rate_limit",
    "invalid_request",
    "invalid_image",
    "no_images",
    "bad_reasoning",
    "auth",
    "not_found",
    "overloaded",
    "server",
    "unreachable",
    "stream",
    "incomplete",
    "policy",
    "script",
]
"""The kinds of ModelError. `stream`: a reply broke off; `incomplete`: the server cut it on purpose;
`invalid_image`: it cannot read an image; `no_images`: it takes none at all;
`bad_reasoning`: it cannot read the reasoning that was sent back;
`script`: a scripted model got a request that is not in its script."""

RETRYABLE: Final = frozenset[ModelErrorKind](
    {"stream", "server", "unreachable", "auth", "not_found", "rate_limit"}
)

LONGEST_WAIT: Final = 300.0
"""Seconds that a server may ask to wait; for longer a turn fails, and says so."""


LIMIT_CUT: Final = (
    "not run: the token limit cut this reply before it was complete; "
    "make the call again, in smaller parts"
)
FILTER_CUT: Final = "not run: the server's content filter stopped this reply"


class ModelError(ToolrestError):
    """A failed request to a model. `retryable`: sending it again may help.

    `retry_after` is how long the server asks to wait, in seconds. `status` is the HTTP status, if
    there is one. `window` is the context window in tokens, when the server said it. `usage` is what
    an answer that it cut has cost.
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        status: int | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        window: int | None = None,
        usage: Usage | None = None,
        hints: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, hints=hints)
        self.kind: ModelErrorKind = kind
        self.message = str(self)
        self.status = status
        self.retryable = kind in RETRYABLE if retryable is None else retryable
        self.retry_after = retry_after
        self.window = window
        self.usage = usage


class ModelRequest(Struct):
    """One request to a model. `tools` are already in the form of the model's wire.

    `items` is the whole history. Pass the same item objects in the same order and do not change
    them: what was rendered for one request is then reused for the next.
    """

    model: str
    items: Sequence[JSONObject]
    instructions: str = ""
    tools: Sequence[JSONObject] = ()
    parallel_tool_calls: bool = False
    session_id: str = ""
    turn_id: str = ""
    output_schema: JSONObject | None = None
    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    verbosity: str | None = None
    max_output_tokens: int | None = None
    tool_choice: str = "auto"
    retries: int | None = None
    """How often it may be repeated before its reply begins; unset, as its provider says."""
    tokens: int | None = None
    """An estimate of its tokens, where the context window is known."""


class Usage(Struct):
    """Tokens of one response, or of several.

    `long` is what came in requests so long that their tokens have a price of their own.
    """

    input: int = 0
    cached_input: int = 0
    output: int = 0
    reasoning_output: int = 0
    total: int = 0
    cache_write_input: int = 0
    long: Usage | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.cached_input + other.cached_input,
            self.output + other.output,
            self.reasoning_output + other.reasoning_output,
            self.total + other.total,
            self.cache_write_input + other.cache_write_input,
            self.long + other.long if self.long and other.long else self.long or other.long,
        )


class ItemStarted(Struct):
    """The start of an item of this type (`message`, `reasoning`, `function_call`...)."""

    kind: str
    item_id: str = ""


class TextDelta(Struct):
    """More of the assistant's text."""

    text: str


class ReasoningDelta(Struct):
    """More reasoning; `summary` False is the raw kind, which is shown only when asked for."""

    text: str
    summary: bool = True


class ArgumentsDelta(Struct):
    """More of a call's arguments: to show, never to act on."""

    call_id: str
    name: str
    delta: str


class ItemDone(Struct):
    """A whole item in the canonical shape: the only source of history and of calls to run."""

    item: JSONObject


class CutCall(Struct):
    """A call of a reply that was cut: never run, and answered with the reason."""

    item: JSONObject
    reason: str


class Completed(Struct):
    """The last event: the response is complete. `end_turn` False asks for another request."""

    response_id: str = ""
    usage: Usage | None = None
    end_turn: bool | None = None


class Retrying(Struct):
    """A repetition of the request after `delay` seconds; no reply had begun."""

    attempt: int
    limit: int
    delay: float
    reason: str
    kind: ModelErrorKind = "server"


class Notice(Struct):
    """A note for the user, once, about something that this server cannot do."""

    text: str


class RateLimits(Struct):
    """The server's rate limits, as the spec's snapshot: `primary`, `secondary`..."""

    snapshot: JSONObject


ModelEvent: TypeAlias = (
    ItemStarted
    | TextDelta
    | ReasoningDelta
    | ArgumentsDelta
    | ItemDone
    | CutCall
    | Completed
    | Retrying
    | Notice
    | RateLimits
)


class Model(Protocol):
    """A model. Implementations: the three wires, and the scripted one for tests.

    It must end each reply with one `Completed` or raise ModelError, yield an item as done only
    when all of it has come, and stop when the iterator is closed. It must not run tools, keep a
    history or show its key in an error. Not promised: that text comes before `ItemDone`, that
    usage is known, or that two requests at once are answered in order.

    `context_window` is None when it is not known. `stream_max_retries` is how often the caller
    should rebuild its request from the history, wait `retry_delay` and ask again after a
    `ModelError` that is `retryable`: items that were done before the break stay in the history.
    """

    @property
    def wire(self) -> Wire:
        """The wire, whose form the tools must have."""

    @property
    def name(self) -> str:
        """The model's name, as the server knows it."""

    @property
    def context_window(self) -> int | None:
        """The most tokens of a request."""

    @property
    def stream_max_retries(self) -> int:
        """The number of retries after a broken stream."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """The reply as it comes, ending with `Completed`; `ModelError` if it does not.

        Close the iterator (`aclose`) to cancel the request. A request that failed before a reply
        began is repeated in here, after a `Retrying` event.
        """

    async def aclose(self) -> None:
        """Close the connections."""


def retry_delay(attempt: int, error: ModelError | None = None) -> float:
    """Seconds before the attempt-th repetition (from 1): the server's wish, else doubling."""
    if error is not None and error.retry_after is not None:
        return error.retry_after
    spread = 0.9 + os.urandom(1)[0] / 255 * 0.2
    return float(0.2 * 2.0 ** min(attempt - 1, 16) * spread)
