"""Which built-in tools a model with a small window can do without (R-64).

What stays is enough to read, search, change and run; together it is described in less than 2,000
tokens. The others still answer when they are called.
"""

from __future__ import annotations

from typing import Final

SMALL_WINDOW: Final = 16_384
"""Models with a window of at most so many tokens get the small set without being asked to."""

SPARED: Final = frozenset(
    {
        "close_agent",
        "get_memory",
        "glob_files",
        "list_mcp_resource_templates",
        "list_mcp_resources",
        "read_mcp_resource",
        "request_user_input",
        "resume_agent",
        "save_memory",
        "send_input",
        "spawn_agent",
        "update_plan",
        "view_image",
        "wait",
        "web_search",
        "webfetch",
    }
)
