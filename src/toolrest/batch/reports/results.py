"""Results of a batch as JSON lines, CSV, one HTML page, or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from toolrest.batch.engine import finished_keys, stored_tasks
from toolrest.batch.reports.page import results_page
from toolrest.batch.run_task import task_folder
from toolrest.batch.stores.addresses import without_users
from toolrest.batch.stores.store import Store
from toolrest.errors import ConfigError
from toolrest.items import JSONObject

FORMATS = ("jsonl", "csv", "html", "parquet")
_COLUMNS = (
    *("id", "failure", "status", "reason", "score", "model", "turns", "tool_calls", "input_tokens"),
    *("output_tokens", "total_tokens", "cost", "seconds", "attempts", "thread_id", "text", "error"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def read_results(store: Store, keys: set[str] | None = None) -> Iterator[JSONObject]:
    """The results in the order of the tasks; with `keys`, only theirs."""
    finished = finished_keys(store)
    for key, name in stored_tasks(store):
        if key in finished and (keys is None or key in keys):
            data = store.read(f"{task_folder(key)}/result.json")
            if data is not None:
                yield {**(stored_result(data) or _damaged(name)), "key": key}


def stored_result(data: bytes) -> JSONObject | None:
    """The result in a file; None for what is none, as a disk that failed leaves it."""
    try:
        row: Any = json.loads(data)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "failure" in row else None


def _damaged(name: str) -> JSONObject:
    error = f"its result.json is damaged: toolrest batch retry STORE {name} runs it again"
    return {"id": name, "failure": "internal", "error": error}


def write_results(layout: str, rows: Iterable[JSONObject], store: Store) -> bytes:
    """All results in one of FORMATS."""
    if layout == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    if layout == "html":
        return results_page(list(rows), without_users(store.url)).encode()
    flat = [flat_row(row) for row in rows]
    return _csv(flat) if layout == "csv" else _parquet(flat)


def flat_row(row: JSONObject) -> dict[str, Any]:
    """A result as one row of plain columns."""
    usage = row.get("usage") or {}
    merged = {**row, **usage, "score": (row.get("check") or {}).get("score")}
    merged["attempts"] = len(row.get("attempts") or [])
    return {name: merged.get(name) for name in _COLUMNS}


def _csv(rows: Sequence[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value


def _parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    # Only for this format, and in no extra: 40 MB.
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ConfigError("parquet needs pyarrow: pip install pyarrow") from None
    sink = pyarrow.BufferOutputStream()
    columns = {name: [row[name] for row in rows] for name in _COLUMNS}
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())
