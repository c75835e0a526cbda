"""Write src/toolrest/wire/models.json: windows and prices of models, from genai-prices.

Run by `make model-data`, with the version of genai-prices that pyproject.toml pins. Only what
Toolrest uses is kept: providers that it has a row for, and models that answer with text. A price
that changes on a known day is kept with that day; of one that changes with the hour the highest.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

from genai_prices import data
from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

from toolrest.wire.model_data import bare_name
from toolrest.wire.presets import BUILT_IN

TARGET = Path(__file__).parents[1] / "src" / "toolrest" / "wire" / "models.json"
NOTICE = "genai-prices, MIT licence, Copyright (c) Pydantic Services Inc.: THIRD_PARTY_NOTICES.md"
UNITS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
# Models that do not answer with text, or that nobody uses with tools.
OTHERS = re.compile(
    r"embed|tts|audio|realtime|image|transcri|moderation|ocr|whisper|voice|banana|omni|video|rerank"
    r"|search|davinci|curie|^ada$|babbage|claude-v1|claude-2|3\.5-turbo|gpt-4-|-live|robotics|computer"
    r"|deep-research|guard|voxtral|pixtral|\.ft-|lyria|:[a-z]"
)
SMALLEST = 32_000
"""Tokens of the smallest window that is kept of a gateway's many models."""


def main() -> None:
    """Write the file and say how much is in it."""
    text = document(datetime.now(UTC).date())
    TARGET.write_text(text)
    print(f"{TARGET.name}: {text.count(chr(10))} lines, {len(text):,} bytes")


def document(today: date) -> str:
    """The file as it is made on a day, with a line for each model."""
    known = {provider.id: provider for provider in data.providers}
    head = {
        "version": importlib.metadata.version("genai-prices"),
        "date": today.isoformat(),
        "notice": NOTICE,
    }
    parts = []
    for name in sorted({row.prices for row in BUILT_IN.values() if row.prices}):
        chain = [known[each] for each in (name, *(known[name].fallback_model_providers or ()))]
        lines = [
            f"  {_json(key)}: {_json(row)}" for key, row in sorted(_rows(chain, today).items())
        ]
        parts.append(f' "{name}": {{\n' + ",\n".join(lines) + "\n }")
    return (
        f'{json.dumps(head, indent=1)[:-2]},\n "providers": {{\n' + ",\n".join(parts) + "\n }\n}\n"
    )


def _rows(chain: list[Provider], today: date) -> dict[str, Any]:
    """The rows by name; a second name of a model has the first in the place of its row."""
    rows: dict[str, Any] = {}
    names: dict[str, str] = {}
    for provider in chain:
        for model in provider.models:
            row = _row(model, today)
            if row is None or (provider.id == "openrouter" and _is_minor(model)):
                continue
            first, *others = dict.fromkeys(_names(model))
            rows.setdefault(first, row)
            for other in others:
                names.setdefault(other, first)
    return names | rows


def _is_minor(model: ModelInfo) -> bool:
    small = (model.context_window or 0) < SMALLEST
    return small or "/" not in model.id or model.id.startswith("~")


def _names(model: ModelInfo) -> Iterator[str]:
    """The names that mean this model, its own first, all without a date."""
    yield bare_name(model.id)
    for clause in getattr(model.match, "or_", None) or (model.match,):
        name = getattr(clause, "equals", None) or getattr(clause, "starts_with", None) or "-"
        # A start that ends in the middle of a name is none.
        if re.search(r"\d", name) and name[-1] not in "-/.@" and not OTHERS.search(name):
            yield bare_name(name)


def _row(model: ModelInfo, today: date) -> list[Any] | None:
    """Window and dated prices; None for a model without both or one that is not for text."""
    if OTHERS.search(model.id):
        return None
    prices: list[list[Any]] = []
    for start in _changes(model, today):
        price = _price(model, start or today)
        if price and (not prices or price != prices[-1][1:]):
            prices.append([start.isoformat() if start else "", *price])
    if prices:
        return [model.context_window, prices]
    return [model.context_window] if model.context_window else None


def _changes(model: ModelInfo, today: date) -> list[date | None]:
    """None for the price of today, and the days on which it changes."""
    if isinstance(model.prices, ModelPrice):
        return [None]
    days = (getattr(row.constraint, "start_date", None) for row in model.prices)
    return [None, *sorted(day for day in days if day is not None and day > today)]


def _price(model: ModelInfo, day: date) -> list[Any] | None:
    """Dollars for a million tokens of input, output, cache; the dearest hour of the day."""
    hours = (datetime.combine(day, time(hour, 59), UTC) for hour in range(24))
    found = [price for hour in hours if (price := _dollars(model.get_prices(hour)))]
    return max(found, key=lambda price: price[0], default=None)


def _dollars(price: ModelPrice) -> list[Any] | None:
    values = [getattr(price, unit) for unit in UNITS]
    if values[0] is None or values[1] is None:
        return None
    usual = [_number(each.base if isinstance(each, TieredPrices) else each) for each in values]
    tiered = [each for each in values if isinstance(each, TieredPrices) and each.tiers]
    if not tiered:
        return usual[:3] if usual[3] is None else usual
    long = [_number(each.tiers[0].price if each in tiered else each) for each in values]
    return [*usual, [tiered[0].tiers[0].start, *long]]


def _number(value: Any) -> float | int | None:
    if value is None:
        return None
    number = float(value)
    return int(number) if number.is_integer() else number


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    main()
