"""Check of one settings layer: from raw tables to checked values, with hints at the key meant."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin

from toolrest.config.keys import (
    Key,
    find,
    flatten,
    format_key,
    looks_secret,
    parse_key,
    toml_text,
    too_deep,
)
from toolrest.config.schema.aliases import ALIASES, PENDING_KEYS, SWITCHES, pending_in
from toolrest.config.schema.settings import Settings
from toolrest.config.schema.table import SettingProblem, Table, TableError
from toolrest.config.schema.types import APPROVAL_PRESETS, NOT_EMPTY, SHELL_SPELLINGS
from toolrest.config.schema.validate import check_table
from toolrest.errors import ConfigError

LayerKind: TypeAlias = Literal[
    "default", "user", "project", "profile", "environment", "flags", "override"
]

USER_FILE_ONLY = frozenset({"projects", "profiles"})
_PATH_LISTS = (("sandbox_workspace_write", "writable_roots"), ("read_roots",))
_GLOB_LISTS = (("hidden_paths",), ("paths", "unhide"))
_AUDIT = ("tool_security", "audit_log_path")
"""A path whose trailing `/` means a folder, so it is kept."""
_PATHS = (_AUDIT, ("model_instructions_file",))


class LayerSource(NamedTuple):
    """The source of a layer: its kind, its name in messages, and what paths are relative to.

    Without a `folder` a relative path is an error: its meaning would depend on where Toolrest
    was started. `home` is what `~` stands for.
    """

    kind: LayerKind
    label: str
    folder: str | None = None
    home: str = "~"


class Layer(NamedTuple):
    """Checked values by path. `labels` names a value's source where the layer's is too coarse."""

    kind: LayerKind
    label: str
    values: dict[Key, Any]
    labels: Mapping[Key, str] = MappingProxyType({})
    profiles: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    def source(self, key: Key) -> str:
        """Source of the value in this layer."""
        return self.labels.get(key, self.label)


def check_layer(raw: Mapping[str, Any], place: LayerSource) -> Layer:
    """The checked values of one layer; ConfigError for the first that cannot be honoured."""
    if not raw:
        return Layer(place.kind, place.label, {})
    if too_deep(raw):
        raise ConfigError(f"{place.label}: tables are nested deeper than any setting is")
    for name in USER_FILE_ONLY & raw.keys():
        if place.kind != "user":
            raise ConfigError(f"{place.label}: {name} can only be set in the user's config.toml")
    if place.kind == "profile" and "profile" in raw:
        raise ConfigError(f"{place.label}: a profile cannot choose another profile")
    table, spelled = _resolve_aliases(raw, place)
    _refuse_pending(table, spelled, place)
    try:
        settings = check_table(Settings, table)
    except TableError as error:
        raise ConfigError(_explain(error, spelled, place)) from None
    values = flatten(settings.as_dict(set_only=True))
    _expand_paths(values, place)
    if place.kind == "user":
        _check_profiles(settings.profiles, place)
    labels = {
        key: f"{place.label} ({format_key(as_written)})" for key, as_written in spelled.items()
    }
    return Layer(place.kind, place.label, values, labels, settings.profiles)


def _resolve_aliases(
    raw: Mapping[str, Any], place: LayerSource
) -> tuple[dict[str, Any], dict[Key, Key]]:
    """The tables with aliases replaced by their settings, and how each alias was written."""
    table = _copy_tables(raw)
    spelled: dict[Key, Key] = {}
    for written, target in ALIASES.items():
        parent = find(table, written[:-1]) if len(written) > 1 else table
        if not isinstance(parent, dict) or written[-1] not in parent:
            continue
        value = parent.pop(written[-1])
        if written in SWITCHES:
            if not isinstance(value, bool):
                raise ConfigError(_mismatch(place, written, "true or false", value))
            value = SWITCHES[written][value]
        home: Any = table
        for part in target[:-1]:
            home = home.setdefault(part, {}) if isinstance(home, dict) else None
        name = target[-1]
        if not isinstance(home, dict):
            continue  # The wrong type of the table itself is reported by the model.
        if name in home and _canonical(home[name]) != _canonical(value):
            other = spelled.get(target, target)
            raise ConfigError(
                f"{place.label}: {format_key(other)} = {toml_text(home[name])} and "
                f"{format_key(written)} = {toml_text(find(raw, written))} set the same thing "
                "differently; keep one of them"
            )
        if name not in home:
            home[name] = value
            spelled[target] = written
    _drop_tool_config(table, place)
    return table, spelled


def _drop_tool_config(table: dict[str, Any], place: LayerSource) -> None:
    """Remove `[tool_config]`: all its keys are aliases; keys left by now are unknown."""
    left = table.pop("tool_config", {})
    if not isinstance(left, dict):
        raise ConfigError(_mismatch(place, ("tool_config",), "a table", left))
    if left:
        raise ConfigError("\n".join(_unknown_line(place, ("tool_config", name)) for name in left))


def _copy_tables(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy_tables(v) if isinstance(v, Mapping) else v for k, v in raw.items()}


def _canonical(value: Any) -> Any:
    return (
        (APPROVAL_PRESETS | SHELL_SPELLINGS).get(value, value) if isinstance(value, str) else value
    )


def _refuse_pending(table: dict[str, Any], spelled: Mapping[Key, Key], place: LayerSource) -> None:
    waiting = pending_in(table)
    if waiting is None:
        return
    key, feature = waiting
    written = format_key(spelled.get(key, key))
    if place.kind == "project":
        raise ConfigError(f"{place.label}: a project's file may not set {written}")
    value = find(table, key)
    shown = f" = {toml_text(value)}" if isinstance(value, str | bool) else ""
    raise ConfigError(
        f"{place.label}: {written}{shown} is known but not available yet: {feature}; remove it"
    )


def _check_profiles(profiles: Mapping[str, Any], place: LayerSource) -> None:
    for name, raw in profiles.items():
        label = f"{place.label} ({format_key(('profiles', name))})"
        check_layer(raw, LayerSource("profile", label, place.folder, place.home))


def _explain(error: TableError, spelled: Mapping[Key, Key], place: LayerSource) -> str:
    lines: dict[str, None] = {}
    for problem in error.problems:
        path = tuple(part for part in problem.path if isinstance(part, str))
        lines[_problem_line(place, spelled.get(path, path), problem)] = None
    return "\n".join(lines)


def _problem_line(place: LayerSource, key: Key, problem: SettingProblem) -> str:
    if problem.kind == "unknown":
        return _unknown_line(place, key)
    if problem.kind == "missing":
        return f"{place.label}: {format_key(key)} is missing"
    if problem.kind == "refused":
        got = "" if looks_secret(key) else f", got {_shown(key, problem.value)}"
        return f"{place.label}: {format_key(key)}: {problem.text}{got}"
    return _mismatch(place, key, problem.text, problem.value)


_UNNAMED = ("flag", "argument")
"""What was set by the person or program who reads the message; other places are named."""


def _unknown_line(place: LayerSource, key: Key) -> str:
    meant = nearest(key)
    if key[-1].endswith("_ms") and meant and meant.endswith("_sec"):
        return f"{place.label}: {format_key(key)}: times are in seconds here; write {meant}"
    return f"{place.label}: {unknown_key(key)}"


def unknown_key(key: Key) -> str:
    """The message about a key that no setting has, with the one that was probably meant."""
    meant = nearest(key)
    hint = f"; did you mean {meant}?" if meant else "; `toolrest config show --all` lists every key"
    return f"unknown key {format_key(key)}{hint}"


def _mismatch(place: LayerSource, key: Key, expected: str, got: Any) -> str:
    where = "" if place.label in _UNNAMED else f"{place.label}: "
    if got == "" and expected == NOT_EMPTY:
        return f"{where}{format_key(key)} is empty"
    if expected.startswith("one of ") and isinstance(got, str) and not looks_secret(key):
        choices = expected.removeprefix("one of ").replace("'", "")
        value = got if len(got) <= 40 else got[:40] + "…"
        return f"{where}no {format_key(key)} {value!r}; choose {choices}"
    hint = ""
    if place.kind == "override" and expected == "a text in quotes":
        hint = f"; to pass it as a text write -c {format_key(key)}='\"…\"'"
    if expected == "a list" and isinstance(got, str):
        expected = 'a list like ["a", "b"]'
    return f"{where}{format_key(key)}: expected {expected}, got {_shown(key, got)}{hint}"


def _shown(key: Key, value: Any) -> str:
    if looks_secret(key):
        return "a value that is not shown"
    if isinstance(value, bool | int | float):
        return toml_text(value)[:40]
    if isinstance(value, str):
        return "the text " + toml_text(value if len(value) <= 40 else value[:40] + "…")
    if isinstance(value, list | tuple):
        return "a list"
    return "a table" if isinstance(value, Mapping) else f"a {type(value).__name__}"


def _expand_paths(values: dict[Key, Any], place: LayerSource) -> None:
    for key in _PATH_LISTS:
        if values.get(key) is not None:
            values[key] = tuple(_absolute(item, key, place) for item in values[key])
    for key in _PATHS:
        if values.get(key) is not None:
            values[key] = _absolute(values[key], key, place)
    for key in _GLOB_LISTS:
        if values.get(key):
            values[key] = tuple(expand_user(glob, place.home) for glob in values[key])


def _absolute(path: str, key: Key, place: LayerSource) -> str:
    if "\0" in path:
        raise ConfigError(f"{place.label}: {format_key(key)}: a path cannot hold a NUL character")
    expanded = expand_user(path, place.home)
    folder = os.sep if expanded.endswith(os.sep) and key == _AUDIT else ""
    if os.path.isabs(expanded):
        return os.path.normpath(expanded) + folder
    if place.folder is None or expanded.startswith("~"):
        raise ConfigError(
            f"{place.label}: {format_key(key)}: {toml_text(path)} is relative; "
            "write the whole path or start it with ~/"
        )
    return os.path.normpath(os.path.join(place.folder, expanded)) + folder


def expand_user(path: str, home: str) -> str:
    """`~` and `~/x` in the given home, `~name` in that user's; unknown users stay as written."""
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    return os.path.expanduser(path) if path.startswith("~") else path


ANY = "*"
"""Placeholder of a name that the user chooses, as in `tools.limits.*`."""


@cache
def known_keys() -> frozenset[Key]:
    """Every path a file may hold, tables included; names that users choose are `*`."""
    paths = {*_model_keys(Settings, ()), *ALIASES, *(parse_key(k) for k in PENDING_KEYS)}
    return frozenset(path[:end] for path in paths for end in range(1, len(path) + 1))


def _model_keys(model: type[Table], prefix: Key) -> Iterator[Key]:
    for name, kind in model.fields().items():
        path = (*prefix, name)
        yield path
        yield from _inner_keys(kind, path)


def _inner_keys(kind: Any, path: Key) -> Iterator[Key]:
    if isinstance(kind, type) and issubclass(kind, Table):
        yield from _model_keys(kind, path)
    elif get_origin(kind) is dict:
        yield (*path, ANY)
        yield from _inner_keys(get_args(kind)[1], (*path, ANY))
    elif get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from _inner_keys(member, path)


def pattern_of(key: Key) -> Key | None:
    """The known path that a key is an instance of, or None."""
    known = known_keys()
    pattern: Key = ()
    for name in key:
        exact, chosen = (*pattern, name), (*pattern, ANY)
        if exact not in known and chosen not in known:
            return None
        pattern = exact if exact in known else chosen
    return pattern


def nearest(key: Key) -> str | None:
    """The dotted key that was probably meant, or None."""
    import difflib

    known = known_keys()
    parent = pattern_of(key[:-1]) if len(key) > 1 else ()
    if parent is not None:
        names = [path[-1] for path in known if path[:-1] == parent and path[-1] != ANY]
        if close := difflib.get_close_matches(key[-1], sorted(names), 1, 0.6):
            return format_key((*key[:-1], close[0]))
    plain = sorted((path for path in known if ANY not in path), key=lambda p: (p in ALIASES, p))
    if namesakes := [path for path in plain if path[-1] == key[-1]]:
        return format_key(namesakes[0])
    spelled = difflib.get_close_matches(format_key(key), [format_key(p) for p in plain], 1, 0.7)
    return spelled[0] if spelled else None
