"""Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from toolrest.items import JSONObject, Wire
from toolrest.wire.apis.anthropic_messages import (
    CONTINUE,
    MARK,
    anthropic_messages,
    closed,
    loaded_in,
    marked,
)
from toolrest.wire.apis.anthropic_stream import AnthropicParser
from toolrest.wire.apis.chat import schemas_of
from toolrest.wire.apis.output_format import is_closed, schema_in_words
from toolrest.wire.client import HttpModel, array
from toolrest.wire.items.history_bytes import EncodedHistory, Rendered
from toolrest.wire.items.json_text import dumps
from toolrest.wire.items.pairing import word_id
from toolrest.wire.items.parts import leading_texts, speaks
from toolrest.wire.model import ModelRequest
from toolrest.wire.model_families import ModelInfo, model_info
from toolrest.wire.provider import Profile, Provider
from toolrest.wire.reply import Parser

_VERSION: Final = "2023-06-01"
_INTERLEAVED: Final = "interleaved-thinking-2025-05-14"
_BUDGETS: Final = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768}
_EFFORTS: Final = {"minimal": "low", "xhigh": "max"}
_KNOWS_SCHEMAS: Final = re.compile(r"claude-[a-z]+-(?:4-(?:[5-9]|[1-9]\d)(?!\d)|[5-9])")
"""Models that can be kept to a schema: from 4.5 on."""
_IN_BAND: Final = ("defer_loading", "tool_reference")
_OFF: Final = frozenset({"none", "off"})
_LEAST: Final = 4096
"""Tokens that a reply may have however full the window is."""
_SPARE: Final = 40
"""One in so many tokens of the window is kept free, as the size of a request is an estimate."""


class AnthropicModel(HttpModel):
    """A model on the Messages API. Stable prefixes are marked for its cache."""

    wire: Wire = "anthropic"
    path = "messages"
    spelled: Mapping[str, str] = {"stop": "stop_sequences"}

    def __init__(
        self,
        provider: Provider,
        name: str,
        *,
        context_window: int | None = None,
        info: ModelInfo | None = None,
    ) -> None:
        self._loaded: frozenset[str] = frozenset()
        """Tools that outputs in the history bring in."""
        super().__init__(provider, name, context_window=context_window)
        self._info = model_info(name) if info is None else info

    def encoder(self) -> EncodedHistory:
        """Items as messages of blocks."""
        images, refers = self.sees, bool(self._loaded)
        return EncodedHistory(
            lambda items: anthropic_messages(
                items, images=images, origin=self.origin, refers=refers
            ),
            speaks=speaks,
            legal=word_id,
        )

    @property
    def optional(self) -> Iterable[str]:
        """The optional fields of a request."""
        return ("thinking", "output_config", "tool_choice", *_IN_BAND)

    def body(self, request: ModelRequest) -> bytes:
        """The request, with up to four marks: tools, system, the last request's end, this one's."""
        leading, texts = leading_texts(request.items)
        self._bring_in(request)
        history = self._history.render(request.items[leading:])
        if request.output_schema is not None:
            texts = [*texts, schema_in_words(request.output_schema)]
        system = "\n\n".join(filter(None, [request.instructions, *texts]))
        thinking = self._thinking(request, history.rest)
        tools = self.tools_json(request.tools) if request.tools else None
        return self.joined(
            {
                "model": request.model,
                "max_tokens": self._most(request, thinking),
                "system": [_block(system)] if system.strip() else None,
                "messages": _messages(history),
                "tools": tools,
                "tool_choice": _choice(request, self.provider.profile) if tools else None,
                "thinking": thinking,
                "output_config": self._output_config(request),
                "stream": True,
            }
        )

    def _bring_in(self, request: ModelRequest) -> None:
        """Note which tools the history brings in: all that it names, or none if one is missing."""
        named = {name for item in request.items for name in loaded_in(item)}
        there = {tool.get("name") for tool in request.tools[: self.provider.profile.max_tools]}
        able = self.provider.profile.brings_tools_in and _KNOWS_SCHEMAS.match(self.name)
        refused = not self.left_out.isdisjoint(_IN_BAND)
        loaded = frozenset(named if able and not refused and named <= there else ())
        if loaded != self._loaded:
            changes = bool(loaded) != bool(self._loaded)
            self._loaded, self._tools = loaded, None
            if changes:
                self._history = self.encoder()

    def shaped(self, tools: Sequence[JSONObject]) -> Sequence[JSONObject]:
        """The tools, with the cache mark on the last that is not brought in by the history."""
        made = [
            {**tool, "defer_loading": True} if tool.get("name") in self._loaded else tool
            for tool in super().shaped(tools)
        ]
        last = max((at for at, tool in enumerate(made) if "defer_loading" not in tool), default=0)
        made[last] = {**made[last], "cache_control": MARK}
        return made

    def _most(self, request: ModelRequest, thinking: JSONObject | None) -> int:
        most = self.most(request) or self._info.max_output_tokens
        if self.context_window is not None and request.tokens is not None:
            # Older models refuse a request whose own tokens and `max_tokens` exceed the window.
            spare = self.context_window // _SPARE
            most = min(most, max(_LEAST, self.context_window - request.tokens - spare))
        budget = thinking.get("budget_tokens", 0) if thinking else 0
        return most if most > budget else int(budget) + 4096

    def _thinking(self, request: ModelRequest, messages: list[JSONObject]) -> JSONObject | None:
        effort = request.reasoning_effort
        if effort is None or effort in _OFF or self._info.thinking == "none":
            return None
        if self._info.thinking == "adaptive":
            return {"type": "adaptive"}
        if _called_without_thinking(messages):
            return None  # the API would refuse to go on from there with it
        return {"type": "enabled", "budget_tokens": _BUDGETS.get(effort, _BUDGETS["medium"])}

    def _output_config(self, request: ModelRequest) -> JSONObject | None:
        config: JSONObject = {}
        effort, schema = request.reasoning_effort, request.output_schema
        if effort is not None and effort not in _OFF and self._info.thinking == "adaptive":
            is_own = effort in self._info.efforts
            config["effort"] = effort if is_own else _EFFORTS.get(effort, effort)
        constrained = self.keeps_to_schema(request, "output_config") and is_closed(schema)
        if constrained and _KNOWS_SCHEMAS.match(self.name):
            config["format"] = {"type": "json_schema", "schema": schema}
        return config or None

    def headers(self, request: ModelRequest) -> dict[str, str]:
        """The headers, with the key in one of its own."""
        headers = super().headers(request)
        if self.provider.key:
            headers.pop("authorization", None)
            headers.setdefault("x-api-key", self.provider.key.reveal())
        headers.setdefault("anthropic-version", _VERSION)
        if request.reasoning_effort is not None and self._info.thinking == "budget":
            headers.setdefault("anthropic-beta", _INTERLEAVED)
        return headers

    def parser(self, request: ModelRequest) -> Parser:
        """The parser of the reply."""
        return AnthropicParser(
            schemas_of(request.tools),
            repairs=self.provider.profile.repair,
            place=self.origin.place,
        )


def _messages(history: Rendered) -> list[bytes | bytearray]:
    """The messages with cache marks at the end of the last request and at their own end."""
    settled, last = history.settled, history.last
    rest = closed(history.rest, last)
    if rest:
        rest[-1] = marked(rest[-1])
    first = [CONTINUE] if settled.startswith(b'{"role":"assistant"') else []
    if last is not None and last["role"] == "user":
        settled = settled[: len(settled) - history.last_size] + dumps(marked(last)).encode()
    return array(first, settled, rest)


def _called_without_thinking(messages: list[JSONObject]) -> bool:
    """Whether the last reply made calls and has no thinking, or lost it on the way."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            kinds = [block["type"] for block in message["content"]]
            return "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking")
    return False


def _block(text: str) -> JSONObject:
    return {"type": "text", "text": text, "cache_control": MARK}


def _choice(request: ModelRequest, profile: Profile) -> JSONObject | None:
    if not profile.tool_choice:
        return None
    kinds = {"auto": "auto", "required": "any", "none": "none"}
    choice: JSONObject = {"type": kinds.get(request.tool_choice, "auto")}
    limits = profile.parallel_tool_calls and not request.parallel_tool_calls
    if limits and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return choice
