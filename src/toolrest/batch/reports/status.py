"""Status of a batch: counts, throughput, time left, failures by class, what was used."""

from __future__ import annotations

import time
from collections import Counter

from msgspec import Struct, field

from toolrest.batch.engine import failed_keys, finished_keys, stored_tasks
from toolrest.batch.run_task import CANCELLED
from toolrest.batch.stores.store import Store
from toolrest.batch.stores.totals import Used, runner_files
from toolrest.items import JSONObject

_ALIVE_SECONDS = 60.0


class BatchStatus(Struct):
    """How far a batch has come, over all its runners."""

    tasks: int
    finished: int
    failed: int
    running: int
    runners: int
    cancelled: bool
    tokens: int
    cost: float
    per_minute: float | None
    seconds_left: float | None
    failures: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> JSONObject:
        """The fields by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def batch_status(store: Store) -> BatchStatus:
    """Read the status from a store: lists of names and the runners' files, no result."""
    used = Used()
    used.read(store)
    keys = {key for key, _ in stored_tasks(store)}
    finished = finished_keys(store)
    keys |= finished
    failed = {key: name for key, name in failed_keys(store).items() if key in finished}
    rows = [row for _, row in runner_files(store)]
    now = time.time()
    alive = [row for row in rows if not row.ended and now - row.beat < _ALIVE_SECONDS]
    # The rate of those at work; of all where none is.
    counted = alive or rows
    done = sum(row.done for row in counted)
    seconds = max((row.beat for row in counted), default=0.0) - min(
        (row.started for row in counted), default=0.0
    )
    left = len(keys) - len(finished)
    return BatchStatus(
        len(keys),
        len(finished),
        len(failed),
        sum(row.running for row in alive),
        len(alive),
        store.has(CANCELLED),
        used.tokens,
        used.cost,
        done / seconds * 60 if done and seconds > 0 else None,
        eta(done, left, seconds) if alive else None,
        dict(Counter(failed.values()).most_common()),
    )


def eta(done: int, left: int, seconds: float) -> float | None:
    """The seconds until the rest is done, at the pace so far."""
    return seconds / done * left if done and left and seconds > 0 else None


def duration(seconds: float) -> str:
    """A duration for people: 42 s, 7 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def status_lines(status: BatchStatus) -> list[str]:
    """The status as a table of names and values."""
    rows = [
        ("tasks", f"{status.finished} of {status.tasks} have a result"),
        ("failed", str(status.failed)),
        *((f"  {name}", str(count)) for name, count in status.failures.items()),
        ("running", f"{status.running} on {status.runners} runner{'s' * (status.runners != 1)}"),
    ]
    if status.per_minute is not None:
        rows.append(("rate", f"{status.per_minute:.1f} tasks a minute"))
    if status.seconds_left is not None:
        rows.append(("left", duration(status.seconds_left)))
    rows.append(("tokens", f"{status.tokens:,}"))
    if status.cost:
        rows.append(("cost", f"${status.cost:.2f}"))
    if status.cancelled:
        rows.append(("cancelled", "yes"))
    return [f"{name:<20}{value}" for name, value in rows]
