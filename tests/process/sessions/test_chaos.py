"""Many commands at once, ended in every way at random moments: nothing hangs, nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import run
from toolrest.process.sessions.table import Sessions, UnknownSession

LINES = (
    "true",
    "echo hi; exit 3",
    "sleep {0}",
    "setsid sleep {0} & echo hi",
    "(setsid sh -c 'sleep {0} & exec sleep {0}' &); sleep 0.02",
    "trap '' TERM; sleep {0} & sleep {0}",
    "yes | head -c 300000",
    "kill -9 $$",
    "no-such-program",
    "read x; echo got $x",
)


class Chaos:
    """Random calls on one owner, each of which must come to an end."""

    def __init__(self, owner: Owner, sh: Callable[..., Command], mark: Any, seed: int) -> None:
        self.owner, self.sh, self.mark = owner, sh, mark
        self.random = random.Random(seed)
        self.sessions = Sessions(owner)

    def command(self) -> Command:
        line = self.random.choice(LINES).format(self.mark)
        return self.sh(line, tty=self.random.random() < 0.4)

    async def one(self) -> None:
        await asyncio.sleep(self.random.random())
        await self.random.choice((self.limited, self.cancelled, self.interactive, self.failing))()

    async def limited(self) -> None:
        await run(self.owner, self.command(), time_limit=self.random.random() / 3, grace=0.02)

    async def cancelled(self) -> None:
        task = asyncio.create_task(run(self.owner, self.command(), time_limit=60))
        await asyncio.sleep(self.random.random() / 20)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def interactive(self) -> None:
        result = await self.sessions.exec(self.command(), yield_ms=250)
        try:
            while result.session_id is not None:
                await self.step(result.session_id)
        except UnknownSession:
            return

    async def step(self, session: int) -> None:
        choice = self.random.random()
        if choice < 0.3:
            await self.sessions.stop(session)
        elif choice < 0.6:
            self.sessions.signal(session, self.random.choice((2, 9, 15, 1)))
        else:
            await self.sessions.write(session, "\x03", yield_ms=250)

    async def failing(self) -> None:
        result = await run(self.owner, Command(("/no/program",), "/", {}), time_limit=60)
        assert result.state == "failed_to_start"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_chaos(
    owner: Owner, sh: Callable[..., Command], mark: Any, full: bool, seed: int
) -> None:
    chaos = Chaos(owner, sh, mark, seed)
    for _ in range(10 if full else 1):
        async with asyncio.timeout(60):
            await asyncio.gather(*(chaos.one() for _ in range(120)))
    await chaos.sessions.aclose()
    async with asyncio.timeout(20):
        for child in tuple(owner.children):
            await child.kill()
        while owner.children:
            await asyncio.sleep(0.01)
    assert mark.count() == 0
    assert len(os.listdir(f"/proc/{owner.pid}/task")) == 1
