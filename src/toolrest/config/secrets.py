"""Secrets: variables and settings that hold keys of model providers and tokens of MCP servers.

One list of secret names serves the environment policy and redaction.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache

from toolrest.config.keys import looks_secret
from toolrest.config.schema.settings import Settings


def key_variables(settings: Settings) -> tuple[str, ...]:
    """Names of the variables that hold providers' keys; no child process and no text gets them."""
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


def server_variables(settings: Settings) -> tuple[str, ...]:
    """Names of the variables that hold MCP servers' tokens."""
    names: dict[str, None] = {}
    for row in settings.mcp_servers.values():
        if row.bearer_token_env_var is not None:
            names[row.bearer_token_env_var] = None
        names.update(dict.fromkeys(row.env_http_headers.values()))
    return tuple(names)


def server_values(settings: Settings) -> dict[str, str]:
    """Secrets that are written into the settings themselves, under names that count as secret."""
    values: dict[str, str] = {}
    for server, row in settings.mcp_servers.items():
        for name, value in {**row.env, **row.headers, **row.http_headers}.items():
            if looks_secret((name,)) and "${" not in value:
                values[f"{server}_{name}_KEY"] = value.removeprefix("Bearer ")
    return values


PROVIDER_KEYS: tuple[str, ...] = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AZURE_OPENAI_API_KEY",
    "CEREBRAS_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CODEX_API_KEY",
    "COHERE_API_KEY",
    "DASHSCOPE_API_KEY",
    "DEEPSEEK_API_KEY",
    "FIREWORKS_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GROQ_API_KEY",
    "HF_TOKEN",
    "MISTRAL_API_KEY",
    "MOONSHOT_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "TOGETHER_API_KEY",
    "TOOLREST_API_KEY",
    "XAI_API_KEY",
)
"""Variables with keys of well-known model providers: no child process ever needs these."""

SECRET_NAMES: tuple[str, ...] = (
    "*KEY*",
    "*SECRET*",
    "*TOKEN*",
    "*PASSWORD*",
    "*PASSWD*",
    "*PASSPHRASE*",
    "*CREDENTIAL*",
    "*_PAT",
    "BW_SESSION",
    "*_AUTH_SOCK",
    "DOCKER_HOST",
    "DBUS_*",
    *PROVIDER_KEYS,
)
"""Globs over variable names, matched whole and without regard to case."""


def is_secret_name(name: str, patterns: Iterable[str] = SECRET_NAMES) -> bool:
    """Whether a variable of this name counts as secret."""
    return _matcher(tuple(patterns)).match(name) is not None


@lru_cache(maxsize=32)
def _matcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    if not patterns:
        return re.compile(r"(?!)")
    return re.compile("|".join(fnmatch.translate(glob) for glob in patterns), re.IGNORECASE)
