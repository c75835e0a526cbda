"""`toolrest models`: the models of a provider, and the providers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click
from msgspec import to_builtins

from toolrest.cli.options import config_option, profile_option
from toolrest.cli.terminal.progress import progress
from toolrest.config.loader import load
from toolrest.errors import ConfigError
from toolrest.wire.addresses import provider_name
from toolrest.wire.items.encode import dumps
from toolrest.wire.model_data import data_version
from toolrest.wire.model_facts import ModelFacts, Source
from toolrest.wire.presets import BUILT_IN
from toolrest.wire.prices import Price
from toolrest.wire.providers import Offer, named_provider, offered_models

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.wire.provider import Provider

_UNKNOWN: Final = "–"
_MARKS: Final = {"settings": "¹", "provider": "²", "data": "³", "family": "⁴"}


@click.command("models")
@click.argument("provider", required=False)
@click.option("--providers", is_flag=True, help="List the providers instead; no request is sent.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@config_option
@profile_option
def command(
    provider: str | None,
    providers: bool,
    as_json: bool,
    overrides: tuple[str, ...],
    profile: str | None,
) -> None:
    """List the models of PROVIDER, or of the one that the settings name: windows, prices, efforts.

    The provider is asked. Where it cannot be reached, what is known without it is shown.

    \b
    toolrest models ollama
    toolrest models --providers
    """
    flags = {"model_provider": provider} if provider else {}
    config = load(workspace=".", overrides=overrides, flags=flags, profile=profile, surface="cli")
    if providers:
        _print_providers(config, as_json)
    else:
        _print_models(config, as_json)


def _print_models(config: Config, as_json: bool) -> None:
    name = provider_name(config)
    with progress(f"asking {name} for its models"):
        offer = asyncio.run(offered_models(config, max_age=0))
    if offer.problem is not None:
        _explain(name, offer)
    if as_json:
        click.echo(dumps([_as_json(row) for row in offer.models]))
        return
    if not offer.models:
        click.echo(f"toolrest: {name} lists no models", err=True)
    for line in _table(offer, config.value.model):
        click.echo(line)


def _explain(name: str, offer: Offer) -> None:
    """Say why the provider was not asked; end the command where nothing is known without it."""
    if not offer.models and isinstance(offer.problem, ConfigError):
        raise offer.problem
    click.echo(f"toolrest: {offer.problem}", err=True)
    if not offer.models:
        sys.exit(1)
    listed = f"its list of {_age(offer.age)} ago" if offer.age is not None else ""
    click.echo(f"toolrest: {name}: {listed or f'from {data_version()}'}", err=True)


def _table(offer: Offer, chosen: str | None) -> Iterator[str]:
    """A line for each model; marks behind its figures say where they come from."""
    rows = offer.models
    cells = [("model", "window", "$ in / cached / out", "effort"), *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    marks = ["", *("*" if row.model == chosen else "" for row in rows)]
    for mark, line in zip(marks, cells, strict=True) if rows else ():
        padded = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        yield f"{mark:1} {'  '.join(padded)}".rstrip()
    used = {source for row in rows for source in _sources(row)}
    words = {
        "settings": "your settings",
        "provider": f"the provider's list, {_age(offer.age or 0)} ago",
        "data": data_version(),
        "family": "Toolrest's table of families",
    }
    notes = [f"{_MARKS[source]} {text}" for source, text in words.items() if source in used]
    if notes:
        yield "Dollars for a million tokens; requests of more than ↑ tokens cost more."
        yield "  ".join(notes)


def _cells(row: ModelFacts) -> tuple[str, str, str, str]:
    window, price, efforts = (_MARKS.get(source or "", "") for source in _sources(row))
    return (
        row.model,
        f"{_tokens(row.window)}{window}",
        f"{_dollars(row.price)}{price}",
        f"{' '.join(row.efforts) or _UNKNOWN}{efforts}",
    )


def _sources(row: ModelFacts) -> tuple[Source | None, Source | None, Source | None]:
    return row.window_source, row.price_source, row.efforts_source


def _dollars(price: Price | None) -> str:
    if price is None:
        return _UNKNOWN
    cached = _UNKNOWN if price.cached_input is None else f"{price.cached_input:g}"
    long = f" ↑{_tokens(price.long_above)}" if price.long else ""
    return f"{price.input:g} / {cached} / {price.output:g}{long}"


def _tokens(count: int | None) -> str:
    if count is None:
        return _UNKNOWN
    return f"{count / 1_000_000:.3g}M" if count >= 1_000_000 else f"{round(count / 1000)}k"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _as_json(row: ModelFacts) -> dict[str, object]:
    sources = zip(("context_window", "price", "efforts"), _sources(row), strict=True)
    return {
        "id": row.model,
        "context_window": row.window,
        "price": row.price and to_builtins(row.price),
        "efforts": list(row.efforts),
        "sources": {figure: source for figure, source in sources if source},
    }


def _print_providers(config: Config, as_json: bool) -> None:
    rows: list[dict[str, str]] = []
    for name in sorted({*BUILT_IN, *config.value.model_providers}):
        try:
            rows.append(_row(named_provider(config, name)))
        except ConfigError as error:
            problem = error.plain
            rows.append({"provider": name, "wire": "", "url": "", "key": problem})
    if as_json:
        click.echo(dumps(rows))
        return
    current, width = config.value.model_provider, max(len(row["provider"]) for row in rows)
    for row in rows:
        mark = "*" if row["provider"] == current else " "
        line = f"{row['provider']:<{width}}  {row['wire']:<9}  {row['url']}  {row['key']}"
        click.echo(f"{mark} {line}".rstrip())


def _row(provider: Provider) -> dict[str, str]:
    key = f"key from {provider.key_variable}" if provider.key_variable else ""
    if provider.key and not key:
        key = "key stored, or from the settings"
    url = provider.shown_url("").rstrip("/")
    return {"provider": provider.id, "wire": provider.wire, "url": url, "key": key}
