"""The forms in which a program may hold a model's reply: awaitables, raw responses, text, streams.

Whatever cannot be a reply is a TypeError: an empty list would say that the model made no calls.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from toolrest.items import Answered, CallItem, JSONObject
from toolrest.wire.apis.sdk_stream import StreamedReply, streamed_reply, wire_of
from toolrest.wire.http.error_bodies import error_in_stream
from toolrest.wire.http.sse import Events
from toolrest.wire.items.decode import calls_in, finished_searches, is_call_item, plain
from toolrest.wire.items.encode import encode

_WANTED: Final = (
    "pass the model's reply: its JSON, an object of the openai or anthropic package, a stream or "
    "the list of all its events"
)
_MOST_WRAPPINGS: Final = 4  # a coroutine of a raw response of text


async def read_calls(
    reply: Any,
) -> tuple[list[CallItem], Callable[[Sequence[Answered]], list[Any]], Sequence[Mapping[str, Any]]]:
    """The calls of a reply, what writes their outputs in the same wire, and finished searches."""
    items, streamed = await read_reply(reply)
    calls = calls_in(items)

    def written(answered: Sequence[Answered]) -> list[Any]:
        if streamed is None or not calls:
            # On Chat Completions only users may show images: OpenAI's own server refuses others.
            return encode(answered, images="user_message")
        outputs = [encode([each])[0] | _failed(each) for each in answered]
        return streamed.messages(outputs)

    return calls, written, finished_searches(items)


def _failed(answered: Answered) -> JSONObject:
    return {"failed": True} if answered.output.failed else {}


async def read_reply(reply: Any) -> tuple[Any, StreamedReply | None]:
    """A reply as JSON, an SDK's object or a list, and what it is if it was streamed.

    Awaitables are awaited, streams read to their end. TypeError for what is no reply, ModelError
    for an error instead of one and for a stream that broke off.
    """
    reply = await _unwrapped(reply)
    _check(reply)
    streamed = streamed_reply(reply)
    return (reply if streamed is None else streamed.items), streamed


async def _unwrapped(reply: Any) -> Any:
    for _ in range(_MOST_WRAPPINGS):
        if isinstance(reply, Mapping) or hasattr(reply, "model_dump"):
            break
        if inspect.isawaitable(reply):
            reply = await reply
        elif isinstance(reply, str | bytes | bytearray):
            reply = _of_text(reply)
        elif hasattr(reply, "http_response") and callable(getattr(reply, "parse", None)):
            reply = reply.parse()  # `with_raw_response` of both packages
        elif hasattr(reply, "headers") and callable(getattr(reply, "json", None)):
            reply = _of_http(reply)
        elif hasattr(reply, "__aiter__") or hasattr(reply, "__next__"):
            reply = await _read(reply)
        else:
            break
    return reply


async def _read(stream: Any) -> list[Any]:
    if hasattr(stream, "__aiter__"):
        found = [event async for event in stream]
    else:
        found = await asyncio.to_thread(list, stream)
    if not found:
        raise TypeError(f"the stream is empty; if it was read already, {_WANTED}")
    return found


def _of_text(reply: str | bytes | bytearray) -> Any:
    try:
        text = reply if isinstance(reply, str) else reply.decode()
        if text.lstrip().startswith(("data:", "event:")):
            events = Events()
            data = [*events.feed(text.encode()), *events.flush()]
            return [json.loads(each) for each in data if each.strip() != b"[DONE]"]
        return json.loads(text)
    except (ValueError, RecursionError):
        raise TypeError(f"the text is not JSON; {_WANTED}") from None


def _of_http(response: Any) -> Any:
    """The document of a response of httpx, requests or aiohttp; the latter's is awaited."""
    try:
        return response.json()
    except Exception as error:
        raise TypeError(
            f"the HTTP response has no JSON ({type(error).__name__}); {_WANTED}"
        ) from None


def _check(reply: Any) -> None:
    value = plain(reply)
    parts = value if isinstance(value, list | tuple) and value else [value]
    if not any(map(_is_part, parts)):
        raise TypeError(f"this is no model's reply ({type(reply).__name__}); {_WANTED}")
    if not isinstance(value, Mapping):
        return
    if wire_of(value) is not None:
        raise TypeError(f"this is one event of a stream; {_WANTED}")
    said = (value.get(key) for key in ("output", "choices", "content"))
    if value.get("error") and not any(said):
        raise error_in_stream(value, "responses")


def _is_part(value: Any) -> bool:
    value = plain(value)
    return is_call_item(value) or isinstance(value, Mapping | list | tuple)
