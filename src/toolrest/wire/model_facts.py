"""What is known about a model: its window, price and levels of effort, and who says so."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from msgspec import Struct

from toolrest.errors import ConfigError
from toolrest.secret import SafeUrl
from toolrest.wire.addresses import provider_address, provider_name
from toolrest.wire.model_data import known_model, known_names, newest_general
from toolrest.wire.model_families import model_info
from toolrest.wire.model_list import ModelList, stored_list
from toolrest.wire.presets import BUILT_IN, preset_at
from toolrest.wire.prices import Price

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.wire.model import Model

Source: TypeAlias = Literal["settings", "provider", "data", "family"]
"""Who says so: the user's settings, the provider's own list, the data that comes with the package
(genai-prices), or our table of families."""
_Known = TypeVar("_Known")


class ModelFacts(Struct, frozen=True):
    """A model's facts. None, and no efforts, mean that nobody we trust says so.

    `window` is the most tokens of a request. `price` has the dollars for a million tokens
    (`input`, `output`, `cached_input`, `cache_write`, and `long` above `long_above` tokens).
    `efforts` are what `model_reasoning_effort` may be, the weakest first.
    """

    model: str
    provider: str
    window: int | None = None
    window_source: Source | None = None
    price: Price | None = None
    price_source: Source | None = None
    efforts: tuple[str, ...] = ()
    efforts_source: Source | None = None


def model_facts(
    config: Config, model: str | None = None, provider: str | None = None
) -> ModelFacts:
    """The facts of a model at a provider; of the settings' own where none is named.

    Never asks anybody: the user's settings count first, then the provider's list as it was stored
    by a command that asked for it, then the data of the package, then our families. Fast enough
    for a status line after the first time, which reads files (2 ms).
    """
    name = config.value.model if model is None else model
    place = provider_name(config) if provider is None else provider
    return facts_at(config, name or "", place, known_address(config, place))


def facts_at(config: Config, model: str, provider: str, address: str) -> ModelFacts:
    """The facts of a model that a provider serves at an address; see `model_facts`."""
    family, own = model_info(model), config.value.model_prices.get(model)
    data = _data_of(provider, address)
    known = known_model(data, model) if data else None
    offered = models_at(config, address)
    listed = offered.named(model) if offered else None
    window, window_from = _first(
        (_own_window(config, model, provider), "settings"),
        (family.room(listed.context_window) if listed else None, "provider"),
        (family.room(known.window) if known else None, "data"),
        (family.context_window, "family"),
    )
    price, price_from = _first(
        (Price.of(own) if own else None, "settings"),
        (listed.price if listed else None, "provider"),
        (known.price if known else None, "data"),
    )
    efforts, efforts_from = _first(
        (listed.efforts or None if listed else None, "provider"),
        (family.efforts or None, "family"),
    )
    return ModelFacts(
        model, provider, window, window_from, price, price_from, efforts or (), efforts_from
    )


def price_at(config: Config, provider: str, address: str) -> Callable[[str], Price | None]:
    """The price of a model by its name, at an address; None where nobody says it."""
    return cache(lambda name: facts_at(config, name, provider, address).price)


def price_of(config: Config, model: Model) -> Callable[[str], Price | None]:
    """The price of a model by its name, where this one is served."""
    address = getattr(getattr(model, "provider", None), "base_url", None)
    return price_at(config, "", address.reveal() if isinstance(address, SafeUrl) else "")


def known_address(config: Config, provider: str) -> str:
    """The address of a provider; empty where the settings or variables do not say it."""
    try:
        return provider_address(config.value, provider, os.environ)
    except ConfigError:
        return ""


def models_at(config: Config, address: str) -> ModelList | None:
    """The list of the server at an address, as it was stored; None if it was never asked for."""
    return stored_list(config.home, address) if address and config.from_files else None


def known_models(config: Config, provider: str, address: str) -> list[str]:
    """The names of a provider's models as far as known: those that it listed, else the data's."""
    listed = models_at(config, address)
    if listed:
        return [row.id for row in listed.models]
    data = _data_of(provider, address)
    return known_names(data) if data else []


def default_model(config: Config, provider: str) -> str | None:
    """The newest general model of a built-in provider, of those that it lists if that is known.

    None where only the server knows its models, or lists none that the data has.
    """
    preset = BUILT_IN.get(provider)
    if preset is None or preset.prices is None or preset.line is None:
        return None
    listed = models_at(config, known_address(config, provider))
    names = [row.id for row in listed.models] if listed else []
    return newest_general(preset.prices, preset.line, names)


def _data_of(provider: str, address: str) -> str | None:
    """The name in the data of who serves at an address; of a built-in one also without it."""
    preset = preset_at(address) if address else BUILT_IN.get(provider)
    return preset.prices if preset else None


def _own_window(config: Config, model: str, provider: str) -> int | None:
    settings = config.value
    if settings.model_context_window is not None and model == settings.model:
        return settings.model_context_window
    row = settings.model_providers.get(provider)
    rows = () if row is None else (row.models.get(model), row.request)
    stated = (each.context_window for each in rows if each is not None)
    return next((window for window in stated if isinstance(window, int)), None)


def _first(*found: tuple[_Known | None, Source]) -> tuple[_Known | None, Source | None]:
    """The first that is known, and who says it."""
    return next(((value, source) for value, source in found if value is not None), (None, None))
