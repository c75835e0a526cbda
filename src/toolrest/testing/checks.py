"""Checks of requests that the real APIs make: calls without outputs, outputs without calls, ids."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolrest.items import JSONObject
from toolrest.wire.items.pairing import call_id_of, is_call, is_models, is_output

_WORD: Final = re.compile(r"[A-Za-z0-9_-]+")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAMED: Final = frozenset({"function_call", "custom_tool_call"})


def problems(wire: str, body: Mapping[str, Any]) -> Iterator[str]:
    """All problems of the body of a request on this wire."""
    if not isinstance(body.get("model"), str):
        yield "model: a string is required"
    if wire == "responses":
        yield from _responses(_objects(body.get("input")))
    elif wire == "chat":
        yield from _chat(_objects(body.get("messages")))
    else:
        yield from _anthropic(body, _objects(body.get("messages")))


def _objects(value: Any) -> list[JSONObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _responses(items: list[JSONObject]) -> Iterator[str]:
    waiting: list[str] = []
    seen: set[str] = set()
    for number, item in enumerate(items):
        if is_call(item):
            call_id, name = call_id_of(item), item.get("name", "")
            if item["type"] in _NAMED and not _NAME.fullmatch(str(name)):
                yield f"Invalid 'input[{number}].name': {name!r} does not match {_NAME.pattern}"
            if not call_id or len(call_id) > 64 or call_id in seen:
                yield f"input: call_id {call_id!r} is empty, too long or used twice"
            seen.add(call_id)
            waiting.append(call_id)
        elif is_output(item):
            if call_id_of(item) not in waiting:
                yield f"No tool call found for function call output with id {call_id_of(item)}."
            else:
                waiting.remove(call_id_of(item))
        elif waiting and not is_models(item):
            break
    yield from (f"No tool output found for function call {call_id}." for call_id in waiting)


def _chat(messages: list[JSONObject]) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
    waiting: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(messages):
        role, where = message.get("role"), f"messages[{number}]"
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield f"{where}: role 'tool' must answer a preceding message with 'tool_calls'"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"{where}: 'tool_calls' without tool messages for {', '.join(waiting)}"
            waiting = []
        if role not in ("system", "developer", "user", "assistant"):
            yield f"{where}: no such role: {role!r}"
        for call in _objects(message.get("tool_calls")):
            waiting.append(str(call.get("id")))
            yield from _chat_call(call, f"{where}.tool_calls", seen)
        if role == "assistant" and not message.get("content") and not message.get("tool_calls"):
            yield f"{where}: an assistant message needs content or tool_calls"
    if waiting:
        yield f"'tool_calls' without tool messages for {', '.join(waiting)}"


def _chat_call(call: JSONObject, where: str, seen: set[str]) -> Iterator[str]:
    call_id = call.get("id")
    if not isinstance(call_id, str) or not call_id or call_id in seen:
        yield f"{where}: id {call_id!r} is empty or used twice"
    seen.add(str(call_id))
    if call.get("type") != "function":
        yield f"{where}: type must be 'function'"
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not _WORD.fullmatch(name):
        yield f"{where}: function.name {name!r} does not match [A-Za-z0-9_-]+"
    # Templates of local models read the arguments back, and fail when they cannot.
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if not _is_object_text(arguments):
        yield f"{where}: function.arguments must be a JSON object in a string"


def _is_object_text(text: Any) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _anthropic(body: Mapping[str, Any], messages: list[JSONObject]) -> Iterator[str]:
    if not isinstance(body.get("max_tokens"), int):
        yield "max_tokens: Field required"
    if not messages or messages[0].get("role") != "user":
        yield "messages: the first message must have the role user"
    marks = json.dumps(body).count('"cache_control"')
    if marks > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
    waiting: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(messages):
        where = f"messages.{number}"
        yield from _results(message, waiting, where)
        waiting = []
        blocks = _blocks(message)
        if blocks and blocks[-1].get("type") in ("thinking", "redacted_thinking"):
            yield f"{where}: The final block in an assistant message cannot be `thinking`."
        for block in blocks:
            yield from _block(block, where, str(message.get("role")), seen, waiting)
    if waiting:
        yield f"tool_use ids without tool_result: {', '.join(waiting)}"


def _results(message: JSONObject, waiting: list[str], where: str) -> Iterator[str]:
    if message.get("role") not in ("user", "assistant"):
        yield f"{where}: role must be user or assistant"
    blocks = _blocks(message)
    if not blocks:
        yield f"{where}: content must not be empty"
    results = _leading_results(blocks)
    missing = [call_id for call_id in waiting if call_id not in results]
    if missing:
        yield f"{where}: tool_use ids without tool_result right after: {', '.join(missing)}"
    given = sum(block.get("type") == "tool_result" for block in blocks)
    if given != len(waiting) or set(results) - set(waiting):
        yield f"{where}: tool_result blocks must answer the previous message, first and once"


def _blocks(message: JSONObject) -> list[JSONObject]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return _objects(content)


def _leading_results(blocks: list[JSONObject]) -> list[str]:
    ids = []
    for block in blocks:
        if block.get("type") != "tool_result":
            break
        ids.append(str(block.get("tool_use_id")))
    return ids


def _block(
    block: JSONObject, where: str, role: str, seen: set[str], waiting: list[str]
) -> Iterator[str]:
    kind = block.get("type")
    if kind == "text" and not str(block.get("text", "")).strip():
        yield f"{where}: text content blocks must contain non-whitespace text"
    if kind in ("tool_use", "thinking", "redacted_thinking") and role != "assistant":
        yield f"{where}: {kind} blocks are the assistant's"
    if kind != "tool_use":
        return
    call_id = str(block.get("id"))
    if not _WORD.fullmatch(call_id) or call_id in seen:
        yield f"{where}: tool_use id {call_id!r} does not match [A-Za-z0-9_-]+ or is not unique"
    if not _WORD.fullmatch(str(block.get("name"))):
        yield f"{where}: tool_use name {block.get('name')!r} does not match [A-Za-z0-9_-]+"
    if not isinstance(block.get("input"), dict):
        yield f"{where}: tool_use input must be an object"
    seen.add(call_id)
    waiting.append(call_id)
