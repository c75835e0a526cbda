"""Progress of what takes longer than a second: a line on stderr, at a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Thread
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


@contextmanager
def progress(words: str | Callable[[], str]) -> Iterator[None]:
    """Print at a terminal, after a second, what is being done; again on a change, or after 10 s.

    Nothing is printed while there are no words, as when a question is on the terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    ended = Event()
    printing = Thread(target=_print, args=(words, ended), name="toolrest-progress", daemon=True)
    printing.start()
    try:
        yield
    finally:
        ended.set()
        printing.join()


def _print(words: str | Callable[[], str], ended: Event) -> None:
    start = monotonic()
    printed, last = "", 0.0
    wait = _PATIENCE
    while not ended.wait(wait):
        wait = _LOOKS
        text = words if isinstance(words, str) else words()
        now = monotonic() - start
        if text and (text != printed or now - last >= _AGAIN):
            click.echo(f"toolrest: {display_safe(text)} ({now:.0f} s)", err=True)
            printed, last = text, now


def waiting_for_servers(
    connections: Mapping[str, Connection], names: Sequence[str], is_busy: Callable[[], bool]
) -> Callable[[], str]:
    """The line of `progress` that names the servers still starting; empty while `is_busy`."""

    def words() -> str:
        waiting = [name for name in names if connections[name].state in ("configured", "starting")]
        return f"waiting for {_listed(waiting)}" if waiting and not is_busy() else ""

    return words


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    listed = ", ".join(names[:_MOST_NAMES])
    return f"{listed} and {more} more" if more > 0 else listed
