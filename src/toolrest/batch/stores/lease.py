"""Leases: no two live runners work on one task, and a dead one's task is taken over.

`lease-N.json` is made exclusively, so each N has one holder; the highest N counts. The holder
rewrites its own file (the heartbeat). Once that is old, or its process is known to be gone, the
next runner makes `lease-N+1.json`. A holder that finds a higher number has lost the task.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import time
from typing import Any

from msgspec import Struct, field

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

    def is_live(self, seconds: float) -> bool:
        """Whether its holder may still be at work."""
        if self.released or self.runner.is_gone():
            return False
        return time.time() - self.beat < seconds


class Leases:
    """The leases of one task in a store."""

    def __init__(self, store: Store, folder: str, runner: Runner, seconds: float = SECONDS) -> None:
        self._store = store
        self._folder = folder
        self._runner = runner
        self.seconds = seconds

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
                number, Runner(**found["runner"]), found["beat"], found["attempts"],
                found["released"],
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            # Nothing of ours looks like this: whoever made it is treated as dead.
            return Lease(number, Runner("", "", "", 0, ""), 0.0)

    def take(self) -> Lease | None:
        """Take the task; None while another runner has it."""
        latest = self.latest()
        if latest is not None and latest.is_live(self.seconds):
            return None
        lease = Lease(1, self._runner, time.time())
        if latest is not None:
            lease.number = latest.number + 1
            lease.attempts = [_ended(attempt) for attempt in latest.attempts]
        made = self._store.create(self._name(lease.number), _data(lease))
        return lease if made else None

    def beat(self, lease: Lease) -> bool:
        """Say that its holder lives; False when another runner has taken the task."""
        if self._store.has(self._name(lease.number + 1)):
            return False
        lease.beat = time.time()
        self._store.write(self._name(lease.number), _data(lease))
        return True

    def put(self, lease: Lease) -> None:
        """Write a lease as the first one, for a task that had a result and is to run again."""
        self._store.write(self._name(lease.number), _data(lease))

    def clear(self, lease: Lease) -> None:
        """Remove the leases of a task that has its result."""
        for number in range(lease.number + 1):
            self._store.delete(self._name(number))


def _ended(attempt: JSONObject) -> JSONObject:
    return attempt if "ended" in attempt else attempt | {"ended": None, "outcome": "killed"}


def _data(lease: Lease) -> bytes:
    runner = {name: getattr(lease.runner, name) for name in Runner.__struct_fields__}
    return json.dumps(
        {
            "runner": runner, "beat": lease.beat, "attempts": lease.attempts,
            "released": lease.released,
        }
    ).encode()  # fmt: skip
