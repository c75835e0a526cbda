"""What a batch has used, over all its runners: each keeps one file in the store."""

from __future__ import annotations

import json
import time
from typing import Any

from msgspec import Struct

from toolrest.batch.stores.lease import Runner
from toolrest.batch.stores.store import Store
from toolrest.items import JSONObject

_SECONDS = 5.0


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


class Totals:
    """The file of this runner, and the sum over all of them."""

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
        self.own = RunnerFile(time.time(), host=runner.host)
        self._others = (0, 0.0)
        self._read_at = -_SECONDS

    def take(self, result: JSONObject) -> None:
        """Count a task's result."""
        self.own.done += 1
        self.own.failed += result.get("failure") is not None
        usage = result.get("usage") or {}
        self.own.tokens += usage.get("total_tokens") or 0
        self.own.cost += result.get("cost") or 0.0

    def used_up(self) -> str | None:
        """The message about a limit that is reached; None while there is room."""
        if self._max_tokens is None and self._max_cost is None:
            return None
        if time.monotonic() - self._read_at >= _SECONDS:
            self._read_at = time.monotonic()
            found = [row for name, row in runner_files(self._store) if name != self._name]
            self._others = (sum(r.tokens for r in found), sum(r.cost for r in found))
        tokens, cost = self.own.tokens + self._others[0], self.own.cost + self._others[1]
        if self._max_tokens is not None and tokens >= self._max_tokens:
            return f"{tokens:,} tokens were used, and --max-total-tokens is {self._max_tokens:,}"
        if self._max_cost is not None and cost >= self._max_cost:
            return f"${cost:.2f} were spent, and --max-total-cost is {self._max_cost:g}"
        return None

    def write(self) -> None:
        """Store this runner's file."""
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
