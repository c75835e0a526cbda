"""Let tasks run again: their results become earlier ones, their attempts are kept."""

from __future__ import annotations

import time
from collections.abc import Iterable

from toolrest.batch.attempt import OF_THE_END
from toolrest.batch.engine import failed_keys
from toolrest.batch.reports.results import stored_result
from toolrest.batch.run_task import failed_marker, task_folder
from toolrest.batch.stores.lease import Lease, Leases, Runner
from toolrest.batch.stores.store import Store
from toolrest.batch.tasks.records import AUDIT, EVENTS
from toolrest.batch.tasks.setup import ARCHIVE, EARLIER_RUN

_WORK = ("patch.diff", ARCHIVE)
_GROWING = ("journal.jsonl", EVENTS, AUDIT)


def retry_tasks(
    store: Store, keys: Iterable[str], *, fresh: bool = False, only_failed: bool = False
) -> int:
    """Take the results of these tasks away; returns how many had one.

    A failed session is resumed from its journal, unless `fresh`; one that had succeeded starts
    anew, or is left alone with `only_failed`. What was stored is kept under other names; journal,
    events and audit of a session that goes on become longer.
    """
    failed, count = failed_keys(store), 0
    for key in keys:
        folder = task_folder(key)
        data = store.read(f"{folder}/result.json")
        if data is None:
            continue
        result = stored_result(data) or {"failure": "internal"}
        if only_failed and result["failure"] is None:
            continue  # its marker is of an attempt before
        attempts = [dict(row) for row in result.get("attempts") or ()]
        if fresh or result["failure"] is None:
            for row in attempts:
                row[EARLIER_RUN] = True
            _keep(store, folder, (*OF_THE_END, *_WORK, *_GROWING), len(attempts))
        else:
            _keep(store, folder, OF_THE_END, len(attempts))
            _keep(store, folder, _WORK, len(attempts), copy=True)
        leases = Leases(store, folder, Runner.here())
        store.write(f"{folder}/result-{len(attempts)}.json", data)
        # A runner that died at the very end has left its lease: this one is above it.
        left = leases.latest()
        number = 0 if left is None else left.number + 1
        nobody = Runner("", "", "", 0, "")
        leases.put(Lease(number, nobody, time.time(), attempts, released=True))
        store.delete(f"{folder}/result.json")
        if key in failed:
            store.delete(failed_marker(key, failed[key]))
        count += 1
    return count


def _keep(
    store: Store, folder: str, names: Iterable[str], number: int, *, copy: bool = False
) -> None:
    """Keep files as NAME-NUMBER; with `copy` they stay as well."""
    for name in names:
        data = store.read(f"{folder}/{name}")
        if data is not None:
            stem, _, kind = name.partition(".")
            store.write(f"{folder}/{stem}-{number}.{kind}", data)
            if not copy:
                store.delete(f"{folder}/{name}")
