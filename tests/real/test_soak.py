"""One long session against llama.cpp: servers restart, answers are cut, the session is resumed."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.real.conftest import WIRES, Llama, Serve, assert_valid, note
from tests.real.door import Door

from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.conversation.usage import Budget

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
]
Talk = Callable[..., Conversation]
GOOD = ("completed", "budget")
DISTURBED = ("model_stream", "model_unreachable", "model_server", "interrupted")
TURNS = (12, 300)
MOST_GROWTH = 6_000_000
"""Bytes that the process may grow by after its first turns, whatever their number."""


class Soak:
    """The session, its server, and what happens to both."""

    def __init__(self, seed: int, serve: Serve, talk: Talk, door: Door, folder: Path) -> None:
        self.random = random.Random(seed)
        self.happened: Counter[str] = Counter()
        self._serve, self._talk, self._door, self._folder = serve, talk, door, folder
        self._server = AsyncExitStack()
        self._session: Conversation | None = None
        self.turns = 0

    @property
    def session(self) -> Conversation:
        """The session as it is open now."""
        assert self._session is not None
        return self._session

    async def restart_server(self) -> None:
        """Kill the model's server, and start another at the same address."""
        await self._server.aclose()
        llama: Llama = await self._server.enter_async_context(
            self._serve(calls=0.5, seed=self.random.randrange(1 << 30))
        )
        self._door.target = llama.address

    def open(self, path: str | None = None) -> None:
        """Open the session, or resume it, on one of the three APIs."""
        # Answers in one piece take less of the time that a busy machine has.
        request = {"stream": self.random.random() < 0.4}
        wire = self.random.choice(WIRES)
        settings = Llama(None, self._door.address).settings(wire, request=request)
        settings["model_auto_compact_token_limit"] = 12_000
        settings["tools.enabled"] = ["list_dir", "user"]
        self._session = self._talk(settings, note, resume=path)
        assert_valid(self._session)

    async def resume(self) -> None:
        """Close the session and resume it: its history is the same."""
        path, items = self.session.journal.path, list(self.session.history)
        await self.session.aclose()
        self.open(path)
        assert self.session.history == items

    async def crash(self, turn: asyncio.Task[Any]) -> None:
        """Resume from what is on disk in the middle of a turn, as after kill -9."""
        await self._moment()
        assert self.session.journal.path is not None
        copy = self._folder / str(self.turns) / Path(self.session.journal.path).name
        copy.parent.mkdir()
        shutil.copy(self.session.journal.path, copy)
        await self.session.interrupt()
        await turn
        await self.session.aclose()
        self.open(str(copy))

    async def turn(self, what: str) -> None:
        """One turn, with this happening in it."""
        self.turns += 1
        self.happened[what] += 1
        if what == "cut":
            self._door.cut_after = self.random.randrange(3_000)
        prompt = f"turn {self.turns}: " + "word " * self.random.randrange(4)
        turn = asyncio.ensure_future(self.session.run(prompt, budget=Budget(max_turns=2)))
        if what == "interrupt":
            await self._moment()
            await self.session.interrupt()
        elif what == "server":
            await self._moment()
            await self.restart_server()
        elif what == "crash":
            await self.crash(turn)
        result = await turn
        self._door.cut_after = None
        assert_valid(self.session)
        if what == "calm":
            assert result.status in GOOD, result
        else:
            assert result.status in GOOD or result.reason in DISTURBED, result

    async def _moment(self) -> None:
        """A moment within a turn, any of them."""
        await asyncio.sleep(self.random.random() * 0.6)

    async def aclose(self) -> None:
        """Close the session, which nothing else holds, and end the server."""
        if self._session is not None:
            await self._session.aclose()
        await self._server.aclose()


@pytest.mark.parametrize("turns", TURNS)
async def test_a_long_session(
    turns: int,
    serve: Serve,
    talk: Talk,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """The history is valid after each turn and each resume, and memory stays flat."""
    warm = 0
    async with Door() as door:
        soak = Soak(turns, serve, talk, door, tmp_path)
        try:
            await soak.restart_server()
            soak.open()
            while soak.turns < turns:
                happens = ("calm", "cut", "interrupt", "server", "crash")
                await soak.turn(soak.random.choices(happens, (12, 3, 3, 1, 1))[0])
                if soak.random.random() < 0.1:
                    soak.happened["resume"] += 1
                    await soak.resume()
                if soak.turns == min(turns // 2, 60):
                    warm = resident()
        finally:
            await soak.aclose()
    grown = resident() - warm
    found = ", ".join(f"{count} {what}" for what, count in soak.happened.most_common())
    summary = f"{turns} turns ({found}; {door.cuts} answers cut), grown by {grown // 1000:,} kB"
    record_property("soak", summary)
    assert grown < MOST_GROWTH, summary


def resident() -> int:
    """Bytes of memory that this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
