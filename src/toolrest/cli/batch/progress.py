"""Progress of a batch on stderr: a bar at a terminal, a line a minute in a log."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Self

import click

from toolrest.batch.engine import BatchCounts
from toolrest.batch.reports.status import duration, eta
from toolrest.batch.stores.addresses import without_users
from toolrest.batch.stores.totals import Totals
from toolrest.errors import ConfigError
from toolrest.policy.terminal_safe import display_safe

_WIDTH = 24
_LOG_SECONDS = 60.0
_BAR_SECONDS = 0.5


@contextmanager
def plain_addresses() -> Iterator[None]:
    """Leave names and passwords out of the addresses in an error's message."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(without_users(str(error))) from None


class Progress:
    """Prints how far a run has come, and lines above that."""

    def __init__(self, totals: Totals) -> None:
        self.counts = BatchCounts()
        self._totals = totals
        self._start = time.monotonic()
        self._bar = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._clear()
        click.echo(self.line(), err=True)

    async def beside(self, run: Coroutine[Any, Any, None]) -> None:
        """Run something, with the progress shown beside it."""
        showing = asyncio.create_task(self._show())
        try:
            await run
        finally:
            showing.cancel()

    async def _show(self) -> None:
        delay = _BAR_SECONDS  # a log has its first line at once, too
        while True:
            await asyncio.sleep(delay)
            delay = _BAR_SECONDS if self._bar else _LOG_SECONDS
            if self._bar:
                self._clear()
                click.echo(self.line(), err=True, nl=False)
            else:
                click.echo(self.line(), err=True)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._clear()
        click.echo(display_safe(without_users(line)), err=True)

    def _clear(self) -> None:
        if self._bar:
            click.echo("\r\x1b[K", err=True, nl=False)

    def line(self) -> str:
        """The line: tasks, rate, time left, what was used."""
        counts, spent = self.counts, time.monotonic() - self._start
        ended = counts.had_result + counts.done
        bar = ""
        if self._bar and counts.total:
            full = _WIDTH * ended // counts.total
            bar = "█" * full + "░" * (_WIDTH - full) + " "
        parts = [f"{bar}{ended}/{counts.total} tasks"]
        if counts.failed:
            parts.append(f"{counts.failed} failed")
        if counts.running:
            parts.append(f"{counts.running} running")
        if counts.done and spent > 1:
            parts.append(f"{counts.done / spent * 60:.0f} a minute")
        left = eta(counts.done, counts.open, spent)
        if left is not None:
            parts.append(f"{duration(left)} left")
        if self._totals.own.tokens:
            parts.append(f"{self._totals.own.tokens:,} tokens")
        if self._totals.own.cost:
            parts.append(f"${self._totals.own.cost:.2f}")
        return ", ".join(parts)
