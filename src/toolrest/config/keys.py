"""Keys of settings: dotted keys, and nested tables flattened and nested again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from toolrest.errors import ConfigError

Key: TypeAlias = tuple[str, ...]

MAX_DEPTH = 12
"""Deepest nesting of a setting; a deeper file could exhaust memory."""

# Not compiled here: most starts need none of these.
_TELLTALE = r"key|secret|token|passw|credential|auth|bearer"
_NEVER_SECRET = frozenset(
    {
        "tool_output_token_limit",
        "model_auto_compact_token_limit",
        "model_max_output_tokens",
        "max_tokens",
        "first_token_timeout_ms",
        "oauth_callback_port",
        "oauth_credentials_store",
        "keys",
        "env_key",
        "env_key_instructions",
        "requires_openai_auth",
    }
)
_HEADERS = frozenset({"http_headers", "query_params"})
_BARE = r"[A-Za-z0-9_-]+"
_BARE_DOTTED = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*"


def parse_key(dotted: str) -> Key:
    """The path that a dotted key names; segments may be quoted as in TOML."""
    if re.fullmatch(_BARE_DOTTED, dotted):
        return tuple(dotted.split("."))
    path: list[str] = []
    if "\n" not in dotted and "=" not in _unquoted(dotted):
        table = _parse_assignment(f"{dotted} = 0")
        while isinstance(table, dict) and len(table) == 1:
            (segment, table) = next(iter(table.items()))
            path.append(segment)
    if not path or len(path) > MAX_DEPTH:
        raise ConfigError(
            f"{quote(dotted[:80])} is not a key: write it like tools.limits.read_file, "
            'with quotes around what has dots or spaces (projects."/a/b.c".trust_level)'
        )
    return tuple(path)


def _unquoted(text: str) -> str:
    return re.sub(r"\"(\\.|[^\"\\])*\"|'[^']*'", "", text)


def _parse_assignment(line: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(line)
    except (ValueError, RecursionError):
        return None


def quote(text: str) -> str:
    """A text in double quotes that cannot disturb a terminal."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def format_key(key: Key) -> str:
    """The dotted spelling of a path, quoted where TOML asks for it."""
    return ".".join(part if re.fullmatch(_BARE, part) else quote(part) for part in key)


def flatten(table: Mapping[str, Any], prefix: Key = ()) -> dict[Key, Any]:
    """Every leaf of nested tables by its path; lists are leaves."""
    return dict(_leaves(table, prefix))


def _leaves(table: Mapping[str, Any], prefix: Key) -> Iterator[tuple[Key, Any]]:
    for name, value in table.items():
        path = (*prefix, name)
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        else:
            yield path, value


def nest(leaves: Mapping[Key, Any]) -> dict[str, Any]:
    """The nested tables that hold these leaves."""
    root: dict[str, Any] = {}
    for path, value in leaves.items():
        table = root
        for name in path[:-1]:
            table = table.setdefault(name, {})
        table[path[-1]] = value
    return root


def find(table: Mapping[str, Any], key: Key) -> Any:
    """The value at a path, or None when there is nothing."""
    value: Any = table
    for name in key:
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value


def too_deep(value: Any, room: int = MAX_DEPTH) -> bool:
    """True when tables or lists are nested deeper than any setting is."""
    if room < 0:
        return True
    if isinstance(value, Mapping):
        return any(too_deep(item, room - 1) for item in value.values())
    if isinstance(value, list | tuple):
        return any(too_deep(item, room - 1) for item in value)
    return False


def looks_secret(key: Key) -> bool:
    """Whether a value must not be shown: by its name, or because a pattern is often the secret."""
    if key[:2] == ("redact", "patterns") or (len(key) > 1 and key[-2] in _HEADERS):
        return True
    return key[-1] not in _NEVER_SECRET and bool(re.search(_TELLTALE, key[-1], re.IGNORECASE))


def toml_text(value: Any) -> str:
    """A value as TOML would write it; None, which TOML lacks, is `unset`."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_text(item) for item in value) + "]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{format_key((k,))} = {toml_text(v)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return str(value)
