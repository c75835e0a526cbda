"""Preload the modules of the first call while the model works on its first reply.

A session starts with what its first request takes and nothing more. Otherwise the first command
would wait for a hundred modules, although the time before it was mostly idle.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from toolrest.errors import ToolrestError
from toolrest.gate.tool.tool import Tool

if TYPE_CHECKING:
    from toolrest.gate.session import Session

DELAY = 0.03
"""By then the request is on its way."""

_FOR_ALL = ("toolrest.gate.tool.validate", "toolrest.agent.undo.checkpoints")
_RUNNER = "toolrest.agent.setup.runner"
"""All that finding the kind of sandbox takes."""
_FOR_COMMANDS = (
    _RUNNER,
    "toolrest.policy.verdict.command",
    "toolrest.policy.commands.purpose",
    "toolrest.tools.shell.command_call",
    "toolrest.policy.rules.files",
    "toolrest.running.runner",
    "toolrest.sandbox.backends.probe",
    "toolrest.sandbox.confine",
)


class WarmUp:
    """A thread that loads the modules one by one, after a delay and until it is stopped.

    Beside it the machine is booted, where commands run in one; behind it the kind of sandbox is
    found, so that a person reads early of a weak one.
    """

    def __init__(self, tools: Iterable[Tool], session: Session | None = None) -> None:
        self._tools = tuple(tools)
        self._session = session if self._has_shells() else None
        self._loaded = asyncio.Event()
        self._looking: asyncio.Task[bool] | None = None
        self._booting: asyncio.Task[None] | None = None
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin after the delay, when the request is sent."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(DELAY, self._begin)
        if self._session is not None and self._session.files.mode != "danger-full-access":
            self._looking = loop.create_task(self._look(self._session))

    async def found_weak_sandbox(self) -> bool:
        """Wait until the kind of sandbox is found; True for a weak one."""
        return self._looking is not None and await asyncio.shield(self._looking)

    def stop(self) -> None:
        """Stop after the module that is being loaded."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._looking, self._booting):
            if task is not None:
                task.cancel()

    def _begin(self) -> None:
        loop, session = asyncio.get_running_loop(), self._session
        if session is not None and session.settings.sandbox_policy == "vm":
            self._booting = loop.create_task(_boot(session))
        work = partial(self._work, loop)
        threading.Thread(target=work, name="toolrest-warm-up", daemon=True).start()

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._looking is not None:
            with suppress(Exception):  # the first call reports it
                import_module(_RUNNER)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._loaded.set)
        self.load()

    async def _look(self, session: Session) -> bool:
        await self._loaded.wait()
        with suppress(ToolrestError, OSError):  # the first call reports it
            return await session.runner().enclosure.is_weak()
        return False

    def load(self) -> None:
        """Load everything now. A module that cannot be loaded is the first call's to report."""
        names = (*_FOR_ALL, *(_FOR_COMMANDS if self._has_shells() else ()))
        steps: list[Callable[[], object]] = [partial(import_module, name) for name in names]
        steps += [tool.warm for tool in self._tools]
        for step in steps:
            if self._stopped:
                return
            with suppress(Exception):
                step()

    def _has_shells(self) -> bool:
        return any(tool.group == "shell" for tool in self._tools)


async def _boot(session: Session) -> None:
    """Boot the machine that commands will run in; what goes wrong is the first call's to report."""
    with suppress(ToolrestError, OSError):
        await session.runner().enclosure.boot()
