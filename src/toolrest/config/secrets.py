"""What pays for the models: the variables and the settings that hold providers' keys."""

from __future__ import annotations

from toolrest.config.keys import looks_secret
from toolrest.config.schema.settings import Settings


def key_variables(settings: Settings) -> tuple[str, ...]:
    """Names of the variables that the providers' rows read; no child and no text gets them."""
    names: dict[str, None] = {}
    for row in settings.model_providers.values():
        if row.env_key is not None:
            names[row.env_key] = None
        names.update(dict.fromkeys(row.env_http_headers.values()))
    return tuple(names)


def key_values(settings: Settings) -> dict[str, str]:
    """Keys that are written into the settings themselves, under names that count as secret."""
    values: dict[str, str] = {}
    for name, row in settings.model_providers.items():
        if row.experimental_bearer_token is not None:
            values[f"{name}_BEARER_TOKEN"] = row.experimental_bearer_token
        for header, value in row.http_headers.items():
            if not looks_secret((header,)):
                continue  # an address in HTTP-Referer is nothing to hide everywhere else
            values[f"{name}_{header}_HEADER_KEY"] = value.removeprefix("Bearer ")
    return values
