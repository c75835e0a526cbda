"""A batch on the page: its status, distributions, and a table of results, from its store."""

from __future__ import annotations

import time
from typing import TypeGuard

from toolrest.batch.reports.page import histograms
from toolrest.batch.reports.results import flat_row, read_results
from toolrest.batch.reports.status import batch_status
from toolrest.batch.stores.addresses import without_users
from toolrest.batch.stores.store import Store, open_store
from toolrest.errors import ConfigError
from toolrest.items import JSONObject

_MOST_ROWS = 500
_FRESH_SECONDS = 5.0
_COLUMNS = ("id", "failure", "score", "turns", "tool_calls", "total_tokens", "cost", "seconds")
_NUMBERS = ("turns", "tool_calls", "cost", "seconds")
_LARGEST = 1e15
_TEXTS = {"text": 300, "error": 300}


class BatchView:
    """The batch of one store; what was read of it counts for some seconds."""

    def __init__(self, url: str) -> None:
        self._store: Store = open_store(url)
        if not self._store.has("tasks.jsonl"):
            shown = without_users(url)
            raise ConfigError(f"{shown} is not the store of a batch: it has no tasks.jsonl")
        self._read_at = -_FRESH_SECONDS
        self._whole: JSONObject = {}
        self._rows: list[JSONObject] = []

    def shown(self, failure: str = "") -> JSONObject:
        """Status, distributions and rows; with `failure`, the rows of that class alone."""
        if time.monotonic() - self._read_at >= _FRESH_SECONDS:
            self._read()
        rows = [row for row in self._rows if not failure or row["failure"] == failure]
        return {**self._whole, "rows": rows[:_MOST_ROWS], "more": max(0, len(rows) - _MOST_ROWS)}

    def _read(self) -> None:
        results = [_checked(result) for result in read_results(self._store)]
        self._rows = [_row(result) for result in results]
        self._whole = {
            "store": without_users(self._store.url),
            "status": batch_status(self._store).to_json(),
            "charts": [
                {"caption": shown.caption, "counts": shown.counts} for shown in histograms(results)
            ],
        }
        self._read_at = time.monotonic()


def _checked(result: JSONObject) -> JSONObject:
    """A result with nothing but what is counted and shown: other programs write to stores, too."""
    usage, check, attempts = (result.get(name) for name in ("usage", "check", "attempts"))
    failure = result.get("failure")
    return {
        **result,
        **{name: _number(result.get(name)) for name in _NUMBERS},
        "id": str(result.get("id", "")),
        "failure": None if failure is None else str(failure),
        "usage": {"total_tokens": _number(usage.get("total_tokens"))} if _is(usage) else {},
        "check": {"score": _number(check.get("score"))} if _is(check) else {},
        "attempts": attempts if isinstance(attempts, list) else [],
    }


def _is(value: object) -> TypeGuard[JSONObject]:
    return isinstance(value, dict)


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) < _LARGEST else None


def _row(result: JSONObject) -> JSONObject:
    flat = flat_row(result)
    row = {name: flat[name] for name in (*_COLUMNS, "attempts")}
    return row | {name: str(flat[name] or "")[:most] for name, most in _TEXTS.items()}
