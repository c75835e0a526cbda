"""What a batch has used, over all its runners, and how each of them is doing.

What a session has used is the name of an empty file in the store: one listing has them all. A
session that goes on has several, of which the highest counts, so nothing is counted twice, and
what a runner stored before it died counts as well.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple

from msgspec import Struct

from toolrest.batch.stores.lease import Runner
from toolrest.batch.stores.store import Store
from toolrest.items import JSONObject

_SECONDS = 5.0
_MOST_UNREAD = 3
"""So many reads in a row that failed: the store is gone."""
_USED = "used"
_UNKNOWN = "unknown"


class RunnerFile(Struct):
    """What one runner has done and used."""

    started: float
    beat: float = 0.0
    running: int = 0
    done: int = 0
    failed: int = 0
    tokens: int = 0
    cost: float = 0.0
    host: str = ""
    ended: bool = False


class _Use(NamedTuple):
    tokens: int = 0
    micro_dollars: int = -1
    """-1 where the cost is not known."""


class Used:
    """What sessions have used, each of them once."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Use] = {}
        self._lock = Lock()
        self.tokens = 0
        self._micro_dollars = 0
        self.unpriced = 0
        """Sessions whose cost is not known."""

    @property
    def cost(self) -> float:
        """In dollars, as far as it is known."""
        return self._micro_dollars / 1e6

    def note(self, session: str, tokens: int, cost: float | None) -> None:
        """Take what a session has used so far; what was known of it is part of that."""
        new = _Use(tokens, -1 if cost is None else round(cost * 1e6))
        with self._lock:
            old = self._sessions.get(session)
            if old is not None and old >= new:
                return
            self._sessions[session] = new
            self._count(new, 1)
            if old is not None:
                self._count(old, -1)

    def _count(self, use: _Use, sign: int) -> None:
        self.tokens += sign * use.tokens
        self._micro_dollars += sign * max(0, use.micro_dollars)
        self.unpriced += sign * (use.micro_dollars < 0)

    def of(self, session: str) -> tuple[int, float]:
        """Tokens and dollars of one session."""
        use = self._sessions.get(session, _Use())
        return use.tokens, max(0, use.micro_dollars) / 1e6

    def read(self, store: Store) -> None:
        """Take what is in a store; a file of another kind is left out."""
        for name in store.files(_USED):
            session, tokens, dollars = (*name.rsplit(".", 2), "", "")[:3]
            if tokens.isdecimal() and (dollars.isdecimal() or dollars == _UNKNOWN):
                self.note(session, int(tokens), int(dollars) / 1e6 if dollars != _UNKNOWN else None)


def used_marker(session: str, tokens: int, cost: float | None) -> str:
    """The name of the empty file that says what a session has used."""
    return f"{_USED}/{session}.{tokens}.{_UNKNOWN if cost is None else round(cost * 1e6)}"


class Totals:
    """The file of this runner, and what all of them have used."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        *,
        max_tokens: int | None = None,
        max_cost: float | None = None,
    ) -> None:
        self._store = store
        self._name = f"runners/{runner.id}.json"
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._unread = 0
        self.own = RunnerFile(time.time(), host=runner.host)
        self._used = Used()
        self._before: Used | None = None
        self._read_at = -_SECONDS
        self._unpriced: str | None = None

    def before(self) -> Used:
        """What was used before this run; it reads the store once."""
        if self._before is None:
            found = Used()
            found.read(self._store)
            self._before = found
        return self._before

    def take(self, result: JSONObject) -> None:
        """Count a task's result."""
        self.own.done += 1
        self.own.failed += result.get("failure") is not None
        self.note(result)

    def note(self, result: JSONObject) -> None:
        """Count what a task has used, whether its result could be stored or not."""
        usage = result.get("usage") or {}
        tokens = usage.get("total_tokens") or 0
        cost, session = result.get("cost"), result.get("thread_id")
        if not session:
            return
        self._used.note(session, tokens, cost)
        tokens_before, cost_before = self._before.of(session) if self._before else (0, 0.0)
        self.own.tokens += max(0, tokens - tokens_before)
        self.own.cost += max(0.0, (cost or 0.0) - cost_before)
        if cost is None and tokens:
            self._unpriced = self._unpriced or str(result.get("id"))

    def used_up(self) -> str | None:
        """Why no more tasks may begin: a limit is reached; None while there is room.

        While the store cannot be read, what is known counts; for long, that is the reason.
        """
        before = self._read_at
        try:
            reason = self._limit_reached()
        except OSError as error:
            self._unread += 1
            if self._unread >= _MOST_UNREAD:
                return f"cannot read the store: {error.strerror or error}"
            with suppress(OSError):
                return self._limit_reached()  # it was just read, so it is not read again
            return None
        if self._read_at != before:
            self._unread = 0
        return reason

    def _limit_reached(self) -> str | None:
        """The message about a limit that is reached; None while there is room."""
        if self._max_tokens is None and self._max_cost is None:
            return None
        if time.monotonic() - self._read_at >= _SECONDS:
            self._read_at = time.monotonic()
            self._used.read(self._store)
        tokens, cost = self._used.tokens, self._used.cost
        if self._max_tokens is not None and tokens >= self._max_tokens:
            return f"{tokens:,} tokens were used, and --max-total-tokens is {self._max_tokens:,}"
        if self._max_cost is not None and cost >= self._max_cost:
            return f"${cost:.2f} were spent, and --max-total-cost is {self._max_cost:g}"
        if self._max_cost is not None and self._unpriced is not None:
            return (
                f"the cost of task {self._unpriced} is not known, and --max-total-cost is given: "
                "give --price, or the price of its model in [model_prices]"
            )
        return None

    def write(self) -> None:
        """Store this runner's file."""
        self.before()
        self.own.beat = time.time()
        row = {name: getattr(self.own, name) for name in RunnerFile.__struct_fields__}
        self._store.write(self._name, json.dumps(row).encode())


def runner_files(store: Store) -> list[tuple[str, RunnerFile]]:
    """All runners' files by their names."""
    found = []
    for name in store.files("runners"):
        if not name.endswith(".json"):
            continue
        try:
            row: Any = json.loads(store.read(f"runners/{name}") or b"")
            known = {key: row[key] for key in RunnerFile.__struct_fields__ if key in row}
            found.append((f"runners/{name}", RunnerFile(**known)))
        except (ValueError, TypeError):
            continue
    return found
