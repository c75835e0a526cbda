"""Which variables hold secrets, by name: one list for the environment and for redaction."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache

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
"""What pays for the model itself: no child process ever needs these."""

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
    """Say whether a variable of this name counts as secret."""
    return _matcher(tuple(patterns)).match(name) is not None


@lru_cache(maxsize=32)
def _matcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    if not patterns:
        return re.compile(r"(?!)")
    return re.compile("|".join(fnmatch.translate(glob) for glob in patterns), re.IGNORECASE)
