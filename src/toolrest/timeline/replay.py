"""A recorded session as cells with the time at which each was complete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from toolrest.items import JSONObject
from toolrest.timeline.agents import StoredAgents
from toolrest.timeline.cells import Cell
from toolrest.timeline.stored import stored_cells
from toolrest.wire.items.pairing import call_id_of, is_call, is_output


def timed_cells(lines: Iterator[bytes]) -> Iterator[tuple[float, Cell]]:
    """The cells of a rollout's lines, each with its time in seconds; a call with its output.

    Calls that never got one come at the end.
    """
    open_calls: dict[str, JSONObject] = {}
    agents = StoredAgents()
    now = 0.0
    for line in lines:
        found = _item(line)
        if found is None:
            continue
        now, item = found
        if is_call(item):
            open_calls[call_id_of(item)] = item
            continue
        call = open_calls.pop(call_id_of(item), None) if is_output(item) else None
        for cell in stored_cells([call, item] if call is not None else [item], agents):
            yield now, cell
    for cell in stored_cells(open_calls.values()):
        yield now, cell


def _item(line: bytes) -> tuple[float, JSONObject] | None:
    try:
        value: Any = json.loads(line)
        time = datetime.fromisoformat(value["timestamp"]).timestamp()
        kind, payload = value["type"], value["payload"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # cut by a crash
    return (time, payload) if kind == "response_item" and isinstance(payload, dict) else None
