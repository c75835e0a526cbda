"""The Responses API: items as they are, and a stream of events about items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

from toolrest.items import LOADED_TOOLS, JSONObject, Wire
from toolrest.wire.apis.output_format import json_schema_format, response_format, schema_in_words
from toolrest.wire.client import HttpModel, array
from toolrest.wire.http.error_bodies import error_in_stream
from toolrest.wire.items.history_bytes import EncodedHistory
from toolrest.wire.items.json_text import dumps
from toolrest.wire.items.others import OTHERS, Origin, OtherKeys
from toolrest.wire.items.pairing import is_call
from toolrest.wire.items.parts import WIRE_NAME, leading_texts, sent_name, without_images
from toolrest.wire.model import (
    FILTER_CUT,
    LIMIT_CUT,
    ArgumentsDelta,
    Completed,
    CutCall,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from toolrest.wire.provider import Provider
from toolrest.wire.reply import Parser

_KNOWN: Final = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "view_image_call",
        "view_image_call_output",
        "web_search_call",
        "web_search_call_output",
        "compaction",
        "compaction_summary",
        "image_generation_call",
        "additional_tools",
    }
)
_NAMED: Final = frozenset({"function_call", "custom_tool_call"})
_OURS: Final = frozenset(
    {"anthropic", "chat", "repaired", "failed", LOADED_TOOLS, OTHERS, WIRE_NAME}
)
_KEYS: Final = frozenset(
    {
        *("type", "id", "status", "role", "content", "phase", "call_id", "name", "namespace"),
        *("arguments", "input", "output", "action", "summary", "encrypted_content", "end_turn"),
        *("query", "queries", "results", "error", "path", "image_path", "image_data", "metadata"),
        *("result", "revised_prompt", "execution", "tools"),
    }
)
"""Keys of items that every server of this API knows."""
_ANYWHERE: Final = Origin()
_TURN_STATE: Final = "x-codex-turn-state"
_MOST_TOKENS: Final = 10**12


def input_items(
    items: Sequence[JSONObject],
    *,
    images: bool = True,
    developer: bool = True,
    origin: Origin = _ANYWHERE,
) -> list[JSONObject]:
    """Items as this API takes them, without unknown ones and other wires' reasoning.

    Without `developer` such messages come from the user, and messages of the user in a row are
    one: templates of local models take instructions at the start only, and want turns.
    """
    made: list[JSONObject] = []
    for item in items:
        kind = item.get("type")
        if not isinstance(kind, str) or kind not in _KNOWN or "anthropic" in item or "chat" in item:
            continue
        if OTHERS in item:
            item = {**origin.part(item, "message"), **item}
        if kind in _NAMED and item.get("name") != (name := sent_name(item)):
            item = {**item, "name": name}
        item = _without_ours(item)
        if not developer and item.get("role") in ("developer", "system"):
            item = {**item, "role": "user"}
        item = item if images else without_images(item)
        if not developer and made and _is_user(made[-1]) and _is_user(item):
            made[-1] = {**made[-1], "content": [*_content(made[-1]), *_content(item)]}
        else:
            made.append(item)
    return made


def _is_user(item: JSONObject) -> bool:
    return item.get("type") == "message" and item.get("role") == "user"


def _content(item: JSONObject) -> list[Any]:
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    return content if isinstance(content, list) else []


def _without_ours(item: JSONObject) -> JSONObject:
    """An item without the keys that only Toolrest uses."""
    if _OURS.isdisjoint(item):
        return item
    return {key: value for key, value in item.items() if key not in _OURS}


class ResponsesModel(HttpModel):
    """A model on the Responses API. The whole history goes with every request."""

    wire: Wire = "responses"
    path = "responses"

    def __init__(
        self,
        provider: Provider,
        name: str,
        *,
        context_window: int | None = None,
        reasons: bool = False,
    ) -> None:
        super().__init__(provider, name, context_window=context_window)
        self._reasons = reasons
        self._turn_state: tuple[str, str] | None = None

    def encoder(self) -> EncodedHistory:
        """Items, almost as they are."""
        images, developer = self.sees, self.provider.profile.developer_role
        return EncodedHistory(
            lambda items: input_items(items, images=images, developer=developer, origin=self.origin)
        )

    @property
    def optional(self) -> Iterable[str]:
        """The optional fields of a request."""
        names = ("reasoning", "include", "prompt_cache_key", "text", "store", "max_output_tokens")
        return (*names, "parallel_tool_calls", "tool_choice", "response_format")

    def body(self, request: ModelRequest) -> bytes:
        """The request in Codex's order of fields."""
        profile = self.provider.profile
        first = []
        leading, texts = (0, []) if profile.developer_role else leading_texts(request.items)
        history = self._history.render(request.items[leading:] if leading else request.items)
        constrained = self.keeps_to_schema(request, "text")
        near = not profile.json_schema_with_tools
        if request.output_schema is not None and (near or not constrained):
            texts = [*texts, schema_in_words(request.output_schema)]
        instructions: str | None = "\n\n".join(filter(None, [request.instructions, *texts]))
        if profile.instructions_item and profile.developer_role and instructions:
            content = [{"type": "input_text", "text": instructions}]
            first = [{"type": "message", "role": "developer", "content": content}]
            instructions = None
        reasoning = self._reasoning(request)
        return self.joined(
            {
                "model": request.model,
                "instructions": instructions or None,
                "stream": True,
                "input": array(first, history.settled, history.rest),
                "tools": self.tools_json(request.tools),
                "tool_choice": request.tool_choice if profile.tool_choice else None,
                "parallel_tool_calls": (
                    request.parallel_tool_calls if profile.parallel_tool_calls else None
                ),
                "reasoning": reasoning,
                "store": self.provider.is_azure,
                "include": ["reasoning.encrypted_content"] if reasoning is not None else None,
                "prompt_cache_key": request.session_id or None,
                "text": _text(request, constrained),
                "response_format": response_format(request) if constrained and near else None,
                "max_output_tokens": self.most(request),
            }
        )

    def _reasoning(self, request: ModelRequest) -> JSONObject | None:
        reasoning: JSONObject = {}
        if request.reasoning_effort:
            reasoning["effort"] = request.reasoning_effort
        if request.reasoning_summary and request.reasoning_summary != "none":
            reasoning["summary"] = request.reasoning_summary
        return reasoning if reasoning or self._reasons else None

    def headers(self, request: ModelRequest) -> dict[str, str]:
        """The headers, with the turn state that the server wants back during this turn."""
        headers = super().headers(request)
        if self._turn_state is not None and self._turn_state[0] == request.turn_id:
            headers[_TURN_STATE] = self._turn_state[1]
        return headers

    def opened(self, headers: Mapping[str, str], request: ModelRequest) -> Iterator[ModelEvent]:
        """Keep the turn state of the first reply of a turn."""
        state = headers.get(_TURN_STATE)
        known = self._turn_state is not None and self._turn_state[0] == request.turn_id
        if state and request.turn_id and not known:
            self._turn_state = (request.turn_id, state)
        return super().opened(headers, request)

    def parser(self, request: ModelRequest) -> Parser:
        """The parser of the reply."""
        return ResponsesParser(self.origin.place)


def _text(request: ModelRequest, constrained: bool) -> JSONObject | None:
    text: JSONObject = {}
    if request.verbosity:
        text["verbosity"] = request.verbosity
    if request.output_schema is not None and constrained:
        text["format"] = {"type": "json_schema", **json_schema_format(request.output_schema)}
    return text or None


class ResponsesParser(Parser):
    """The parser of the stream; only whole items count, deltas are for display."""

    def __init__(self, place: str | None = None) -> None:
        """`place`: where the reply comes from; without one its items keep unknown keys."""
        self._place = place
        self._calls: dict[str, tuple[str, str]] = {}
        self._unfinished: list[JSONObject] = []
        self._failure: ModelError | None = None
        self._has_items = False

    def take(self, event: JSONObject) -> Iterator[ModelEvent]:
        """The events of one server-sent event."""
        kind = event.get("type")
        if kind == "response.output_item.done":
            yield from self._done(event.get("item"))
        elif kind in ("response.completed", "response.done"):
            yield from self._unseen(event.get("response"))
            if _is_incomplete(event.get("response")):
                raise _incomplete(event["response"])
            self._complete(event.get("response"), strict=kind == "response.completed")
        elif kind == "response.output_item.added":
            yield from self._started(event.get("item"))
        elif kind in ("response.failed", "error"):
            self._fail(event)
        elif kind == "response.incomplete":
            yield from self._unseen(event.get("response"), cut=True)
            raise _incomplete(event.get("response"))
        elif isinstance(kind, str) and kind.startswith("response."):
            yield from self._delta(kind, event)
        elif event.get("error") or ("code" in event and "message" in event):
            self._fail(event)  # of servers that know no type for it

    def _done(self, item: Any) -> Iterator[ModelEvent]:
        """The item; a call that the server marks as unfinished counts if the reply is complete."""
        if not _is_item(item):
            return
        self._has_items = True
        if _is_cut_call(item):
            self._unfinished.append(item)
        else:
            yield ItemDone(_received(item, self._place))

    def _fail(self, event: JSONObject) -> None:
        self._failure = _failure(event)
        self.is_ending = True

    def _unseen(self, response: Any, *, cut: bool = False) -> Iterator[ModelEvent]:
        """The items of a whole response, from a server that sent none of them by itself.

        Calls that come only now are not made if it was `cut`.
        """
        if self._failure is not None:
            return
        reason = _cut_reason(response) if cut or _is_incomplete(response) else None
        output = response.get("output") if isinstance(response, dict) else None
        items = output if isinstance(output, list) and not self._has_items else []
        for item in [*filter(_is_item, items), *self._unfinished]:
            is_cut = reason is not None and is_call(item)
            yield (
                CutCall(_received(item, self._place), reason or "")
                if is_cut
                else ItemDone(_received(item, self._place))
            )

    def _started(self, item: Any) -> Iterator[ModelEvent]:
        if _is_item(item):
            item_id = _string(item.get("id"))
            self._calls[item_id] = (_string(item.get("call_id")), _string(item.get("name")))
            yield ItemStarted(item["type"], item_id)

    def _delta(self, kind: str, event: JSONObject) -> Iterator[ModelEvent]:
        delta = event.get("delta")
        if not isinstance(delta, str):
            return
        if kind == "response.output_text.delta":
            yield TextDelta(delta)
        elif kind == "response.reasoning_summary_text.delta":
            yield ReasoningDelta(delta)
        elif kind == "response.reasoning_text.delta":
            yield ReasoningDelta(delta, summary=False)
        elif kind in (
            "response.function_call_arguments.delta",
            "response.custom_tool_call_input.delta",
        ):
            known = self._calls.get(_string(event.get("item_id")), ("", ""))
            yield ArgumentsDelta(_string(event.get("call_id")) or known[0], known[1], delta)

    def _complete(self, response: Any, *, strict: bool) -> None:
        if self._failure is not None:
            raise self._failure
        if not isinstance(response, dict) or (strict and not isinstance(response.get("id"), str)):
            if strict:
                raise ModelError("stream", "response.completed came without a response")
            response = {}
        end_turn = response.get("end_turn")
        self.completed = Completed(
            _string(response.get("id")),
            usage_of(response.get("usage")),
            end_turn if isinstance(end_turn, bool) else None,
        )

    def end(self) -> Iterator[ModelEvent]:
        """Raise ModelError: a stream that ends before it is complete has failed."""
        if self._failure is not None:
            raise self._failure
        raise ModelError("stream", "stream closed before response.completed")

    def whole(self, document: JSONObject) -> Iterator[ModelEvent]:
        """The events of a response that was not streamed."""
        status = document.get("status")
        if status == "failed" or (document.get("error") and not document.get("output")):
            raise _failure({"response": document})
        if not isinstance(document.get("output"), list):
            raise error_in_stream(document, "responses")
        yield from self._unseen(document)
        if _is_incomplete(document):
            raise _incomplete(document)
        self._complete(document, strict=False)


def _is_item(value: Any) -> TypeGuard[JSONObject]:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _is_incomplete(response: Any) -> bool:
    return isinstance(response, dict) and response.get("status") == "incomplete"


def _is_cut_call(item: JSONObject) -> bool:
    return item.get("status") == "incomplete" and is_call(item)


def _received(item: JSONObject, place: str | None) -> JSONObject:
    """A server's item; the arguments of a function are text, as the API wants them back."""
    item = _without_ours(item)
    if place is not None and not item.keys() <= _KEYS:
        others = OtherKeys(place)
        others.add(others.message, item, _KEYS)
        known = {key: value for key, value in item.items() if key in _KEYS}
        item = others.on(known, message=others.message)
    if item["type"] == "function_call" and not _string(given := item.get("arguments")).strip():
        return {**item, "arguments": "{}" if given is None or given == "" else dumps(given)}
    return item


def usage_of(value: Any) -> Usage | None:
    """The tokens of one response."""
    if not isinstance(value, dict):
        return None
    read = value.get("input_tokens_details")
    written = value.get("output_tokens_details")
    inputs = count(value, "input_tokens")
    outputs = count(value, "output_tokens")
    return Usage(
        input=inputs,
        cached_input=count(read, "cached_tokens"),
        output=outputs,
        reasoning_output=count(written, "reasoning_tokens"),
        total=count(value, "total_tokens") or inputs + outputs,
        cache_write_input=count(read, "cache_write_tokens"),
    )


def count(value: Any, key: str) -> int:
    """The number of tokens under a key; 0 when there is none, or one that cannot be."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if type(found) is int and 0 < found <= _MOST_TOKENS else 0


def _failure(event: JSONObject) -> ModelError:
    response = event.get("response")
    source = response if isinstance(response, dict) else event
    error = source.get("error") or {key: source.get(key) for key in ("code", "message")}
    return error_in_stream({"error": error}, "responses")


def _reason(response: Any) -> Any:
    """The server's word for why a reply is incomplete."""
    details = response.get("incomplete_details") if isinstance(response, dict) else None
    return details.get("reason") if isinstance(details, dict) else None


def _cut_reason(response: Any) -> str:
    return FILTER_CUT if _reason(response) == "content_filter" else LIMIT_CUT


def _incomplete(response: Any) -> ModelError:
    reason = _reason(response)
    usage = usage_of(response.get("usage")) if isinstance(response, dict) else None
    if reason == "content_filter":
        message = "the server's content filter stopped the answer"
        return ModelError("policy", message, usage=usage)
    message = f"Incomplete response returned, reason: {reason or 'unknown'}"
    return ModelError("incomplete", message, usage=usage)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
