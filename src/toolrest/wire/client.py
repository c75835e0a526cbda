"""The client that the three wires share: request, streamed reply, options that are refused."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from msgspec.structs import replace

from toolrest.gate.schema.for_wire import Subset, for_wire
from toolrest.items import JSONObject, Wire
from toolrest.wire.http.endpoint import Http, Opened, Part, drain
from toolrest.wire.http.error_bodies import rate_limits
from toolrest.wire.items.history_bytes import EncodedHistory
from toolrest.wire.items.json_text import dumps
from toolrest.wire.items.others import Origin, names_of
from toolrest.wire.items.refused_reasoning import RefusedReasoning
from toolrest.wire.model import (
    ModelError,
    ModelEvent,
    ModelRequest,
    Notice,
    RateLimits,
    Retrying,
)
from toolrest.wire.model_list import models_in
from toolrest.wire.provider import Provider, refused_options
from toolrest.wire.reply import Body, Parser

_MOST_ATTEMPTS: Final = 4
# Seconds for what may follow the end of a reply: its usage, a second error with more details.
_LAST_WORDS: Final = 5.0
_NOTICES: Final[Mapping[str, str]] = {
    "no_images": "{} takes no images: they are left out from now on",
    "bad_reasoning": "{} cannot read the reasoning so far, perhaps another provider's: "
    "it is left out",
}


class HttpModel(ABC):
    """A model behind an endpoint; implements `toolrest.wire.model.Model`.

    Options that the server refuses by name are left out from then on.
    """

    wire: Wire
    path: str
    spelled: Mapping[str, str] = {}
    """Options of the settings that have another name on this wire."""
    returned: Iterable[str] = ()
    """Known fields of the model's messages that some servers send and do not take back."""

    def __init__(self, provider: Provider, name: str, *, context_window: int | None = None) -> None:
        self.provider = provider
        self.name = name
        self.options = provider.options(name)
        stated = self.options.get("context_window")
        self.context_window = stated if isinstance(stated, int) else context_window
        self.max_output_tokens: int | None = None
        self.sees = provider.profile.images
        """Whether images are sent; False once the server has refused one."""
        first = self.options.get("first_token_timeout_ms")
        self._first_limit: float | None = None if first is None else first / 1000
        idle = max(provider.idle_timeout, self._first_limit or 0)
        self._http = Http(replace(provider, idle_timeout=idle))
        self.origin = Origin(provider.place, any_ids=not provider.limits_ids)
        self._history = self.encoder()
        self.left_out: set[str] = set()
        """The fields that the server has refused by name."""
        self._refused = RefusedReasoning()
        self._learning: asyncio.Task[None] | None = None
        self._tools: tuple[Sequence[JSONObject], bytes] | None = None

    def most(self, request: ModelRequest) -> int | None:
        """The most tokens of a reply: the request's limit, else the settings'."""
        return request.max_output_tokens or self.max_output_tokens

    @property
    def stream_max_retries(self) -> int:
        """The number of retries after a broken stream."""
        return self.provider.stream_max_retries

    async def aclose(self) -> None:
        """Close the connections."""
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.wait({self._learning})
        await self._http.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """The reply as it comes; see `Model.stream`."""
        request = self._with_options(request)
        if self._learning is None and self._asks_for_window():
            self._learning = asyncio.ensure_future(self._learn_window())
        for attempt in range(_MOST_ATTEMPTS):
            begun = False
            try:
                known = replace(request, items=self._refused.without(request.items))
                async with aclosing(self._ask(known)) as events:
                    async for event in events:
                        begun = begun or not isinstance(event, Retrying)
                        yield event
                return
            except ModelError as error:
                # A server may repeat them in a stream that has begun, too.
                error.args = (self.provider.without_secrets(error.plain),)
                error.message = str(error)
                self.context_window = self.context_window or error.window
                healed = self._without_refused(error, request)
                if begun or attempt + 1 == _MOST_ATTEMPTS or not healed:
                    error.retryable |= healed
                    raise
                if error.kind in _NOTICES:
                    yield Notice(_NOTICES[error.kind].format(self.name))

    def _without_refused(self, error: ModelError, request: ModelRequest) -> bool:
        """Leave out what the server refuses; False when it refuses something else."""
        if error.kind == "bad_reasoning":
            return self._refused.add(request.items)
        if error.kind == "no_images" and self.sees:
            self.sees = False
            self._history = self.encoder()
            return True
        if error.kind != "invalid_request":
            return False
        refused = set(refused_options(error.plain, self.optional)) - self.left_out
        self.left_out |= refused
        returned = {*self.returned, *names_of(request.items, self.origin.place)}
        unwanted = set(refused_options(error.plain, returned)) - self.origin.refused
        if unwanted:
            self.origin = replace(self.origin, refused=self.origin.refused | unwanted)
            self._history = self.encoder()
        return bool(refused or unwanted)

    def _with_options(self, request: ModelRequest) -> ModelRequest:
        given = {
            key: self.options[key]
            for key in ("tool_choice", "parallel_tool_calls")
            if key in self.options and request.tools and request.tool_choice == "auto"
        }
        return replace(request, **given) if given else request

    def _asks_for_window(self) -> bool:
        """Whether the server is asked for the context window: it is near, or the settings say so.

        A hosted server names it when a request is too large.
        """
        if self.options.get("context_window") == "auto":
            return True
        return self.context_window is None and self.provider.profile.near

    async def _learn_window(self) -> None:
        try:
            headers = self.headers(ModelRequest("", []))
            document = await self._http.get_json("models", headers)
        except (ModelError, ValueError):
            return  # not every server has a list
        rows = models_in(document) or []
        # A server of one model, as llama.cpp's, takes any name for it.
        named = [row for row in rows if row.id == self.name] or rows[: len(rows) == 1]
        if named and named[-1].context_window is not None:
            self.context_window = named[-1].context_window

    @abstractmethod
    def encoder(self) -> EncodedHistory:
        """A new renderer of the history, for what this endpoint takes now."""

    @property
    @abstractmethod
    def optional(self) -> Iterable[str]:
        """The optional fields of a request."""

    @abstractmethod
    def body(self, request: ModelRequest) -> bytes:
        """The request as JSON."""

    @abstractmethod
    def parser(self, request: ModelRequest) -> Parser:
        """The parser of the reply to this request."""

    def headers(self, request: ModelRequest) -> dict[str, str]:
        """The headers of one request."""
        provider = self.provider
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "user-agent": user_agent(),
            "originator": "toolrest",
        }
        if provider.key:
            headers["authorization"] = f"Bearer {provider.key.reveal()}"
        if request.session_id:
            headers["session-id"] = headers["thread-id"] = header_value(request.session_id)
        return headers | {key.lower(): value.reveal() for key, value in provider.headers.items()}

    def opened(self, headers: Mapping[str, str], request: ModelRequest) -> Iterator[ModelEvent]:
        """The events in the reply's headers."""
        if not any(name.startswith("x-codex-") for name in headers):
            return
        snapshot = rate_limits(headers)
        if snapshot:
            yield RateLimits(snapshot)

    async def _ask(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        parser = self.parser(request)
        body = Body(parser)
        most = self.provider.request_max_retries
        most = most if request.retries is None else min(most, request.retries)
        posted = self._http.post(self.path, self.body(request), self.headers(request), most)
        now = asyncio.get_running_loop().time
        deadline = None if self._first_limit is None else now() + self._first_limit
        async with aclosing(posted) as parts:
            while (part := await self._next(parts, parser, deadline)) is not None:
                if isinstance(part, bytes):
                    for event in body.feed(part):
                        deadline = None
                        yield event
                    if parser.completed is not None:
                        await drain(parts)
                        yield parser.completed
                        return
                    if parser.is_ending and deadline is None:
                        deadline = now() + _LAST_WORDS
                elif isinstance(part, Opened):
                    body.open(part)
                    for event in self.opened(part.headers, request):
                        yield event
                else:
                    yield part
        for event in body.end():
            yield event

    async def _next(
        self, parts: AsyncGenerator[Part, None], parser: Parser, deadline: float | None
    ) -> Part | None:
        """The next part of a reply, None at its end; ModelError when its start takes too long."""
        try:
            async with asyncio.timeout_at(deadline):
                return await anext(parts, None)
        except (TimeoutError, ModelError) as error:
            if parser.is_ending:
                return None
            if isinstance(error, ModelError):
                raise
            where = self.provider.shown_url(self.path)
            message = f"{where} did not begin to answer within {self._first_limit:g} s"
            raise ModelError("stream", f"{message} (first_token_timeout_ms)") from None

    def keeps_to_schema(self, request: ModelRequest, field: str) -> bool:
        """Whether this field has the server keep the reply to its schema; else words ask for it."""
        profile = self.provider.profile
        if request.output_schema is None or not profile.json_schema or field in self.left_out:
            return False
        may_call = bool(request.tools) and request.tool_choice != "none"
        return profile.json_schema_with_tools or not may_call

    def tools_json(self, tools: Sequence[JSONObject]) -> bytes:
        """The tools as JSON; made once while they stay the same."""
        if self._tools is None or (self._tools[0] is not tools and self._tools[0] != tools):
            self._tools = (tools, dumps(list(self.shaped(tools))).encode())
        return self._tools[1]

    def shaped(self, tools: Sequence[JSONObject]) -> Sequence[JSONObject]:
        """The tools, in the number and schema subset that this endpoint takes."""
        profile = self.provider.profile
        tools = tools[: profile.max_tools]
        if profile.schema_subset is None:
            return tools
        return [_plain(tool, self.wire, profile.schema_subset) for tool in tools]

    def joined(self, fields: Mapping[str, Any]) -> bytes:
        """An object of fields in order, and the options of the settings; refused ones are left out.

        Bytes and lists of bytes are JSON already: a history is copied once, not at every step.
        """
        pieces: list[bytes | bytearray] = []
        for key, value in self._optioned(fields).items():
            if value is None or key in self.left_out:
                continue
            pieces.append(b"%s%s:" % (b"," if pieces else b"{", dumps(key).encode()))
            if isinstance(value, list) and value and isinstance(value[0], bytes):
                pieces += value
            else:
                pieces.append(value if isinstance(value, bytes) else dumps(value).encode())
        return b"".join([*pieces, b"}"])

    def _optioned(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        options = self.options
        if not options:
            return fields
        more: dict[str, Any] = {
            self.spelled.get(key, key): options[key]
            for key in ("temperature", "top_p", "seed", "stop")
            if key in options
        }
        if options.get("stream") is False:
            more |= {"stream": False, "stream_options": None}
        for key, value in options.get("extra_body", {}).items():
            known = fields.get(key)
            if isinstance(known, dict) and isinstance(value, dict):
                value = {**known, **value}
            more[key] = value
        return {**fields, **more}


def array(
    before: Sequence[JSONObject], settled: bytes | bytearray, rest: Iterable[JSONObject]
) -> list[bytes | bytearray]:
    """The pieces of a JSON array: first messages, rendered ones, and those not rendered yet."""
    pieces: list[bytes | bytearray] = [b"["]
    for part in (*before, settled, *rest):
        raw = dumps(part).encode() if isinstance(part, dict) else part
        if raw:
            pieces += [b",", raw] if len(pieces) > 1 else [raw]
    return [*pieces, b"]"]


def header_value(text: str) -> str:
    """A text that may stand in a header."""
    return "".join(char for char in text if " " <= char <= "~")[:256]


def user_agent() -> str:
    """The value of the user-agent header."""
    # For import-linter, importing the package means importing all that it offers.
    version = sys.modules["toolrest"].__version__
    python = ".".join(map(str, sys.version_info[:2]))
    return f"toolrest/{version} ({sys.platform}; python {python})"


def _plain(tool: JSONObject, wire: Wire, subset: Subset) -> JSONObject:
    """A tool's spec with its schema in a subset, wherever the wire has it."""
    for key in ("function", "parameters", "input_schema"):
        part = tool.get(key)
        if isinstance(part, dict):
            changed = (
                _plain(part, wire, subset)
                if key == "function"
                else for_wire(part, wire, subset=subset)
            )
            return {**tool, key: changed}
    return tool
