"""The provider that the settings mean, and its address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolrest.errors import ConfigError
from toolrest.urls import parse_url
from toolrest.wire.presets import BUILT_IN, BuiltIn, placeholders

if TYPE_CHECKING:
    from toolrest.config import Config, Settings


def provider_name(config: Config) -> str:
    """The name of the settings' provider; an unset one is Anthropic for a Claude model."""
    if config.source("model_provider") == "default" and _is_claude(config.value.model):
        return "anthropic"
    return config.value.model_provider


def _is_claude(model: str | None) -> bool:
    return model is not None and model.strip().lower().startswith("claude")


def provider_address(settings: Settings, name: str, env: Mapping[str, str]) -> str:
    """The address of a provider by its name; ConfigError names what is missing."""
    row = settings.model_providers.get(name)
    return _checked((row and row.base_url) or _address(name, BUILT_IN.get(name), env), name)


def _address(name: str, built_in: BuiltIn | None, env: Mapping[str, str]) -> str:
    if built_in is None:
        raise ConfigError(f"model_providers.{name}.base_url is not set")
    variable = built_in.address_variable
    value = env.get(variable, "").strip().rstrip("/") if variable else ""
    if not value:
        return _filled(name, built_in.base_url, env)
    if name == "ollama":
        return _ollama(value)
    # Anthropic's own tools leave the version out of this variable.
    return f"{value}/v1" if name == "anthropic" and not value.endswith("/v1") else value


def _filled(name: str, template: str, env: Mapping[str, str]) -> str:
    """A preset's address with the variables in it; ConfigError names one that is not set."""
    for variable in placeholders(template):
        value = env.get(variable, "").strip().rstrip("/")
        if not value:
            raise ConfigError(
                f"the address of {name} is not known",
                hints=(
                    f"Set {variable} or model_providers.{name}.base_url ({template}), or run "
                    "`toolrest setup`.",
                ),
            )
        if not (template.startswith(f"{{{variable}}}") or re.fullmatch(r"[\w-]+", value)):
            raise ConfigError(f"{variable} is no part of the address of {name}: {value!r}")
        template = template.replace(f"{{{variable}}}", value)
    return template


def _ollama(host: str) -> str:
    if "://" not in host:
        host = f"http://{host}"
    host = host.replace("//0.0.0.0", "//127.0.0.1")
    scheme, _, place = host.partition("://")
    if ":" not in place.rpartition("]")[2]:
        place += ":11434"
    return f"{scheme}://{place}/v1"


def _checked(base_url: str, name: str) -> str:
    try:
        parse_url(base_url)
        if any(char <= " " for char in base_url):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"model_providers.{name}.base_url: expected an http:// or https:// address"
        ) from None
    return base_url
