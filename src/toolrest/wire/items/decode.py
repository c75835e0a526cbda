"""Decode the tool calls in a model's reply.

The shape shows the wire. Each call by type becomes exactly one item; an unusable one becomes a
`MalformedCall` with its problem. Only the model's own items are read: calls inside tool outputs,
user messages or hosted tools' items are text, not calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, get_args

from toolrest.errors import MissingLocalShellCallId
from toolrest.items import (
    CallItem,
    CustomToolCall,
    FunctionCall,
    LocalShellCall,
    MalformedCall,
    ViewImageCall,
    WebSearchCall,
    Wire,
)
from toolrest.wire.items.others import is_empty

_ITEMS: Final = get_args(CallItem)
_MAX_ID: Final = 512
_MAX_NAME: Final = 256
_MAX_NESTING: Final = 4
_RESPONSES: Final = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "view_image_call",
        "web_search_call",
    }
)
_CHAT: Final = frozenset({"function", "custom"})
_MCP_KEYS: Final = frozenset({"name", "arguments", "_meta"})

Object = Mapping[str, Any]


def calls_in(reply: object) -> list[CallItem]:
    """The tool calls of a reply, in order; never raises.

    Takes a Responses item, a list of them or a whole response; a Chat Completions message, choice,
    completion or list of `tool_calls`; an Anthropic message, content list or block; MCP's
    `tools/call` request or its params; SDK objects (anything with `model_dump`) and our own
    items. Of several choices the first with calls counts.
    """
    return list(_calls(reply, chat=False, depth=0))


def finished_searches(reply: object) -> list[Object]:
    """The searches of a Responses reply that the model's server did itself."""
    value = plain(reply)
    if isinstance(value, Mapping) and value.get("type") is None:
        value = plain(value.get("output"))
    parts = value if isinstance(value, list | tuple) else (value,)
    found = (part for part in map(plain, parts) if isinstance(part, Mapping))
    return [part for part in found if is_finished_search(part)]


def is_finished_search(item: Object) -> bool:
    """Whether an item is a search that the model's server has done."""
    done = item.get("status") in ("completed", "failed")
    return done and item.get("type") == "web_search_call"


def _calls(value: object, *, chat: bool, depth: int) -> Iterator[CallItem]:
    value = plain(value)
    if isinstance(value, _ITEMS):
        yield value
    elif isinstance(value, Mapping):
        yield from _calls_in_object(value, chat=chat, depth=depth)
    elif isinstance(value, list | tuple) and depth < _MAX_NESTING:
        parts = [plain(part) for part in value]
        chat = chat or any(map(_is_chat_call, parts))
        for part in parts:
            yield from _calls(part, chat=chat, depth=depth + 1)


def _calls_in_object(value: Object, *, chat: bool, depth: int) -> Iterator[CallItem]:
    kind = value.get("type")
    if kind == "local_shell_call" and chat:
        yield _local_shell(value, "chat")
    elif isinstance(kind, str) and kind in _RESPONSES:
        yield from _responses_item(kind, value)
    elif kind == "tool_use":
        yield _tool_use(value)
    elif _is_chat_call(value):
        yield _chat_call(value)
    elif value.get("method") == "tools/call":
        yield _mcp_call(_object(value.get("params")), value.get("id"))
    elif kind is None and "name" in value and value.keys() <= _MCP_KEYS:
        yield _mcp_call(value, None)
    else:
        yield from _calls_in_message(value, depth)


def _calls_in_message(value: Object, depth: int) -> Iterator[CallItem]:
    if value.get("type") is None and isinstance(plain(value.get("output")), list | tuple):
        yield from _calls(value["output"], chat=False, depth=depth)
        return
    choices = plain(value.get("choices"))
    if isinstance(choices, list | tuple):
        found = (list(_choice(choice)) for choice in choices)
        yield from next(filter(None, found), [])
        return
    if "role" not in value and isinstance(plain(value.get("message")), Mapping):
        yield from _choice(value)
        return
    if value.get("type") not in (None, "message") or value.get("role") not in (None, "assistant"):
        return
    yield from _tool_calls(value)
    content = plain(value.get("content"))
    for block in map(plain, content if isinstance(content, list | tuple) else ()):
        if isinstance(block, Mapping) and block.get("type") == "tool_use":
            yield _tool_use(block)


def _choice(choice: object) -> Iterator[CallItem]:
    message = _object(_object(choice).get("message"))
    if message.get("role") in (None, "assistant"):
        yield from _tool_calls(message)


def _tool_calls(message: Object) -> Iterator[CallItem]:
    listed = plain(message.get("tool_calls"))
    for entry in map(plain, listed if isinstance(listed, list | tuple) else ()):
        if isinstance(entry, Mapping):
            yield _chat_call(entry)
    legacy = plain(message.get("function_call"))
    if isinstance(legacy, Mapping) and not is_empty(legacy):  # some servers write empty fields
        yield _chat_call({"type": "function", "function": legacy})


# Responses


def _responses_item(kind: str, value: Object) -> Iterator[CallItem]:
    if kind == "function_call":
        yield _function_call(_head(kind, "responses", value), value)
    elif kind == "custom_tool_call":
        yield _custom_call(_head(kind, "responses", value, custom=True), value)
    elif kind == "local_shell_call":
        yield _local_shell(value, "responses")
    elif kind == "view_image_call":
        yield _view_image(value)
    else:
        yield from _web_search(value)


def _local_shell(value: Object, wire: Wire) -> CallItem:
    key = "call_id" if value.get("call_id") and isinstance(value["call_id"], str) else "id"
    call_id, bad_id = _string(value, key, _MAX_ID)
    action = plain(value.get("action"))
    if not call_id:
        problem = str(MissingLocalShellCallId())
    elif bad_id:
        problem = f"local_shell_call: {bad_id}"
    elif not isinstance(action, Mapping):
        problem = f"local_shell_call: `action` must be an object, not {_kind(action)}"
    else:
        return LocalShellCall(call_id, action, wire)
    return MalformedCall(call_id, problem, "local_shell", wire)


def _view_image(value: Object) -> CallItem:
    call_id, problem = _string(value, "call_id", _MAX_ID)
    key = "path" if "path" in value and "image_path" not in value else "image_path"
    path, bad_path = _string(value, key, None)
    if problem or bad_path:
        problem = f"view_image_call: {problem or bad_path}"
        return MalformedCall(call_id, problem, "view_image", item="view_image_call")
    return ViewImageCall(call_id, path)


def _web_search(value: Object) -> Iterator[CallItem]:
    """The search to run, if any: one that the server does has no call_id or is finished."""
    if is_finished_search(value):
        return
    if "call_id" not in value and "query" not in value:
        return
    call_id, problem = _string(value, "call_id", _MAX_ID)
    source = value if "query" in value else _object(value.get("action"))
    query, bad_query = _string(source, "query", None)
    if problem or bad_query:
        problem = f"web_search_call: {problem or bad_query}"
        yield MalformedCall(call_id, problem, "web_search", item="web_search_call")
    else:
        yield WebSearchCall(call_id, query)


# Chat Completions, Anthropic Messages, MCP


def _is_chat_call(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    kind = value.get("type")
    if kind is None:
        return isinstance(plain(value.get("function")), Mapping)
    return isinstance(kind, str) and kind in _CHAT


def _chat_call(value: Object) -> CallItem:
    kind = value.get("type", "function")
    if kind == "local_shell_call":
        return _local_shell(value, "chat")
    if kind == "custom":
        body = _object(value.get("custom"))
        return _custom_call(_head("custom", "chat", value, "id", body, custom=True), body)
    # Some servers leave the type out, or write the name and arguments beside the id.
    body = _object(value.get("function", value))
    head = _head("tool call", "chat", value, "id", body)
    if kind not in ("function", None) and "function" not in value:
        problem = "tool call: `type` must be function, custom or local_shell_call"
        return MalformedCall(head.call_id, problem, head.name, "chat")
    return _function_call(head, body)


def _tool_use(value: Object) -> CallItem:
    return _function_call(_head("tool_use", "anthropic", value, "id"), value, "input")


def _mcp_call(params: Object, request_id: object) -> CallItem:
    """A call by MCP, whose connection pairs requests and replies, so it needs no id."""
    call_id = str(request_id) if isinstance(request_id, int | str) else ""
    name, problem = _string(params, "name", _MAX_NAME)
    if len(call_id) > _MAX_ID:
        problem = f"`id` is {len(call_id)} characters long, and {_MAX_ID} is the most"
    problem = problem and f"tools/call: {problem}"
    return _function_call(_Head("tools/call", "mcp", call_id, name, problem), params)


# What all of them share


class _Head(NamedTuple):
    """The id and name of a call, its wire, and what is wrong with them."""

    what: str
    wire: Wire
    call_id: str
    name: str
    problem: str | None
    custom: bool = False

    def malformed(self, problem: str) -> MalformedCall:
        return MalformedCall(self.call_id, problem, self.name, self.wire, self.custom)


def _head(
    what: str,
    wire: Wire,
    value: Object,
    id_key: str = "call_id",
    body: Object | None = None,
    *,
    custom: bool = False,
) -> _Head:
    call_id, bad_id = _string(value, id_key, _MAX_ID)
    name, bad_name = _string(value if body is None else body, "name", _MAX_NAME)
    problem = bad_id or bad_name
    return _Head(what, wire, call_id, name, problem and f"{what}: {problem}", custom)


def _function_call(head: _Head, body: Object, key: str = "arguments") -> CallItem:
    if head.problem:
        return head.malformed(head.problem)
    arguments = plain(body.get(key))
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        arguments = "{}"
    elif not isinstance(arguments, str | Mapping):
        # The tool's own check has the better message for an array or a number.
        try:
            arguments = json.dumps(arguments)
        except (TypeError, ValueError, RecursionError):
            return head.malformed(f"{head.what}: `{key}` cannot be read")
    namespace = body.get("namespace")
    if not _is_id(namespace):
        namespace = None
    notes = body.get("repaired")
    repaired = tuple(map(str, notes)) if isinstance(notes, list | tuple) else ()
    return FunctionCall(head.call_id, head.name, arguments, head.wire, namespace, repaired)


def _custom_call(head: _Head, body: Object) -> CallItem:
    text = body.get("input")
    if head.problem:
        return head.malformed(head.problem)
    if not isinstance(text, str):
        return head.malformed(f"{head.what}: `input` must be a string, not {_kind(text)}")
    if body.get("status") == "incomplete":  # cut JSON shows by itself, cut text does not
        return head.malformed(f"{head.what}: `input` was cut off; call it again, perhaps in parts")
    return CustomToolCall(head.call_id, head.name, text, head.wire)


def is_call_item(value: object) -> bool:
    """Whether a value is a call in our own form."""
    return isinstance(value, _ITEMS)


def plain(value: object) -> Any:
    """SDK objects as the JSON they stand for."""
    dump = getattr(value, "model_dump", None)
    if dump is None or not callable(dump) or isinstance(value, type):
        return value
    try:
        try:
            return dump(
                warnings=False
            )  # pydantic's, of events whose types its SDK declares loosely
        except TypeError:
            return dump()
    except Exception:
        return None


def _object(value: object) -> Object:
    value = plain(value)
    return value if isinstance(value, Mapping) else {}


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_ID


def _string(value: Object, key: str, limit: int | None) -> tuple[str, str | None]:
    """The string under a key and what is wrong with it; "" when there is none to use."""
    text = value.get(key)
    if text is None or text == "":
        return "", f"`{key}` is missing"
    if not isinstance(text, str):
        return "", f"`{key}` must be a string, not {_kind(text)}"
    if limit is not None and len(text) > limit:
        problem = f"`{key}` is {len(text)} characters long, and {limit} is the most"
        # An id goes back as it came: an output without its call would fail the whole request.
        return text if limit == _MAX_ID else "", problem
    return text, None


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    for types, name in (
        (str, "a string"),
        (int | float, "a number"),
        (list | tuple, "an array"),
        (Mapping, "an object"),
    ):
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"
