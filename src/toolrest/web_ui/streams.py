"""Streams of sessions' events: a file is watched, read and parsed once for all its viewers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator

from toolrest.agent.history.rollout import lines_of
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.web_ui.feed import read_events
from toolrest.web_ui.listing import Prices, is_open, text_of
from toolrest.web_ui.watch import FileWatch
from toolrest.wire.prices import Price, Rates

_PAUSE = 0.1
"""Seconds after a change in which more of them are gathered."""
_KEPT = 64 * 1024
"""A piece of at most this many bytes is kept for other viewers until the next change."""


class SessionStreams:
    """The sessions that are viewed now, by the paths of their files."""

    def __init__(self, prices: Prices | None = None) -> None:
        self._prices = prices
        self._viewed: dict[str, _Viewed] = {}

    async def stream(self, path: str, start: int) -> AsyncGenerator[bytes, None]:
        """A journal as server-sent events; a comment now and then finds closed connections."""
        viewed = self._viewed.setdefault(path, _Viewed(path, self._prices))
        viewed.viewers += 1
        try:
            async for data in viewed.follow(start):
                yield data
        except OSError:
            yield b'event: state\ndata: {"open": false, "gone": true}\n\n'
        finally:
            viewed.viewers -= 1
            if not viewed.viewers:
                self._viewed.pop(path, None)
                viewed.stop()


class _Viewed:
    """One file, and what was read of it since its last change."""

    def __init__(self, path: str, prices: Prices | None) -> None:
        self.viewers = 0
        self._path = path
        self._prices = prices
        self._changed = asyncio.Event()
        self._pieces: dict[int, asyncio.Task[tuple[bytes, int]]] = {}
        self._state: asyncio.Task[bool] | None = None
        self._watching: asyncio.Task[None] | None = None

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def follow(self, offset: int) -> AsyncGenerator[bytes, None]:
        """The events behind an offset, then those to come, and whether the session is open.

        `rest` says that all is there so far: a page draws then.
        """
        if self._watching is None:
            ready = asyncio.Event()
            self._watching = asyncio.create_task(self._watch(ready))
            await ready.wait()
        known: bool | None = None
        came = False
        while True:
            changed = self._changed
            data, end = await self._piece(offset)
            if end > offset:
                offset = end
                if data:
                    came = True
                    yield data
                continue
            now = await self._open()
            if now != known:
                known = now
                yield f"event: state\ndata: {json.dumps({'open': now})}\n\n".encode()
            else:
                yield b"event: rest\ndata: {}\n\n" if came else b": alive\n\n"
            came = False
            await changed.wait()

    async def _watch(self, ready: asyncio.Event) -> None:
        async with FileWatch([self._path]) as watch:
            ready.set()
            while True:
                if await watch.wait():
                    await asyncio.sleep(_PAUSE)
                self._pieces.clear()
                self._state = None
                waiting, self._changed = self._changed, asyncio.Event()
                waiting.set()

    async def _piece(self, offset: int) -> tuple[bytes, int]:
        task = self._pieces.get(offset)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(self._read, offset))
            self._pieces[offset] = task
        data, end = await asyncio.shield(task)
        if len(data) > _KEPT:
            self._pieces.pop(offset, None)
        return data, end

    async def _open(self) -> bool:
        if self._state is None:
            self._state = asyncio.create_task(asyncio.to_thread(is_open, self._path))
        return await asyncio.shield(self._state)

    def _read(self, offset: int) -> tuple[bytes, int]:
        events, end = read_events(self._path, offset)
        return b"".join(map(_message, priced(self._path, events, self._prices))), end


def priced(path: str, events: list[JSONObject], prices: Prices | None) -> list[JSONObject]:
    """The events; those that name a model with its price, where that is known."""
    if prices is None or all("model" not in event for event in events):
        return events
    provider = None
    with contextlib.suppress(ConfigError):
        kind, meta = next(lines_of(path), None) or ("", {})
        provider = text_of(meta, "model_provider") if kind == "session_meta" else None
    found = []
    for event in events:
        price = prices(event["model"], provider) if "model" in event else None
        found.append({**event, "price": _price_json(price)} if price else event)
    return found


def _price_json(price: Price) -> JSONObject:
    long = {} if price.long is None else {"above": price.long_above, "long": _rates(price.long)}
    return {**_rates(price), **long}


def _rates(rates: Rates) -> JSONObject:
    cached = rates.input if rates.cached_input is None else rates.cached_input
    written = rates.input if rates.cache_write is None else rates.cache_write
    return {"input": rates.input, "cached": cached, "written": written, "output": rates.output}


def _message(event: JSONObject) -> bytes:
    return f"id: {event['at']}\ndata: {json.dumps(event)}\n\n".encode()
