"""Leases: no two live runners work on one task, and a dead one's task is taken over.

`lease-N.json` is made exclusively, so each N has one holder; the highest N counts. The holder
rewrites its own file (the heartbeat). Once that is old, or its process is known to be gone, the
next runner makes `lease-N+1.json`. A holder that finds a higher number, a result, or its own file
gone (which the end of a task removes) or another runner's has lost the task.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import threading
import time
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from toolrest.batch.stores.store import Store
from toolrest.items import JSONObject

_NAME = re.compile(r"lease-(\d+)\.json")
SECONDS = 60.0
"""How old a heartbeat may be; clocks of machines that share a store may differ by half of it."""


class Runner(Struct, frozen=True):
    """A process that works on tasks: its machine, its number there, and a name of its own."""

    id: str
    host: str
    machine: str
    pid: int
    born: str

    @classmethod
    def here(cls) -> Runner:
        """The runner that this process is."""
        pid = os.getpid()
        return cls(secrets.token_hex(8), socket.gethostname(), _machine(), pid, _born(pid))

    def is_gone(self) -> bool:
        """Whether its process is known to have ended; False for another machine's."""
        return self.machine == _machine() != "" and self.born != _born(self.pid)


def _machine() -> str:
    """A name for this machine since it was started, with its table of processes."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _born(pid: int) -> str:
    """When a process was started; empty when there is none, or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


class Lease(Struct):
    """One runner's hold on a task, with the attempts that it made."""

    number: int
    runner: Runner
    beat: float
    attempts: list[JSONObject] = field(default_factory=list)
    """The attempts of this lease and of all before it."""
    released: bool = False
    seconds: float = 0.0
    """How old its holder lets its heartbeat become."""
    lost: int = 0
    """How many holders in a row before it died, or were taken for dead."""

    def is_live(self, seconds: float) -> bool:
        """Whether its holder may still be at work; `seconds` are those of who asks."""
        if self.released or self.runner.is_gone():
            return False
        most = max(seconds, self.seconds)
        age = time.time() - self.beat
        if age > -most:
            return age < most
        return _unchanged_for(self) < most  # its holder's clock is of no use


_seen: dict[str, tuple[float, float]] = {}
"""When this process first saw a heartbeat of a runner from the far future, and which."""


def _unchanged_for(lease: Lease) -> float:
    """For how many seconds a lease has had the same heartbeat, as far as this process knows."""
    now = time.monotonic()
    beat, since = _seen.get(lease.runner.id, (lease.beat, now))
    if beat != lease.beat:
        since = now
    _seen[lease.runner.id] = (lease.beat, since)
    return now - since


class Leases:
    """The leases of one task in a store."""

    def __init__(self, store: Store, folder: str, runner: Runner, seconds: float = SECONDS) -> None:
        self._store = store
        self._folder = folder
        self._runner = runner
        self.seconds = seconds
        self.renewed = time.monotonic()
        """When the last heartbeat that was written began, by the clock of `time.monotonic`."""
        self._lock = threading.Lock()  # beats of several threads are written in order

    def _name(self, number: int) -> str:
        return f"{self._folder}/lease-{number}.json"

    def latest(self) -> Lease | None:
        """The lease that counts."""
        found = [_NAME.fullmatch(name) for name in self._store.files(self._folder)]
        numbers = sorted(int(match[1]) for match in found if match)
        return self._read(numbers[-1]) if numbers else None

    def _read(self, number: int) -> Lease:
        data = self._store.read(self._name(number))
        try:
            found: Any = json.loads(data or b"")
            return Lease(
                number, Runner(**found["runner"]), found["beat"], _rows(found["attempts"]),
                found["released"], float(found.get("seconds", 0.0)),
                int(found.get("lost", 0)),
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            # Nothing of ours looks like this: whoever made it is treated as dead.
            return Lease(number, Runner("", "", "", 0, ""), 0.0)

    def take(self) -> Lease | None:
        """Take the task; None while another runner has it."""
        latest = self.latest()
        if latest is not None and latest.is_live(self.seconds):
            return None
        self.renewed = time.monotonic()
        lease = Lease(1, self._runner, time.time(), seconds=self.seconds)
        if latest is not None:
            lease.number = latest.number + 1
            lease.attempts = [_ended(attempt, latest.beat) for attempt in latest.attempts]
            lease.lost = 0 if latest.released else latest.lost + 1
        made = self._store.create(self._name(lease.number), _data(lease))
        return lease if made else None

    def beat(self, lease: Lease) -> bool:
        """Say that its holder lives; False when the task is another runner's or has its result."""
        with self._lock:
            if not self._is_held(lease):
                return False
            now, renewed = time.time(), time.monotonic()
            self._store.write(self._name(lease.number), _data(replace(lease, beat=now)))
            lease.beat, self.renewed = now, renewed  # until then others see the one before
            return True

    def _is_held(self, lease: Lease) -> bool:
        """Whether it still counts: a holder may have been stopped for long (SIGSTOP, suspend)."""
        if self._store.has(self._name(lease.number + 1)):
            return False
        # After a retry the numbers begin again, so the file may be another runner's.
        if self._read(lease.number).runner.id != lease.runner.id:
            return False
        return not self._store.has(f"{self._folder}/result.json")

    def put(self, lease: Lease) -> None:
        """Write a lease for a task that had a result and is to run again."""
        self._store.write(self._name(lease.number), _data(lease))

    def clear(self, lease: Lease) -> None:
        """Remove the leases of a task that has its result, and what dead runners were writing."""
        with self._lock:
            for number in range(lease.number + 1):
                self._store.delete(self._name(number))
            for name in self._store.files(self._folder) if lease.number > 1 else ():
                if name.endswith(".tmp"):
                    self._store.delete(f"{self._folder}/{name}")


def _rows(attempts: Any) -> list[JSONObject]:
    """The rows of attempts in a lease; ValueError where they cannot be ours.

    Before a killed attempt was known to have run until its last heartbeat, its end was null.
    """
    for row in attempts:
        times = (row.get("started"), row.get("ended")) if isinstance(row, dict) else ("",)
        if not all(time is None or isinstance(time, int | float) for time in times):
            raise ValueError("not a row of an attempt")
    return list(attempts)


def _ended(attempt: JSONObject, beat: float) -> JSONObject:
    """The row of an attempt whose runner is gone: it ran until its last heartbeat at least."""
    if "ended" in attempt:
        return attempt
    return attempt | {"ended": max(beat, attempt.get("started") or beat), "outcome": "killed"}


def _data(lease: Lease) -> bytes:
    runner = {name: getattr(lease.runner, name) for name in Runner.__struct_fields__}
    return json.dumps(
        {
            "runner": runner, "beat": lease.beat, "attempts": lease.attempts,
            "released": lease.released, "seconds": lease.seconds,
            "lost": lease.lost,
        }
    ).encode()  # fmt: skip
