"""Which built-in tools a session offers: settings and the model's family decide."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from toolrest.gate.tool import Tool

if TYPE_CHECKING:
    from toolrest.config.families import Family
    from toolrest.config.model import Tools

FILE_TOOLS = ("read_file", "list_dir", "grep_files")


def built_in(settings: Tools, family: Family) -> list[Tool]:
    """The built-in tools for these settings; a tool that is switched off has no handler."""
    from toolrest.tools.list_dir import ListDir
    from toolrest.tools.read_file import ReadFile
    from toolrest.tools.update_plan import UpdatePlan

    wanted = FILE_TOOLS if settings.experimental_tools is None else settings.experimental_tools
    tools: list[Tool] = [UpdatePlan()] if settings.include_plan_tool else []
    tools += [tool for tool in (ListDir(), ReadFile()) if tool.name in wanted]
    return tools


def switched_on(tools: Iterable[Tool], settings: Tools) -> list[Tool]:
    """What `[tools] enabled` and `disabled` leave, of any tool; `disabled` wins."""
    return [tool for tool in tools if is_on(tool.name, settings)]


def is_on(name: str, settings: Tools) -> bool:
    """Whether a tool of this name may be offered."""
    if any(fnmatchcase(name, pattern) for pattern in settings.disabled):
        return False
    enabled = settings.enabled
    return enabled is None or any(fnmatchcase(name, pattern) for pattern in enabled)
