"""Settings that a project's files may change: only to tighten them (S9)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from toolrest.config.keys import Key, format_key, toml_text
from toolrest.config.layer_check import ANY, Layer, pattern_of
from toolrest.errors import ConfigError
from toolrest.items import GROUP_NAMES

Rule: TypeAlias = Callable[[Any, Any, str], str | None]
"""(wanted, value without the project, workspace) -> the reason to refuse it, or None."""

_APPROVAL = ("dangerous", "never", "on-failure", "on-request", "untrusted", "auto", "strict")
_SANDBOX = ("danger-full-access", "workspace-write", "read-only")
_DEFAULT_TOKENS = 10_000
_DEFAULT_CHARS = 12_000


def _free(wanted: Any, base: Any, workspace: str) -> str | None:
    return None


def _ranked(order: Sequence[str]) -> Rule:
    def rule(wanted: Any, base: Any, workspace: str) -> str | None:
        if order.index(wanted) >= order.index(base):
            return None
        return f"that loosens {toml_text(base)}"

    return rule


def _stricter(wanted: Any, base: Any, workspace: str) -> str | None:
    order = ("allow", "ask", "deny")
    if wanted == "allow" or (base is not None and order.index(wanted) < order.index(base)):
        return "that loosens your own setting" if base else "a project can only ask or deny"
    return None


def _on_ask(wanted: Any, base: Any, workspace: str) -> str | None:
    return "that allows what should be asked about" if wanted == "allow" != base else None


def _at_most(wanted: Any, base: Any, workspace: str) -> str | None:
    return None if base is None or wanted <= base else f"that raises {toml_text(base)}"


def _tokens(wanted: Any, base: Any, workspace: str) -> str | None:
    return _at_most(wanted, _DEFAULT_TOKENS if base is None else base, workspace)


def _chars(wanted: Any, base: Any, workspace: str) -> str | None:
    return _at_most(wanted, _DEFAULT_CHARS if base is None else base, workspace)


def _only(strict: bool) -> Rule:
    def rule(wanted: Any, base: Any, workspace: str) -> str | None:
        return None if wanted == strict or base != strict else "that loosens your own setting"

    return rule


def _narrower_roots(wanted: Any, base: Any, workspace: str) -> str | None:
    if base is None:
        return None
    outside = [path for path in wanted if not _beneath(path, base)]
    return f"{toml_text(outside[0])} is outside of your read_roots" if outside else None


def _narrower_tools(wanted: Any, base: Any, workspace: str) -> str | None:
    if base is None:
        return "it can switch on tools that are off; use tools.disabled"
    wider = [name for name in wanted if not covered(name, base)]
    return f"{toml_text(wider[0])} is not in your tools.enabled" if wider else None


def covered(name: str, patterns: Sequence[str]) -> bool:
    """Whether these patterns match every tool that a name, group or pattern matches."""
    if name in patterns or "*" in patterns:
        return True
    if name in GROUP_NAMES:  # a glob that matches a group's name need not match its tools
        groups = (GROUP_NAMES[item] for item in patterns if item in GROUP_NAMES)
        return GROUP_NAMES[name] <= frozenset().union(*groups)
    name = name.removeprefix("tool:")
    # That one glob covers another is not proven here: only plain names count as covered.
    return not set("*?[") & set(name) and any(fnmatchcase(name, item) for item in patterns)


def _fewer(wanted: Any, base: Any, workspace: str) -> str | None:
    return None if base is None or set(wanted) <= set(base) else f"you allow only {toml_text(base)}"


def _fewer_servers(wanted: Any, base: Any, workspace: str) -> str | None:
    if base is None:
        return "it can start servers that you have not chosen; set active_mcp_servers yourself"
    return _fewer(wanted, base, workspace)


def _shell_form(wanted: Any, base: Any, workspace: str) -> str | None:
    return "you have switched the shell off" if base == "disabled" != wanted else None


def _beneath(path: str, roots: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return any(os.path.commonpath((real, r := os.path.realpath(root))) == r for root in roots)


# A key that has no line here cannot be set by a project: provider addresses and keys, hooks and
# anything else that runs a program, telemetry, the audit log's place, trust, profiles. Nor
# writable roots (inside the workspace they could only lift the protection of a folder) and
# patterns of redaction (they are run over every output, and a slow one stops everything).
RULES: dict[Key, Rule] = {
    ("active_mcp_servers",): _fewer_servers,
    ("model",): _free,
    ("model_family",): _free,
    ("model_reasoning_effort",): _free,
    ("model_reasoning_summary",): _free,
    ("model_verbosity",): _free,
    ("model_context_window",): _free,
    ("model_auto_compact_token_limit",): _free,
    ("project_doc_max_bytes",): _at_most,
    ("project_doc_fallback_filenames",): _free,
    ("max_turns",): _at_most,
    ("max_tool_calls",): _at_most,
    ("max_tokens",): _at_most,
    ("approval_policy",): _ranked(_APPROVAL),
    ("on_ask",): _on_ask,
    ("approvals", "tools", ANY): _stricter,
    ("approvals", "mcp_servers", ANY): _stricter,
    ("approvals", "paths", ANY): _stricter,
    ("approvals", "commands", ANY): _stricter,
    ("rules", "prefix_rules"): _free,
    ("sandbox_mode",): _ranked(_SANDBOX),
    ("sandbox_workspace_write", "network_access"): _only(False),
    ("sandbox_workspace_write", "exclude_tmpdir_env_var"): _only(True),
    ("sandbox_workspace_write", "exclude_slash_tmp"): _only(True),
    ("read_roots",): _narrower_roots,
    ("hidden_paths",): _free,
    ("legacy_encoding",): _free,
    ("tool_output_token_limit",): _tokens,
    ("tool_result_max_chars",): _chars,
    ("tool_timeout_sec",): _at_most,
    ("max_parallel_calls",): _at_most,
    ("max_calls_per_session",): _at_most,
    ("tools", "enabled"): _narrower_tools,
    ("tools", "disabled"): _free,
    ("tools", "shell_type"): _shell_form,
    ("tools", "experimental_tools"): _fewer,
    ("tools", "include_plan_tool"): _only(False),
    ("tools", "include_apply_patch_tool"): _only(False),
    ("tools", "include_view_image_tool"): _only(False),
    ("tools", "include_collab_tools"): _only(False),
    ("tools", "include_memory_tool"): _only(False),
    ("tools", "tools_web_search_request"): _only(False),
    ("tools", "small_context"): _only(True),
    ("tools", "limits", ANY): _chars,
    ("limits", "processes"): _at_most,
    ("limits", "memory"): _at_most,
    ("limits", "file_size"): _at_most,
    ("tool_security", "max_file_access_size"): _at_most,
    ("tool_security", "max_shell_commands_per_session"): _at_most,
    ("tool_security", "ask_after_external_content"): _only(True),
    ("tool_security", "audit_log_enabled"): _only(True),
    ("audit", "required"): _only(True),
    ("checkpoints", "enabled"): _only(True),
    ("redact", "names"): _free,
    ("agents", "max_agents"): _at_most,
    ("agents", "max_depth"): _at_most,
    ("agents", "max_seconds"): _at_most,
    ("agents", "max_turns"): _at_most,
    ("agents", "max_tool_calls"): _at_most,
    ("agents", "max_tokens"): _at_most,
}


def check_project(layer: Layer, base: Mapping[Key, Any], workspace: str) -> None:
    """Refuse a project's layer that would loosen anything; `base` are the values without it."""
    for key, wanted in layer.values.items():
        rule = RULES.get(pattern_of(key) or key)
        if rule is None:
            raise ConfigError(
                f"{layer.source(key)}: a project's file may not set {format_key(key)}; "
                "set it in your own config.toml"
            )
        reason = rule(wanted, base.get(key), workspace)
        if reason is not None:
            raise ConfigError(
                f"{layer.source(key)}: a project's file may not set {format_key(key)} = "
                f"{toml_text(wanted)}: {reason}"
            )
