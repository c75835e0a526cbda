"""Let tasks run again: their results become earlier ones, their attempts are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from toolrest.batch.engine import failed_keys
from toolrest.batch.run_task import failed_marker, task_folder
from toolrest.batch.stores.lease import Lease, Leases, Runner
from toolrest.batch.stores.store import Store


def retry_tasks(
    store: Store, keys: Iterable[str], *, fresh: bool = False, only_failed: bool = False
) -> int:
    """Take the results of these tasks away; returns how many had one.

    A failed session is resumed from its journal, unless `fresh`; one that had succeeded starts
    anew, or is left alone with `only_failed`. What was stored is kept under other names.
    """
    failed, count = failed_keys(store), 0
    for key in keys:
        folder = task_folder(key)
        data = store.read(f"{folder}/result.json")
        if data is None:
            continue
        result: Any = json.loads(data)
        if only_failed and result["failure"] is None:
            continue  # its marker is of an attempt before
        attempts = [dict(row) for row in result["attempts"]]
        if fresh or result["failure"] is None:
            for row in attempts:
                row.pop("journal", None)
            for name, kind in (("journal", "jsonl"), ("patch", "diff")):
                kept = f"{folder}/{name}-{len(attempts)}.{kind}"
                _move(store, f"{folder}/{name}.{kind}", kept)
        leases = Leases(store, folder, Runner.here())
        store.write(f"{folder}/result-{len(attempts)}.json", data)
        lease = Lease(0, Runner("", "", "", 0, ""), time.time(), attempts, released=True)
        leases.put(lease)
        store.delete(f"{folder}/result.json")
        if key in failed:
            store.delete(failed_marker(key, failed[key]))
        count += 1
    return count


def _move(store: Store, name: str, target: str) -> None:
    data = store.read(name)
    if data is not None:
        store.write(target, data)
        store.delete(name)
