"""Which models an endpoint offers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from toolrest.config.schema.model_limits import model_info
from toolrest.wire.http.endpoint import Http
from toolrest.wire.model import ModelError, ModelRequest
from toolrest.wire.provider import Provider
from toolrest.wire.providers import client_for

_WINDOWS: Final = ("context_length", "max_model_len", "loaded_context_length", "max_input_tokens")


class Listed(NamedTuple):
    """A model on offer; its window as the server says, else as the table knows."""

    id: str
    context_window: int | None


async def list_models(provider: Provider) -> list[Listed]:
    """What the endpoint lists, sorted by name; `ModelError` when it cannot be asked."""
    http = Http(provider)
    model = client_for(provider, "")
    path = "models"
    if provider.wire == "anthropic" and not provider.query_params:
        path += "?limit=1000"
    try:
        document = await http.get_json(path, model.headers(ModelRequest("", [])))
    finally:
        await http.aclose()
        await model.aclose()
    rows = document.get("data") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise ModelError("server", f"{provider.shown_url('models')} did not answer with a list")
    return sorted(row for row in map(_listed, rows) if row is not None)


def _listed(row: Any) -> Listed | None:
    name = row.get("id", row.get("name")) if isinstance(row, dict) else None
    if not isinstance(name, str) or not name.isprintable():
        return None
    windows = (row.get(key) for key in _WINDOWS)
    window = next((w for w in windows if isinstance(w, int) and w > 0), None)
    return Listed(name, window or model_info(name).context_window)
