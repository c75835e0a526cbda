"""`toolrest models`: the models of a provider, and the providers."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from toolrest.cli.options import config_option, profile_option
from toolrest.cli.terminal.progress import progress
from toolrest.config.loader import load
from toolrest.errors import ConfigError
from toolrest.wire.items.encode import dumps
from toolrest.wire.model import ModelError
from toolrest.wire.model_list import ListedModel
from toolrest.wire.presets import BUILT_IN
from toolrest.wire.providers import list_models, named_provider, provider_for

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.wire.provider import Provider


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
    """List the models of PROVIDER, or of the one that the settings name.

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
    provider = provider_for(config)
    try:
        with progress(f"asking {provider.name} for its models"):
            found = asyncio.run(list_models(provider))
    except ModelError as error:
        click.echo(f"toolrest: {error}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(dumps([row._asdict() for row in found]))
        return
    if not found:
        click.echo(f"toolrest: {provider.name} lists no models", err=True)
    _print_rows(found, config.value.model)


def _print_rows(found: list[ListedModel], chosen: str | None) -> None:
    width = max((len(row.id) for row in found), default=0)
    for row in found:
        window = f"{row.context_window:,} tokens" if row.context_window else ""
        mark = "*" if row.id == chosen else " "
        click.echo(f"{mark} {row.id:<{width}}  {window}".rstrip())


def _print_providers(config: Config, as_json: bool) -> None:
    rows: list[dict[str, str]] = []
    for name in sorted({*BUILT_IN, *config.value.model_providers}):
        try:
            rows.append(_row(named_provider(config, name)))
        except ConfigError as error:
            problem = str(error).split(". ")[0]
            rows.append({"provider": name, "wire": "", "url": "", "key": problem})
    if as_json:
        click.echo(dumps(rows))
        return
    current = config.value.model_provider
    for row in rows:
        mark = "*" if row["provider"] == current else " "
        line = f"{row['provider']:<12}  {row['wire']:<9}  {row['url']}  {row['key']}"
        click.echo(f"{mark} {line}".rstrip())


def _row(provider: Provider) -> dict[str, str]:
    key = f"key from {provider.key_variable}" if provider.key_variable else ""
    if provider.key and not key:
        key = "key stored, or from the settings"
    url = provider.shown_url("").rstrip("/")
    return {"provider": provider.id, "wire": provider.wire, "url": url, "key": key}
