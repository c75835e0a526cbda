"""Prices of models: the user's table, else what the vendor's list says for its own address."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from toolrest.config.schema.providers import ModelPrice
from toolrest.secret import SafeUrl
from toolrest.wire.presets import BUILT_IN

if TYPE_CHECKING:
    from toolrest.config import Settings
    from toolrest.wire.model import Model, Usage

# Dollars for a million tokens: input, cached input, output, and what is written to the cache
# where that has a price of its own. Lists of the vendors in 2026; other addresses have other
# prices, so nothing is assumed for them.
_LISTED: dict[str, tuple[float, float, float, float | None]] = {
    "gpt-5.5": (5, 0.5, 30, None),
    "gpt-5.4": (2.5, 0.25, 15, None),
    "gpt-5.3-codex": (1.75, 0.175, 14, None),
    "gpt-5.2": (1.75, 0.175, 14, None),
    "gpt-5.2-codex": (1.75, 0.175, 14, None),
    "gpt-5.1": (1.25, 0.125, 10, None),
    "gpt-5": (1.25, 0.125, 10, None),
    "gpt-5-mini": (0.25, 0.025, 2, None),
    "gpt-5-nano": (0.05, 0.005, 0.4, None),
    "gpt-4.1": (2, 0.5, 8, None),
    "gpt-4.1-mini": (0.4, 0.1, 1.6, None),
    "gpt-4.1-nano": (0.1, 0.025, 0.4, None),
    "gpt-4o": (2.5, 1.25, 10, None),
    "gpt-4o-mini": (0.15, 0.075, 0.6, None),
    "o3": (2, 0.5, 8, None),
    "o4-mini": (1.1, 0.275, 4.4, None),
    "claude-opus-4-7": (5, 0.5, 25, 6.25),
    "claude-opus-4-6": (5, 0.5, 25, 6.25),
    "claude-opus-4-5": (5, 0.5, 25, 6.25),
    "claude-opus-4-1": (15, 1.5, 75, 18.75),
    "claude-opus-4": (15, 1.5, 75, 18.75),
    "claude-sonnet-4-6": (3, 0.3, 15, 3.75),
    "claude-sonnet-4-5": (3, 0.3, 15, 3.75),
    "claude-sonnet-4": (3, 0.3, 15, 3.75),
    "claude-haiku-4-5": (1, 0.1, 5, 1.25),
    "claude-3-5-haiku": (0.8, 0.08, 4, 1),
}
_DATE = re.compile(r"-(\d{8}|\d{4}-\d\d-\d\d)$")
_VENDORS = ("openai", "anthropic")


def prices_for(settings: Settings, model: Model) -> Callable[[str], ModelPrice | None]:
    """The price of a model by its name; None where it is not known."""
    address = getattr(getattr(model, "provider", None), "base_url", None)
    return prices_at(settings, address.reveal() if isinstance(address, SafeUrl) else "")


def prices_at(settings: Settings, address: str) -> Callable[[str], ModelPrice | None]:
    """The price of a model that is served at an address, by the model's name."""
    is_vendors = any(address.rstrip("/") == BUILT_IN[name].base_url for name in _VENDORS)

    def price(name: str) -> ModelPrice | None:
        if name in settings.model_prices:
            return settings.model_prices[name]
        row = _LISTED.get(_DATE.sub("", name)) if is_vendors else None
        if row is None:
            return None
        return ModelPrice(input=row[0], cached_input=row[1], output=row[2], cache_write=row[3])

    return price


def provider_address(settings: Settings, provider: str, env: Mapping[str, str]) -> str:
    """The address of a provider by its name, without asking for its key; empty if not known."""
    row, built_in = settings.model_providers.get(provider), BUILT_IN.get(provider)
    if row is not None and row.base_url:
        return row.base_url
    if built_in is None or env.get(built_in.address_variable or ""):
        return ""
    return built_in.base_url


def cost_of(usage: Usage, price: ModelPrice | None) -> float | None:
    """The dollars for these tokens; None without a price."""
    if price is None:
        return None
    cached = price.input if price.cached_input is None else price.cached_input
    written = price.input if price.cache_write is None else price.cache_write
    fresh = max(0, usage.input - usage.cached_input - usage.cache_write_input)
    return (
        fresh * price.input
        + usage.cached_input * cached
        + usage.cache_write_input * written
        + usage.output * price.output
    ) / 1_000_000
