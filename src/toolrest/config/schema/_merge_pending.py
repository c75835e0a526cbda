"""Which known settings cannot be honoured yet. A feature that lands deletes its lines here."""

from __future__ import annotations

from typing import Any

from toolrest.config.keys import Key, find

PENDING_KEYS = {
    "model_catalog_json": "model providers",
    "history": "session history",
    "features": "feature switches; the switches that exist are under [tools]",
    "network_proxy": "the network allow list",
    "permissions": "permission profiles",
    "default_permissions": "permission profiles",
}

PENDING_VALUES: dict[tuple[str, Any], str] = {
    ("sandbox_policy", "vm"): "virtual machines as sandboxes",
}


def pending_in(table: dict[str, Any]) -> tuple[Key, str] | None:
    """The first setting of a table that must wait, as its path and what it waits for."""
    for dotted, feature in PENDING_KEYS.items():
        key = tuple(dotted.split("."))
        parent = find(table, key[:-1]) if len(key) > 1 else table
        if isinstance(parent, dict) and key[-1] in parent:
            return key, feature
    for (dotted, value), feature in PENDING_VALUES.items():
        if find(table, key := tuple(dotted.split("."))) == value and value is not None:
            return key, feature
    return None
