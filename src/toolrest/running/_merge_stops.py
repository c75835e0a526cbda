"""How does something end whose client can be killed without ending it? A container, that is."""

from __future__ import annotations

import asyncio

from toolrest.process.command import Command
from toolrest.process.wakeup import uncancelled
from toolrest.process.owner import Owner
from toolrest.process.run import run

_PATIENCE = 20.0


class Stops:
    """Runs the commands that end containers, and waits for them at the session's end."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()

    async def now(self, argv: tuple[str, ...]) -> None:
        """End it and wait for that, whoever is cancelled meanwhile; nothing for no command."""
        if argv:
            await uncancelled(asyncio.ensure_future(self._stop(argv)))

    def soon(self, argv: tuple[str, ...]) -> None:
        """End it without waiting."""
        if argv:
            task = asyncio.get_running_loop().create_task(self._stop(argv))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for all of them."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _stop(self, argv: tuple[str, ...]) -> None:
        from toolrest.sandbox.backends.container import client_env

        await run(self._owner, Command(argv, "/", client_env()), time_limit=_PATIENCE)
