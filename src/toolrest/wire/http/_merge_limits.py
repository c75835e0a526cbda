"""What a server's headers say about how much may still be asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolrest.items import JSONObject


def rate_limits(headers: Mapping[str, str]) -> JSONObject:
    """The snapshot of a response's headers; empty when they say nothing."""
    snapshot: JSONObject = {}
    for window in ("primary", "secondary"):
        found = _window(headers, f"x-codex-{window}-")
        if found:
            snapshot[window] = found
    found = _credits(headers)
    if found:
        snapshot["credits"] = found
    return snapshot


def _window(headers: Mapping[str, str], prefix: str) -> JSONObject | None:
    used = _number(headers.get(f"{prefix}used-percent"))
    if used is None:
        return None
    minutes = _number(headers.get(f"{prefix}window-minutes"))
    resets = _number(headers.get(f"{prefix}reset-at"))
    if not used and not minutes and resets is None:
        return None
    window: JSONObject = {"used_percent": used}
    if minutes is not None:
        window["window_minutes"] = int(minutes)
    if resets is not None:
        window["resets_at"] = int(resets)
    return window


def _credits(headers: Mapping[str, str]) -> JSONObject | None:
    if "x-codex-credits-has-credits" not in headers:
        return None
    found: JSONObject = {
        "has_credits": _flag(headers["x-codex-credits-has-credits"]),
        "unlimited": _flag(headers.get("x-codex-credits-unlimited", "")),
    }
    balance: Any = headers.get("x-codex-credits-balance")
    return found | {"balance": balance} if balance else found


def _flag(text: str) -> bool:
    return text.strip().lower() in ("true", "1")


def _number(text: str | None) -> float | None:
    import math

    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is None or math.isfinite(value) else None
