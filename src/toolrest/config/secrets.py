"""Secrets: variables and settings that hold keys of model providers and tokens of MCP servers.

One list of secret names, and of what secret values look like, serves the environment policy and
redaction.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

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
        for options in (row.request, *row.models.values()):
            for secret in secrets_in(options.extra_body):
                values[f"{name}_{len(values)}_BODY_KEY"] = secret
    return values


def secrets_in(value: Any, *, named: bool = False) -> Iterator[str]:
    """The secrets in a JSON value: tokens, and texts whose name ends like that of a secret."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from secrets_in(inner, named=named or _FIELD.search(key) is not None)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from secrets_in(inner, named=named)
    elif isinstance(value, str) and (named or is_secret_value(value)):
        yield value.removeprefix("Bearer ")


_FIELD = re.compile(
    r"(?:key|secret|token|passw(?:or)?d|passphrase|credentials?|auth(?:orization)?|bearer)$", re.I
)
"""The end of a secret's name in a request: `api_key`, not `tokenizer` or `author`."""


def server_variables(settings: Settings) -> tuple[str, ...]:
    """Names of the variables that hold MCP servers' tokens."""
    names: dict[str, None] = {}
    for row in settings.mcp_servers.values():
        for name in (row.bearer_token_env_var, row.oauth_client_secret_env_var):
            if name is not None:
                names[name] = None
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
    "*_PASS",
    "*_PWD",
    "*_DSN",
    "*DATABASE_URL",
    "SSHPASS",
    "REDISCLI_AUTH",
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


_WORD = r"(?=[\w-]{0,100}[0-9])(?=[\w-]{0,100}[A-Z])(?=[\w-]{0,100}[a-z])[\w-]"
_AWS = r"(?=[A-Z]{0,15}[0-9])[A-Z0-9]{16}(?![A-Za-z0-9])"
_SLACK = r"-(?=[A-Za-z-]{0,60}[0-9])[A-Za-z0-9-]{10,255}"
_KEY_KIND = r"(?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY-----"
_REMOVED = r"(?:(?<=\n)|(?<=\\n))-"
"""The mark of a removed line in a diff."""
# Without possessive repeats: before 3.11.5 Python found no match where one is in another.
_KEY_LINES = rf"(?:(?:\\[rn]|[\s\"'+,]|{_REMOVED})*[A-Za-z0-9+/=]{{16,100}})+"
_WHOLE_KEY = (
    r"(?=[\s\S]{0,400}?[A-Za-z0-9+/]{40})(?:[^-]|-(?!----)){0,16384}"
    rf"(?:{_REMOVED})?-----END {_KEY_KIND}"
)
TOKENS: dict[str, str] = {
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9]{36,255}"),
    "github_pat_": r"[A-Za-z0-9_]{50,255}",
    **dict.fromkeys(("glpat-", "glrt-", "gldt-"), _WORD + "{20,255}"),
    "hf_": r"[A-Za-z0-9]{34}(?!\w)",
    "gsk_": r"[A-Za-z0-9]{52}(?!\w)",
    "xai-": r"[A-Za-z0-9]{80}(?!\w)",
    "pplx-": r"[A-Za-z0-9]{40,64}(?!\w)",
    "nvapi-": _WORD + "{60,80}",
    "r8_": r"[A-Za-z0-9]{37}(?!\w)",
    "dckr_pat_": r"[\w-]{27}(?![\w-])",
    "GOCSPX-": r"[\w-]{28}(?![\w-])",
    "ya29.": _WORD + "{40,2000}",
    "shpat_": r"[0-9a-f]{32}(?!\w)",
    "AGE-SECRET-KEY-1": r"[0-9A-Z]{58}(?!\w)",
    "AKIA": _AWS,
    "ASIA": _AWS,
    "sk-or-v1-": rf"(?:[0-9a-f]{{32,64}}(?![\w-])|{_WORD}{{20,255}})",
    "sk-": rf"(?:[0-9a-f]{{32,64}}(?![\w-])|{_WORD}{{20,255}})",
    "xox": "[abeprs]" + _SLACK,
    "xapp": _SLACK,
    "AIza": r"[\w-]{35}(?![\w-])",
    **dict.fromkeys(("sk_live_", "rk_live_"), r"[A-Za-z0-9]{20,255}"),
    **dict.fromkeys(("hvs.", "hvb.", "hvr."), r"[\w-]{24,255}"),
    **dict.fromkeys(("dop_v1_", "doo_v1_", "dor_v1_"), r"[0-9a-f]{64}(?!\w)"),
    "SG.": r"[\w-]{16,32}\.[\w-]{32,64}(?![\w-])",
    **dict.fromkeys(("lin_api_", "lin_oauth_"), r"[A-Za-z0-9]{32,64}(?!\w)"),
    "ntn_": r"[A-Za-z0-9]{40,64}(?!\w)",
    "secret_": r"[A-Za-z0-9]{43}(?!\w)",
    "figd_": r"[\w-]{40,64}(?![\w-])",
    "dapi": r"[0-9a-f]{32}(?:-\d)?(?!\w)",
    "npm_": r"[A-Za-z0-9]{36}(?!\w)",
    "pypi-AgEI": r"[\w-]{50,255}",
    "eyJ": r"[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{20,1000}",
    "-----BEGIN ": rf"{_KEY_KIND}(?:{_WHOLE_KEY}|{_KEY_LINES})",
}
"""Prefixes of tokens, and the pattern that must follow."""
_EQUALS = r"[\"']?\s{0,4}[=:]\s{0,4}[\"']?"
_AWS_SECRET = (
    _EQUALS + r"([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    r"[\"']?\s{0,4}(?:[=:]\s{0,4}[\"']?)?[A-Za-z0-9/+]{0,40}",
)
_SCHEME = r"(?:[Bb]earer|[Bb]asic|[Tt]oken)\s{1,4}"
_HEADER = (
    _EQUALS + _SCHEME + r"((?=[\w.~+/=-]{0,200}[0-9])[\w.~+/=-]{16,4096})",
    r"[\"']?\s{0,4}(?:[=:]\s{0,4}[\"']?)?(?:[A-Za-z]{0,6}|" + _SCHEME + r"[\w.~+/=-]{0,4096})",
)
LEADS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"), _AWS_SECRET),
    "SecretAccessKey": _AWS_SECRET,
    **dict.fromkeys(("Authorization", "authorization", "AUTHORIZATION"), _HEADER),
    "hooks.slack.com/": (
        r"(?:services|workflows|triggers)/([\w/]{20,200})",
        r"[a-z]{0,10}|(?:services|workflows|triggers)/[\w/]{0,200}",
    ),
    "://": (
        r"[^\s/?#:@]{0,256}:((?![$<{*]|\.\.\.|%[sd])[^\s/?#@]{2,512})@",
        r"[^\s/?#:@]{0,256}(?::[^\s/?#@]{0,512})?",
    ),
}
"""Words that stand before a secret without a shape of its own: the pattern that must follow, whose
group is the secret, and the one of a text that may still become that."""
SHORTEST_TOKEN = len("://:pw@")
IN_TOKENS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_BEFORE = frozenset(IN_TOKENS) - {"."}
LOOK_BACK = 3
"""Characters before a text that say whether a token may begin with it."""
# Only looked at behind `://`, so it takes no longer for a long text.
_URL_PASSWORD = re.compile(r"(?<=://)[^\s/?#:@]{0,256}:([^\s/?#@]{1,512})@")


@cache
def token_beginnings() -> re.Pattern[str]:
    """What every token of a well-known shape begins with."""
    return re.compile("|".join(map(re.escape, (*TOKENS, *LEADS))))


@cache
def _token(prefix: str) -> re.Pattern[str]:
    return re.compile(TOKENS.get(prefix) or LEADS[prefix][0], re.ASCII)


def find_tokens(text: str, before: str = "", until: int | None = None) -> list[tuple[int, int]]:
    """Spans of tokens of well-known shapes, and of what follows one of `LEADS`.

    Those that begin before `until`; `before` is the end of what the text follows on. Linear: a
    place where a token may begin is looked at once, and not much further than its end.
    """
    found: list[tuple[int, int]] = []
    search = token_beginnings().search
    last = len(text) if until is None else until
    next_at = 0
    while (begun := search(text, next_at)) is not None and begun.start() < last:
        at, next_at = begun.end(), begun.start() + 1  # `sk-----BEGIN ` holds two beginnings
        led = begun[0] in LEADS
        if (may_lead if led else may_begin)(text, begun.start(), before):
            match = _token(begun[0]).match(text, at)
            if match is not None:
                # On from its beginning: a key may begin in what looks like the end of a token.
                found.append(match.span(1) if led else (begun.start(), match.end()))
    return found


def may_begin(text: str, at: int, before: str) -> bool:
    """Whether a token may begin here: not in the middle of a word.

    One or two dashes that no word is before are marks of removed lines in a diff.
    """
    if text[at] == "-":
        return True
    lead = (before + text[max(0, at - LOOK_BACK) : at])[-LOOK_BACK:]
    word = lead.rstrip("-")
    if word == lead:
        return lead[-1:] not in _BEFORE
    return word[-1:].isspace() or (not word and len(lead) < LOOK_BACK)


def may_lead(text: str, at: int, before: str) -> bool:
    """Whether a lead may begin here: not behind a letter or digit of the same word."""
    return text[at] == ":" or not (before + text[max(0, at - 1) : at])[-1:].isalnum()


def url_password(value: str) -> str | None:
    """The password in a URL, if there is one."""
    found = _URL_PASSWORD.search(value) if "://" in value else None
    return None if found is None else found[1]


@lru_cache(maxsize=1024)  # the same values come with every command of a session
def is_secret_value(value: str) -> bool:
    """Whether a variable's value looks like a secret: a URL with a password, a token."""
    return url_password(value) is not None or bool(find_tokens(value))
