"""The Chat Completions API, which OpenAI began and most servers have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from toolrest.items import JSONObject, Wire
from toolrest.wire.apis.chat_messages import chat_messages
from toolrest.wire.apis.chat_stream import REASONING, ChatParser, Endings
from toolrest.wire.apis.output_format import response_format, schema_in_words
from toolrest.wire.client import HttpModel, array
from toolrest.wire.items.history_bytes import EncodedHistory
from toolrest.wire.items.pairing import any_id, nine_id, printable_id
from toolrest.wire.items.parts import leading_texts, speaks
from toolrest.wire.model import ModelRequest
from toolrest.wire.provider import Provider
from toolrest.wire.reply import Parser


class ChatModel(HttpModel):
    """A model on Chat Completions. Every tool is a function here."""

    wire: Wire = "chat"
    path = "chat/completions"
    returned = (*REASONING, "reasoning_details", "thinking_blocks")

    def __init__(self, provider: Provider, name: str, *, context_window: int | None = None) -> None:
        super().__init__(provider, name, context_window=context_window)
        self._endings = Endings()

    def encoder(self) -> EncodedHistory:
        """Items as messages."""
        profile = replace(self.provider.profile, images=self.sees)
        legal = printable_id if self.provider.limits_ids else any_id
        return EncodedHistory(
            lambda items: chat_messages(items, profile, self.origin),
            speaks=speaks,
            legal=nine_id if profile.nine_char_ids else legal,
            forgets=profile.reasoning == "turn",
        )

    @property
    def optional(self) -> Iterable[str]:
        """The optional fields of a request."""
        names = ("stream_options", "parallel_tool_calls", "tool_choice", "reasoning_effort")
        return (*names, "verbosity", "response_format", "prompt_cache_key")

    def body(self, request: ModelRequest) -> bytes:
        """The request; fields that need tools only when there are some."""
        profile = self.provider.profile
        count, texts = leading_texts(request.items)
        history = self._history.render(request.items[count:])
        constrained = self.keeps_to_schema(request, "response_format")
        if request.output_schema is not None and not constrained:
            texts = [*texts, schema_in_words(request.output_schema)]
        system = "\n\n".join(filter(None, [request.instructions, *texts]))
        role = "developer" if profile.developer_role else "system"
        first = [{"role": role, "content": system}] if system else []
        tools = self.tools_json(request.tools) if request.tools else None
        limit = "max_completion_tokens" if profile.developer_role else "max_tokens"
        return self.joined(
            {
                "model": request.model,
                "messages": array(first, history.settled, history.rest),
                "stream": True,
                "stream_options": {"include_usage": True} if profile.usage else None,
                "tools": tools,
                "tool_choice": request.tool_choice if tools and profile.tool_choice else None,
                "parallel_tool_calls": (
                    request.parallel_tool_calls if tools and profile.parallel_tool_calls else None
                ),
                "reasoning_effort": request.reasoning_effort,
                "verbosity": request.verbosity,
                "response_format": response_format(request) if constrained else None,
                "prompt_cache_key": (
                    request.session_id if profile.developer_role and request.session_id else None
                ),
                limit: self.most(request),
            }
        )

    def parser(self, request: ModelRequest) -> Parser:
        """The parser of the reply."""
        # What may not be called is not called in a text either.
        callable_tools = request.tools if request.tool_choice != "none" else ()
        return ChatParser(
            self.provider.profile,
            schemas_of(callable_tools),
            limited=self.most(request) is not None,
            endings=self._endings,
            place=self.origin.place,
        )


def schemas_of(tools: Sequence[JSONObject]) -> dict[str, Mapping[str, Any]]:
    """The parameters of each tool on offer, by its name on this wire."""
    schemas: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        body = tool.get("function", tool)
        if isinstance(body, dict) and isinstance(body.get("name"), str):
            parameters = body.get("parameters", body.get("input_schema"))
            schemas[body["name"]] = parameters if isinstance(parameters, dict) else {}
    return schemas
