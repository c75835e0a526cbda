"""Attempts to start a command while the machine changes: one that could not begin is repeated.

A sandbox is made of what the machine has. When a folder goes, or a file system is mounted, between
our look and bubblewrap's, it gives up before it starts the command, and says so in the command's
own output.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from toolrest.running.results import ExecOutcome, RunOutcome
from toolrest.sandbox.backends.launcher import ATTEMPTS
from toolrest.sandbox.errors import SandboxChanged

P = ParamSpec("P")
T = TypeVar("T", RunOutcome, ExecOutcome)

_LAUNCHER = "bwrap: "
_LONGEST = 16_384
"""More than one line of bubblewrap's, with two paths in it, as text and as bytes."""


class HeldReports:
    """Reports of one attempt, held back while its output can be bubblewrap's own message.

    That is one line. Reports go through at once if the output begins otherwise, or goes on.
    """

    def __init__(self) -> None:
        self.has_begun = False
        """Whether something was started, whose end is going to be reported."""
        self._room: int | None = None
        self._held: list[Callable[[], object]] = []

    def hold(self, report: Callable[P, object] | None) -> Callable[P, None] | None:
        """A report that passes through here on its way; all of an attempt's keep their order."""
        if report is None:
            return None
        passed = report

        def through(*values: P.args, **named: P.kwargs) -> None:
            if self._holds(values[-1]):
                self._held.append(lambda: passed(*values, **named))
            else:
                self.let_through()
                passed(*values, **named)

        return through

    def let_through(self) -> None:
        """Pass on what was held, and later ones at once."""
        self._room = 0
        held, self._held = self._held, []
        for report in held:
            report()

    def _holds(self, value: object) -> bool:
        if self._room is None:
            self._room = _LONGEST if _begins_as_launcher(value) else 0
        if isinstance(value, str | bytes):
            self._room = max(0, self._room - len(value))
        return self._room > 0


async def repeated(attempt: Callable[[HeldReports], Awaitable[T]]) -> T:
    """The outcome of the first attempt in which a sandbox could be made, or else of the last.

    The reports of attempts before that are dropped, but for the end of the last that had begun,
    when none began after it.
    """
    begun: HeldReports | None = None
    for left in reversed(range(ATTEMPTS)):
        reports = HeldReports()
        try:
            done = await attempt(reports)
        except BaseException as error:
            reports.let_through()
            if left and isinstance(error, SandboxChanged):
                continue
            if begun is not None and not reports.has_begun:
                begun.let_through()
            raise
        if left and done.disturbed:
            begun = reports
            continue
        if begun is not None and not reports.has_begun:
            begun.let_through()
        reports.let_through()
        return done
    raise AssertionError("the last attempt returns or raises")


def _begins_as_launcher(value: object) -> bool:
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    return isinstance(text, str) and text.startswith(_LAUNCHER)
