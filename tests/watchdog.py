"""Ends a test that hangs, with every process that it started, whatever those do.

pytest-timeout raises in the test first. What does not end by that, because a fixture waits for a
child or a child holds a pipe, is ended here: first its processes are killed, and if that did not
help, this worker, which the run then replaces. A test that never lets Python's lock go is ended by
a thread that does not need it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from contextlib import suppress

GRACE = float(os.environ.get("TOOLREST_TEST_GRACE", "20"))
"""Seconds after the test's own time limit, and again after its processes were killed."""


class Watchdog:
    """One thread that looks at one deadline."""

    def __init__(self, grace: float = GRACE) -> None:
        # Before pytest puts a file in its place: what hangs is said to the person who waits.
        self._stderr = os.fdopen(os.dup(2), "w")
        self.hung: set[str] = set()
        """Tests whose processes were killed: they have not passed, whatever they say."""
        self._limit = 0.0
        self._grace = grace
        self._name = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def begin(self, name: str, limit: float) -> None:
        """This test starts now."""
        faulthandler.dump_traceback_later(limit + 3 * self._grace, exit=True, file=self._stderr)
        with self._changed:
            self._name, self._limit = name, limit
            self._changed.notify()

    def end(self) -> None:
        """It has ended."""
        faulthandler.cancel_dump_traceback_later()
        with self._changed:
            self._name = ""
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._name)
                name = self._name
                if self._over(name, self._limit + self._grace):
                    continue
                self.hung.add(name)
                self._tell(f"{name} hangs; its processes are killed")
                kill_below(os.getpid())
                if self._over(name, self._grace):
                    continue
            self._tell(f"{name} hangs still; this worker ends")
            faulthandler.dump_traceback(self._stderr)
            kill_below(os.getpid())
            os._exit(70)

    def _over(self, name: str, seconds: float) -> bool:
        return self._changed.wait_for(lambda: self._name != name, seconds)

    def _tell(self, words: str) -> None:
        self._stderr.write(f"\nwatchdog: {words}\n")
        self._stderr.flush()


def kill_below(top: int) -> None:
    """Kill what this process started, and what that started meanwhile."""
    for _ in range(100):
        found = descendants(top)
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def descendants(top: int) -> list[int]:
    """The children of a process, theirs, and so on; dead ones that were not waited for left out."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                with open(f"/proc/{name}/stat", "rb") as stream:
                    state, parent = stream.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    found, pending = [], [top]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found
