"""A chat or an `exec` that waits for as long as a test wants, not for as long as a machine takes.

An approval is inert until the keyboard was quiet for half a second, and a key answers when no other
follows it for a quarter. A test that types into that time would depend on being fast: it starts the
program with longer times, and ends them with `hurry`.
"""

from __future__ import annotations

import signal
import sys

from tests.screen import Screen

_LONG = """
import signal, sys
from toolrest.chat import questions
from toolrest.cli.terminal import terminal

names, usual, terminals = sys.argv[1].split(","), {}, []
for name in names:
    usual[name] = getattr(questions, name)
    setattr(questions, name, 1000.0)

def begun(self, *more, begin=terminal.Terminal.__init__, **named):
    begin(self, *more, **named)
    terminals.append((self, self._quiet))
    self._quiet = 1000.0

def hurry(*_):
    for name, value in usual.items():
        setattr(questions, name, value)
    for one, quiet in terminals:
        one._quiet = quiet

if "QUIET" in names:
    terminal.Terminal.__init__ = begun
signal.signal(signal.SIGUSR1, hurry)
sys.argv = ["toolrest", *sys.argv[2:]]
from toolrest.cli.entry import main
main()
"""


def patient(*times: str) -> list[str]:
    """The words that begin a command line whose `times` (QUIET, ALONE) are long."""
    return [sys.executable, "-c", _LONG, ",".join(times)]


def hurry(screen: Screen) -> None:
    """From here on its times are those that people have."""
    screen.process.send_signal(signal.SIGUSR1)
