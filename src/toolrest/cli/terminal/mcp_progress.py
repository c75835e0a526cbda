"""Progress lines at a terminal while MCP servers start."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

import click

from toolrest.policy.terminal_safe import display_safe

if TYPE_CHECKING:
    from toolrest.mcp.connection import Connection

_PATIENCE = 1.0
_LOOKS = 0.25
_AGAIN = 10.0
_MOST_NAMES = 5


@asynccontextmanager
async def waiting_shown(
    connections: Mapping[str, Connection], names: Sequence[str], is_busy: Callable[[], bool]
) -> AsyncIterator[None]:
    """At a terminal, print after a second which servers are still starting; again on a change.

    Nothing is printed while the terminal `is_busy` with a question.
    """
    if not sys.stderr.isatty():
        yield
        return
    printing = asyncio.ensure_future(_print_waiting(connections, names, is_busy))
    try:
        yield
    finally:
        printing.cancel()
        with suppress(asyncio.CancelledError):
            await printing


async def _print_waiting(
    connections: Mapping[str, Connection], names: Sequence[str], is_busy: Callable[[], bool]
) -> None:
    start = monotonic()
    printed: list[str] = []
    last = 0.0
    await asyncio.sleep(_PATIENCE)
    while True:
        waiting = [name for name in names if connections[name].state in ("configured", "starting")]
        now = monotonic() - start
        if waiting and not is_busy() and (waiting != printed or now - last >= _AGAIN):
            click.echo(f"toolrest: waiting for {_listed(waiting)} ({now:.0f} s)", err=True)
            printed, last = waiting, now
        await asyncio.sleep(_LOOKS)


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(display_safe(name) for name in names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{listed} and {more} more" if more > 0 else listed
