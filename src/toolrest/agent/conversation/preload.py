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
    from toolrest.agent.rest import Toolrest
    from toolrest.gate.session import Session

DELAY = 0.03
"""By then the request is on its way."""

_FOR_ALL = ("toolrest.gate.tool.validate", "toolrest.agent.undo.checkpoints")
_FOR_COMMANDS = (
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

    Beside it the machine is booted, where commands run in one.
    """

    def __init__(self, tools: Iterable[Tool], machine: Session | None = None) -> None:
        self._tools = tuple(tools)
        self._machine = machine
        self._booting: asyncio.Task[None] | None = None
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin after the delay, when the request is sent."""
        self._timer = asyncio.get_running_loop().call_later(DELAY, self._begin)

    def stop(self) -> None:
        """Stop after the module that is being loaded."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._booting is not None:
            self._booting.cancel()

    def _begin(self) -> None:
        if self._machine is not None and self._has_shells():
            self._booting = asyncio.get_running_loop().create_task(_boot(self._machine))
        threading.Thread(target=self.load, name="toolrest-warm-up", daemon=True).start()

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


def machine_of(rest: Toolrest) -> Session | None:
    """The session, where its commands run in a virtual machine, for a `WarmUp`."""
    return rest.session if rest.config.value.sandbox_policy == "vm" else None


async def _boot(session: Session) -> None:
    """Boot the machine that commands will run in; what goes wrong is the first call's to report."""
    runner = session.runner()
    with suppress(ToolrestError, OSError):
        await runner.enclosure.boot()
