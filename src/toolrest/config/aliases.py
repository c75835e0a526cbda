"""Which settings have a second spelling, in the tables that other programs use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from toolrest.config.keys import Key


class Alias(NamedTuple):
    """A second spelling of a setting; `values` translates what is written there."""

    target: Key
    values: Mapping[Any, Any] | None = None


ALIASES: dict[Key, Alias] = {
    ("tool_config", "approval_policy"): Alias(("approval_policy",)),
    ("tool_security", "approval_policy"): Alias(("approval_policy",)),
    ("tool_config", "sandbox_policy"): Alias(("sandbox_policy",)),
    ("tool_security", "sandbox_policy"): Alias(("sandbox_policy",)),
    ("tool_config", "tools_web_search_request"): Alias(("tools", "tools_web_search_request")),
    ("tools", "web_search"): Alias(("tools", "tools_web_search_request")),
    ("tools", "use_experimental_streamable_shell_tool"): Alias(
        ("tools", "shell_type"), {True: "unified_exec", False: "family"}
    ),
}
