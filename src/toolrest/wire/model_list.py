"""The list of models that a server offers, with their context windows."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from toolrest.config.schema.model_limits import model_info

_WINDOWS: Final = (
    "n_ctx",
    "context_length",
    "max_model_len",
    "loaded_context_length",
    "max_input_tokens",
)


class ListedModel(NamedTuple):
    """A listed model; its window is the server's, else the table's."""

    id: str
    context_window: int | None


def models_in(document: Any) -> list[ListedModel] | None:
    """The models of a server's list, sorted by name; None when it is no list."""
    rows = document.get("data") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        return None
    return sorted(filter(None, map(_listed, rows)), key=lambda row: row.id)


def _listed(row: Any) -> ListedModel | None:
    name = row.get("id", row.get("name")) if isinstance(row, dict) else None
    if not isinstance(name, str) or not name.isprintable():
        return None
    meta = row.get("meta")  # of llama.cpp
    stated = {**meta, **row} if isinstance(meta, dict) else row
    windows = (stated.get(key) for key in _WINDOWS)
    window = next((w for w in windows if type(w) is int and w > 0), None)
    return ListedModel(name, window or model_info(name).context_window)
