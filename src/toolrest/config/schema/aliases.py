"""Which settings have a second spelling, in the tables that other programs use."""

from __future__ import annotations

from toolrest.config.keys import Key

ALIASES: dict[Key, Key] = {
    ("tool_config", "approval_policy"): ("approval_policy",),
    ("tool_security", "approval_policy"): ("approval_policy",),
    ("tool_config", "sandbox_policy"): ("sandbox_policy",),
    ("tool_security", "sandbox_policy"): ("sandbox_policy",),
    ("tool_config", "tools_web_search_request"): ("tools", "tools_web_search_request"),
    ("tools", "web_search"): ("tools", "tools_web_search_request"),
    ("tools", "use_experimental_streamable_shell_tool"): ("tools", "shell_type"),
}
"""The second spelling and the setting that it means."""

SWITCHES: dict[Key, dict[bool, str]] = {
    ("tools", "use_experimental_streamable_shell_tool"): {True: "unified_exec", False: "family"},
}
"""Second spellings that are true or false, and what that is in place of the setting's own words."""
