"""The built-in tools of a session: settings, the model's family and the session decide.

`gate/tool/prepared.json` has what each tool's class says of itself that is needed before its module
is loaded; `WRITE_SCHEMAS=1 pytest tests/tools/test_prepared.py` writes it from the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolrest.gate.tool.args_class import read_prepared
from toolrest.gate.tool.registry import LazyTool
from toolrest.gate.tool.tool import Tool

if TYPE_CHECKING:
    from toolrest.config.schema.families import Family
    from toolrest.config.schema.tools import Tools
    from toolrest.tools.shell.command_tool import SandboxDescription
    from toolrest.tools.skills import Skills
    from toolrest.tools.web.web_search import SearchOptions
    from toolrest.tools.web.webfetch import WebOptions

SMALL_WINDOW: Final = 16_384
"""Models with a window of at most so many tokens get the small set by default."""


class ToolParts(Struct):
    """What a session has for its tools; `Tool.build` takes what it needs."""

    settings: Tools
    family: Family
    surroundings: Callable[[], SandboxDescription]
    web: Callable[[], WebOptions]
    search: Callable[[], SearchOptions] | None
    skills: Callable[[], Skills]
    has_skills: bool
    """Whether there is a folder that skills may be in."""
    answers: bool
    """Whether a model's questions can be answered."""
    roles: Mapping[str, str] | None = None
    """The roles of sub-agents, where the session can run them."""
    named: Collection[str] = ()
    """Names of tools that are offered whatever the settings and the model's family say."""


def built_in(parts: ToolParts, group: str | None = None) -> list[Tool]:
    """The built-in tools of a session, or of one group; what is switched off has no handler."""
    facts = _facts(parts)

    def hold(wanted: list[str]) -> bool:
        return not wanted or any(
            fact in facts if ":" in fact else bool(getattr(parts.settings, fact)) for fact in wanted
        )

    def wanted(name: str, facts: list[str]) -> bool:
        named = name in parts.named and not any(fact.startswith("session:") for fact in facts)
        return named or hold(facts)

    tools: list[Tool] = []
    for name, row in read_prepared()["tools"].items():
        if group in (None, row["group"]) and wanted(name, row["needs"]):
            offered = wanted(name, row["offered_when"])
            load = partial(_load, row["class"], parts, offered)
            aliases = tuple(row["aliases"])
            tools.append(LazyTool(name, row["group"], load, aliases=aliases, offered=offered))
    return tools


def _facts(parts: ToolParts) -> set[str]:
    """What holds in this session, in the words of `Tool.needs` and `Tool.offered_when`."""
    settings, family = parts.settings, parts.family
    files = settings.experimental_tools
    session = {
        "questions": parts.answers,
        "search": parts.search is not None,
        "skills": parts.has_skills,
        "agents": parts.roles is not None,
    }
    return {
        f"shell:{family.shell if settings.shell_type == 'family' else settings.shell_type}",
        f"patch:{family.patch}",
        *(("files:all",) if files is None else (f"files:{name}" for name in files)),
        *(f"enabled:{name}" for name in settings.enabled or ()),
        *(f"session:{name}" for name, there in session.items() if there),
    }


def _load(path: str, parts: ToolParts, offered: bool) -> Tool:
    module, _, name = path.rpartition(".")
    kind: type[Tool] = getattr(import_module(module), name)
    tool = kind.build(parts)
    tool.offered = offered
    return tool


def prepared_row(kind: type[Tool]) -> dict[str, Any]:
    """The row of a tool's class in `prepared.json`."""
    return {
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "group": kind.group,
        "aliases": list(kind.aliases),
        "needs": list(kind.needs),
        "offered_when": list(kind.offered_when),
    }


def switched_on(tools: Iterable[Tool], settings: Tools) -> list[Tool]:
    """What `[tools] enabled` and `disabled` leave, of any tool; `disabled` wins."""
    return [tool for tool in tools if is_on(tool.name, settings)]


def is_on(name: str, settings: Tools, other: str = "") -> bool:
    """Whether a tool of this name may be offered; `other` is a second name that it goes by."""
    names = (name, other) if other else (name,)
    if any(fnmatchcase(each, pattern) for each in names for pattern in settings.disabled):
        return False
    enabled = settings.enabled
    return enabled is None or any(fnmatchcase(n, pattern) for n in names for pattern in enabled)
