"""Layers of settings: merge them, and make those of `-c`, flags and environment variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from toolrest.config.keys import Key, format_key, parse_key, quote, toml_text
from toolrest.config.layer_check import Layer, LayerSource, check_layer
from toolrest.config.schema.families import ShellForm
from toolrest.config.schema.types import SHELL_SPELLINGS, FileTool
from toolrest.errors import ConfigError

UNITED: frozenset[Key] = frozenset(
    {
        ("hidden_paths",),
        ("tools", "disabled"),
        ("redact", "patterns"),
        ("redact", "names"),
        ("hooks", "PreToolUse"),
        ("hooks", "PostToolUse"),
        ("hooks", "PermissionRequest"),
        ("hooks", "SessionStart"),
        ("hooks", "Stop"),
        ("rules", "prefix_rules"),
    }
)
"""Lists that deny, hide or protect: joined over all layers, never replaced."""

CEILINGS: frozenset[Key] = frozenset(
    {
        ("max_parallel_calls",),
        ("max_calls_per_session",),
        ("tool_security", "max_file_access_size"),
        ("tool_security", "max_shell_commands_per_session"),
        ("agents", "max_agents"),
    }
)
"""Ceilings: the lowest value of any layer counts."""


class Merged(NamedTuple):
    """The values that count, the source of each, and warnings."""

    values: dict[Key, Any]
    sources: dict[Key, str]
    warnings: list[str]


def merge(layers: Sequence[Layer]) -> Merged:
    """One set of values from layers given lowest first."""
    merged = Merged({}, {}, [])
    for layer in layers:
        for key, value in layer.values.items():
            _put(merged, key, value, layer.source(key))
    return merged


def _put(merged: Merged, key: Key, value: Any, source: str) -> None:
    old = merged.values.get(key)
    if key in UNITED and old:
        added = tuple(item for item in value if item not in old)
        if added:
            merged.values[key] = (*old, *added)
            merged.sources[key] += f" + {source}"
        return
    if key in CEILINGS and old is not None and old < value:
        merged.warnings.append(
            f"{format_key(key)} = {toml_text(value)} ({source}) is above the ceiling "
            f"{toml_text(old)} ({merged.sources[key]}); the lower one counts"
        )
        return
    if key[0] == "approvals" and old == "deny" != value:
        merged.warnings.append(
            f"{format_key(key)} = {toml_text(value)} ({source}) does not take back "
            f'"deny" ({merged.sources[key]}): a denial counts from any layer'
        )
        return
    merged.values[key] = value
    merged.sources[key] = source


def override_layer(overrides: Sequence[str], place: LayerSource) -> Layer:
    """The layer of `-c KEY=VALUE`; of the same key the last one counts."""
    raw: dict[str, Any] = {}
    for text in overrides:
        dotted, equals, value = text.partition("=")
        if not equals or not dotted.strip():
            raise ConfigError(f"-c {toml_text(text[:80])}: write it as KEY=VALUE")
        _set_in(raw, parse_key(dotted.strip()), parse_value(value), place)
    return check_layer(raw, place)


def flags_layer(flags: Mapping[str, Any], place: LayerSource) -> Layer:
    """The layer of settings given as nested tables or by dotted key; None means not given."""
    raw: dict[str, Any] = {}
    for dotted, value in flags.items():
        if value is not None:
            _set_in(raw, parse_key(dotted), _without_none(value), place)
    return check_layer(raw, place)


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return value


def parse_value(text: str) -> Any:
    """A value as TOML, or the text itself where it is not TOML (`-c model=gpt-5`)."""
    import tomllib

    try:
        parsed = tomllib.loads(f"value = {text.strip()}")
    except (ValueError, RecursionError):
        return text.strip().strip("\"'")
    return parsed["value"] if parsed.keys() == {"value"} else text.strip().strip("\"'")


def _set_in(raw: dict[str, Any], key: Key, value: Any, place: LayerSource) -> None:
    table = raw
    for depth, name in enumerate(key[:-1], 1):
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ConfigError(
                f"{place.label}: {format_key(key[:depth])} is set to a value and used as a table"
            )
    if isinstance(value, Mapping) and isinstance(table.get(key[-1]), dict):
        for name, inner in value.items():
            _set_in(table[key[-1]], (name,), inner, place)
    else:
        table[key[-1]] = dict(value) if isinstance(value, Mapping) else value


PREFIX, OLD_PREFIX = "TOOLREST_", "MEMO_"
_SWITCH = {"1": True, "true": True, "yes": True, "on": True}
_SWITCH |= {"0": False, "false": False, "no": False, "off": False}


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text) > 0):
        raise ValueError("a whole number of at least 1")
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError("1 or 0")
    return _SWITCH[text.lower()]


def _shell_form(text: str) -> str:
    form = SHELL_SPELLINGS.get(text, text)
    if form not in get_args(ShellForm):
        raise ValueError("one of " + ", ".join(get_args(ShellForm)))
    return form


def _file_tools(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or not set(names) <= set(get_args(FileTool)):
        raise ValueError("a comma-separated list of " + ", ".join(get_args(FileTool)))
    return names


class Variable(NamedTuple):
    """A variable's name without its prefix, its setting, and the parser of its text."""

    name: str
    key: Key
    parse: Callable[[str], Any]


VARIABLES = (
    Variable("TOOL_RESULT_MAX_CHARS", ("tool_result_max_chars",), _count),
    Variable("EXPERIMENTAL_TOOLS", ("tools", "experimental_tools"), _file_tools),
    Variable("SHELL_TOOL_TYPE", ("tools", "shell_type"), _shell_form),
    Variable("ENABLE_COLLAB_TOOLS", ("tools", "include_collab_tools"), _switch),
    Variable("ENABLE_MEMORY_TOOL", ("tools", "include_memory_tool"), _switch),
    Variable("SUBAGENT_MAX_AGENTS", ("agents", "max_agents"), _count),
)


def environment_layer(env: Mapping[str, str]) -> Layer:
    """The settings among the variables; an empty one counts as unset, `MEMO_*` as the old name."""
    values: dict[Key, Any] = {}
    labels: dict[Key, str] = {}
    for variable in VARIABLES:
        for name in (PREFIX + variable.name, OLD_PREFIX + variable.name):
            text = env.get(name, "").strip()
            if not text:
                continue
            try:
                values[variable.key] = variable.parse(text)
            except ValueError as error:
                raise ConfigError(
                    f"environment variable {name}: expected {error}, got {quote(text[:40])}"
                ) from None
            labels[variable.key] = f"environment variable {name}"
            break
    return Layer("environment", "environment", values, labels)
