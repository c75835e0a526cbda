"""Connections that the proxy turned away, for the commands that ran at that time.

The proxy does not know whose connection it is. While one command runs, it is that one's; of several
a command that failed is told what its own output names.
"""

from __future__ import annotations

MOST = 20
"""Hosts that are kept and reported for one command; it may try as many as it likes."""


class Refused:
    """Hosts, with ports, to which connections were turned away while one command ran."""

    def __init__(self) -> None:
        self._alone: dict[str, bool] = {}

    def add(self, host: str, *, alone: bool) -> bool:
        """Add one; `alone` when no other command ran. False when it is known or one too many."""
        if host in self._alone:
            self._alone[host] |= alone
            return False
        if len(self._alone) >= MOST:
            return False
        self._alone[host] = alone
        return True

    def by_this_command(self, text: str) -> list[str]:
        """Those that this command must have tried, and those that its output names."""
        return [
            host for host, alone in self._alone.items() if alone or host.rpartition(":")[0] in text
        ]


class RefusedConnections:
    """Keeps what was turned away apart by command."""

    def __init__(self) -> None:
        self._running: list[Refused] = []
        self._beside = Refused()

    def begin(self) -> Refused:
        """A command begins; `end` must be called with what this returns."""
        record = Refused()
        self._running.append(record)
        return record

    def end(self, record: Refused) -> None:
        """The command has ended; calling it again does nothing."""
        if record in self._running:
            self._running.remove(record)

    def note(self, host: str) -> bool:
        """A connection was turned away; whether that is new for a command that runs."""
        running = tuple(self._running)
        records = running or (self._beside,)  # a login profile, or what a command left running
        added = [record.add(host, alone=len(running) == 1) for record in records]
        return any(added)
