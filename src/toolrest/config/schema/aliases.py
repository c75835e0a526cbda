"""Aliases of settings, as other programs spell them; and settings that are not available yet."""

from __future__ import annotations

from typing import Any

from toolrest.config.keys import Key, find

ALIASES: dict[Key, Key] = {
    ("tool_config", "approval_policy"): ("approval_policy",),
    ("tool_security", "approval_policy"): ("approval_policy",),
    ("tool_config", "sandbox_policy"): ("sandbox_policy",),
    ("tool_security", "sandbox_policy"): ("sandbox_policy",),
    ("tool_config", "tools_web_search_request"): ("tools", "tools_web_search_request"),
    ("tool_config", "include_plan_tool"): ("tools", "include_plan_tool"),
    ("tool_config", "include_apply_patch_tool"): ("tools", "include_apply_patch_tool"),
    ("tool_config", "include_view_image_tool"): ("tools", "include_view_image_tool"),
    ("tool_config", "use_experimental_streamable_shell_tool"): ("tools", "shell_type"),
    ("tools", "web_search"): ("tools", "tools_web_search_request"),
    ("tools", "use_experimental_streamable_shell_tool"): ("tools", "shell_type"),
    ("openai_base_url",): ("model_providers", "openai", "base_url"),
}
"""Each alias and its setting."""

_STREAMABLE = "use_experimental_streamable_shell_tool"
SWITCHES: dict[Key, dict[bool, str]] = {
    (table, _STREAMABLE): {True: "unified_exec", False: "family"}
    for table in ("tools", "tool_config")
}
"""Aliases that are true or false, and the setting's value for each."""


PENDING_KEYS = {
    "model_catalog_json": "model providers",
    "history": "session history",
    "features": "feature switches; the switches that exist are under [tools]",
    "network_proxy": "the network allow list",
    "permissions": "permission profiles",
    "default_permissions": "permission profiles",
}


def pending_in(table: dict[str, Any]) -> tuple[Key, str] | None:
    """The first setting of a table that is not available yet: its path, and the feature."""
    for dotted, feature in PENDING_KEYS.items():
        key = tuple(dotted.split("."))
        parent = find(table, key[:-1]) if len(key) > 1 else table
        if isinstance(parent, dict) and key[-1] in parent:
            return key, feature
    return None
