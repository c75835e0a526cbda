"""What the first call will need is loaded while the model still thinks about it.

A session starts with what its first request takes and nothing more. The first command would then
wait for a hundred modules to be imported, while most of the time before it nobody did anything.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module

from toolrest.gate.tool.tool import Tool

DELAY = 0.03
"""By then the request is on its way."""

_FOR_ALL = ("toolrest.gate.tool.validate", "toolrest.agent.undo.checkpoints")
_FOR_COMMANDS = (
    "toolrest.policy.verdict.command",
    "toolrest.policy.commands.purpose",
    "toolrest.tools.shell.decision",
    "toolrest.tools.shell.decision",
    "toolrest.policy.rules.files",
    "toolrest.running.runner",
    "toolrest.sandbox.backends.probe",
    "toolrest.sandbox.confine",
)


class WarmUp:
    """Loads in a thread, piece by piece, from a little later on and until it is stopped."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin when the request is out."""
        self._timer = asyncio.get_running_loop().call_later(DELAY, self._begin)

    def stop(self) -> None:
        """Leave out what was not begun; nobody has to wait for more than one module."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        threading.Thread(target=self.load, name="toolrest-warm-up", daemon=True).start()

    def load(self) -> None:
        """Load everything now. A module that cannot be loaded is the first call's to report."""
        shells = any(tool.group == "shell" for tool in self._tools)
        names = (*_FOR_ALL, *(_FOR_COMMANDS if shells else ()))
        steps: list[Callable[[], object]] = [partial(import_module, name) for name in names]
        steps += [tool.warm for tool in self._tools]
        for step in steps:
            if self._stopped:
                return
            with suppress(Exception):
                step()
