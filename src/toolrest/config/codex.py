"""Import of Codex's and Memo Code's settings: those that Toolrest has, and why not the others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import tomlkit

from toolrest.config.files import read_toml, user_home
from toolrest.config.keys import Key, flatten, format_key, nest
from toolrest.config.layer_check import LayerSource, check_layer, pattern_of
from toolrest.config.schema.aliases import PENDING_KEYS
from toolrest.errors import ConfigError

_PROFILE_FILE = ".config.toml"
_ROOTS = "sandbox_workspace_write"

_SAME = (
    "compact_prompt",
    "developer_instructions",
    "hide_agent_reasoning",
    "model_auto_compact_token_limit",
    "model_context_window",
    "model_instructions_file",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "notify",
    "project_doc_fallback_filenames",
    "project_doc_max_bytes",
    "project_root_markers",
    "show_raw_agent_reasoning",
)

TAKEN: dict[Key, Key] = {
    ("model",): ("model",),
    ("profile",): ("profile",),
    ("model_provider",): ("model_provider",),
    ("approval_policy",): ("approval_policy",),
    ("sandbox_mode",): ("sandbox_mode",),
    (_ROOTS, "writable_roots"): (_ROOTS, "writable_roots"),
    (_ROOTS, "network_access"): (_ROOTS, "network_access"),
    (_ROOTS, "exclude_tmpdir_env_var"): (_ROOTS, "exclude_tmpdir_env_var"),
    (_ROOTS, "exclude_slash_tmp"): (_ROOTS, "exclude_slash_tmp"),
    ("tool_output_token_limit",): ("tool_output_token_limit",),
    **{(key,): (key,) for key in _SAME},
    ("include_apply_patch_tool",): ("tools", "include_apply_patch_tool"),
    ("tools", "view_image"): ("tools", "include_view_image_tool"),
    ("tools", "update_plan", "enabled"): ("tools", "include_plan_tool"),
    ("features", "unified_exec"): ("tools", "use_experimental_streamable_shell_tool"),
    ("experimental_use_unified_exec_tool",): ("tools", "use_experimental_streamable_shell_tool"),
}
"""Codex's key and ours."""
MEMO: dict[Key, Key] = {("active_mcp_servers",): ("active_mcp_servers",)}
"""Memo Code's key and ours, besides its servers."""

_PROVIDER = frozenset(
    {
        "name",
        "base_url",
        "env_key",
        "env_key_instructions",
        "wire_api",
        "request_max_retries",
        "stream_max_retries",
        "stream_idle_timeout_ms",
    }
)
_PROVIDER_TABLES = frozenset({"query_params", "env_http_headers"})
_HOLD_SECRETS = frozenset({"env", "headers", "http_headers"})

LEFT_OUT = {
    "projects": "trust is not taken over; run `toolrest trust PATH` for the folders you trust",
    "features": "Toolrest has no such feature switch",
}


def import_codex(folder: str | os.PathLike[str] | None = None) -> tuple[str, list[str]]:
    """TOML for our config.toml, and one line for each setting left out. Writes nothing.

    Reads `config.toml` and the profiles `NAME.config.toml` beside it, never `auth.json`;
    without a folder, `$CODEX_HOME` or `~/.codex`.
    """
    home = codex_home(folder)
    raw, place = _read(home)
    skipped: list[str] = []
    own = {k: v for k, v in raw.items() if k != "profiles"}
    converted = _convert(own, place, (), skipped, TAKEN)
    for name, profile in _profiles(home, raw):
        for key, value in _convert(profile, place, ("profiles", name), skipped, TAKEN).items():
            converted["profiles", name, *key] = value
    return _document(nest(converted), "Codex"), skipped


def import_memo(folder: str | os.PathLike[str] | None = None) -> tuple[str, list[str]]:
    """TOML for our config.toml, and one line for each setting left out. Writes nothing.

    Of Memo Code's `config.toml` come its MCP servers, and which of them are active; without a
    folder, of `$MEMO_HOME` or `~/.memo`.
    """
    home = os.fspath(folder or os.environ.get("MEMO_HOME") or "")
    raw, place = _read(home or os.path.join(user_home(os.environ), ".memo"))
    skipped: list[str] = []
    return _document(nest(_convert(raw, place, (), skipped, MEMO)), "Memo Code"), skipped


def _read(home: str) -> tuple[dict[str, Any], LayerSource]:
    file = os.path.join(home, "config.toml")
    raw = read_toml(file)
    if raw is None:
        raise ConfigError(f"{file}: there is no such file to import")
    return raw, LayerSource("flags", file, os.path.abspath(home), user_home(os.environ))


def codex_home(folder: str | os.PathLike[str] | None = None) -> str:
    """The folder of Codex's files: the given one, `$CODEX_HOME` or `~/.codex`."""
    if folder is not None:
        return os.fspath(folder)
    return os.environ.get("CODEX_HOME") or os.path.join(user_home(os.environ), ".codex")


def _profiles(home: str, raw: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    tables = raw.get("profiles")
    if isinstance(tables, dict):
        yield from ((name, table) for name, table in tables.items() if isinstance(table, dict))
    try:
        names = sorted(os.listdir(home))
    except OSError as error:
        raise ConfigError(f"cannot list {home}: {error.strerror}") from None
    for name in names:
        if name.endswith(_PROFILE_FILE) and (table := read_toml(os.path.join(home, name))):
            yield name.removesuffix(_PROFILE_FILE), table


def _convert(
    table: Mapping[str, Any],
    place: LayerSource,
    prefix: Key,
    skipped: list[str],
    known: Mapping[Key, Key],
) -> dict[Key, Any]:
    taken: dict[Key, Any] = {}
    reasons: dict[str, str] = {}
    for key, value in flatten(table).items():
        target = known.get(key) or _provider_key(key) or _server_key(key)
        if target is None:
            shown, reason = _why_not(key)
            reasons.setdefault(format_key((*prefix, *shown)), reason)
            continue
        try:
            taken |= check_layer(nest({target: value}), place).values
        except ConfigError as error:
            problem = str(error).removeprefix(f"{place.label}: ")
            reasons[format_key((*prefix, *key))] = problem.removeprefix(f"{format_key(target)}: ")
    skipped.extend(f"{name}: {reason}" for name, reason in reasons.items())
    return taken


def _provider_key(key: Key) -> Key | None:
    """A provider's setting has the same name here; keys and headers, which are secret, stay."""
    if key[0] != "model_providers" or len(key) < 3:
        return None
    known = key[2] in _PROVIDER if len(key) == 3 else key[2] in _PROVIDER_TABLES
    return key if known else None


def _server_key(key: Key) -> Key | None:
    """Our key for a setting of an MCP server; None for one that may hold a secret."""
    if key[0] != "mcp_servers" or len(key) < 3 or key[2] in _HOLD_SECRETS:
        return None
    return key if pattern_of(key) is not None else None


def _why_not(key: Key) -> tuple[Key, str]:
    """The part of the key to show (a whole table is one line), and the reason to leave it out."""
    head = key[0]
    if head == "mcp_servers" and len(key) > 2:
        held = key[2] in _HOLD_SECRETS
        reason = "values are not copied; name the variable in env_vars, or write ${NAME}"
        return key, reason if held else "Toolrest has no such setting"
    if head == "approval_policy":
        return (head,), "granular approval has no counterpart"
    if head == "model_providers":
        return key[:3], "keys are not taken over; put them in a variable and name it in env_key"
    shown = key if head in (_ROOTS, "tools", "features") else (head,)
    if head in LEFT_OUT:
        return shown, LEFT_OUT[head]
    feature = PENDING_KEYS.get(format_key(key)) or PENDING_KEYS.get(head)
    return shown, f"not available yet: {feature}" if feature else "Toolrest has no such setting"


def _document(table: Mapping[str, Any], origin: str) -> str:
    document = tomlkit.document()
    document.add(
        tomlkit.comment(f"Taken over from {origin}; save as config.toml in $TOOLREST_HOME.")
    )
    simple = {name: value for name, value in table.items() if not isinstance(value, dict)}
    for name, value in {**simple, **table}.items():
        document[name] = value
    return tomlkit.dumps(document)
