"""The built-in tools of a session: settings, the model's family and the session decide.

`gate/tool/prepared.json` has what each tool's class says of itself that is needed before its module
is loaded; `WRITE_SCHEMAS=1 pytest tests/tools/test_prepared.py` writes it from the classes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolrest.errors import ConfigError
from toolrest.gate.tool.args_class import read_prepared
from toolrest.gate.tool.registry import LazyTool
from toolrest.gate.tool.tool import Tool
from toolrest.items import GROUP_NAMES

if TYPE_CHECKING:
    from toolrest.config import Settings
    from toolrest.config.schema.tools import Tools
    from toolrest.gate.session import Ground

SMALL_WINDOW: Final = 16_384
"""Tokens of the largest context window that gets the small set of tools by default."""

TOOL: Final = "tool:"
"""The prefix that makes a name in `[tools]` mean the tool and not the group of that name."""


def built_in(ground: Ground, *, answers: bool, named: Collection[str] = ()) -> list[Tool]:
    """The built-in tools of a session; what is switched off has no handler.

    `answers`: a model's questions can be answered. Tools that are `named` are offered whatever the
    settings and the model's family say.
    """
    facts = _facts(ground, answers)

    def holds(name: str, wanted: list[str]) -> bool:
        by_name = name in named and not any(fact.startswith("session:") for fact in wanted)
        return by_name or _hold(wanted, facts)

    return [
        LazyTool(
            name,
            row["group"],
            partial(_load, row["class"], ground),
            aliases=tuple(row["aliases"]),
            capability=row["capability"],
            offered=holds(name, row["offered_when"]),
        )
        for name, row in read_prepared()["tools"].items()
        if holds(name, row["needs"])
    ]


def _hold(wanted: list[str], facts: set[str]) -> bool:
    return not wanted or any(fact in facts for fact in wanted)


def _facts(ground: Ground, answers: bool) -> set[str]:
    """The conditions that this session meets, as `Tool.needs` and `Tool.offered_when` name them.

    Whether it has sub-agents is known later, when the agent comes that runs them.
    """
    settings, family = ground.settings.tools, ground.config.family
    files = settings.experimental_tools
    session = {
        "questions": answers,
        "search": offers_search(ground.settings),
        "skills": bool(ground.skills.places),
    }
    return {
        *(name for name, value in settings.as_dict().items() if value is True),
        f"shell:{family.shell if settings.shell_type == 'family' else settings.shell_type}",
        f"patch:{family.patch}",
        *(("files:all",) if files is None else (f"files:{name}" for name in files)),
        *(f"enabled:{name.removeprefix(TOOL)}" for name in settings.enabled or ()),
        *(f"session:{name}" for name, there in session.items() if there),
    }


def offers_search(settings: Settings) -> bool:
    """Whether the settings ask for web searches."""
    if settings.web_search is not None:
        return settings.web_search != "disabled"
    return settings.tools.tools_web_search_request


def _load(path: str, ground: Ground) -> Tool:
    module, _, name = path.rpartition(".")
    kind: type[Tool] = getattr(import_module(module), name)
    return kind.build(ground)


def prepared_row(kind: type[Tool]) -> dict[str, Any]:
    """The row of a tool's class in `prepared.json`."""
    return {
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "group": kind.group,
        "aliases": list(kind.aliases),
        "capability": kind.capability,
        "needs": list(kind.needs),
        "offered_when": list(kind.offered_when),
    }


def switched_on(tools: Iterable[Tool], settings: Tools) -> list[Tool]:
    """The tools that `[tools] enabled` and `disabled` leave; `disabled` wins."""
    return [tool for tool in tools if is_on(tool, settings)]


def is_on(tool: Tool | type[Tool], settings: Tools, *spellings: str) -> bool:
    """Whether a tool may be offered; `spellings` are other names that it goes by."""
    return switched_off_by(tool, settings, *spellings) is None


def switched_off_by(tool: Tool | type[Tool], settings: Tools, *spellings: str) -> str | None:
    """The setting that switches a tool off; None where it is on.

    Switching one form of a capability off (`exec_command`) switches off the others (`shell`) and
    its parts (`write_stdin`), unless they are enabled by name.
    """
    names = (tool.name, *tool.aliases, *spellings)
    enabled = settings.enabled
    listed = (pattern for pattern in enabled or () if pattern not in GROUP_NAMES)
    by_name = {pattern.removeprefix(TOOL) for pattern in listed}
    for pattern in settings.disabled:
        twins = () if tool.name in by_name else _twins(tool.capability.partition("/")[0])
        if matches(pattern, (*names, *twins), tool.group):
            return f'tools.disabled has "{pattern}"'
    if enabled is None or any(matches(pattern, names, tool.group) for pattern in enabled):
        return None
    return "tools.enabled does not have it"


def matches(pattern: str, names: Iterable[str], group: str) -> bool:
    """Whether a pattern of `[tools]` means a tool: a group, else a name or glob.

    `shell` is the group, `tool:shell` the tool of that name.
    """
    if pattern in GROUP_NAMES:
        return group in GROUP_NAMES[pattern]
    return any(fnmatchcase(name, pattern.removeprefix(TOOL)) for name in names)


@cache
def _twins(capability: str) -> tuple[str, ...]:
    rows = read_prepared()["tools"].items() if capability else ()
    return tuple(
        each
        for name, row in rows
        if row["capability"] == capability
        for each in (name, *row["aliases"])
    )


def check_names(settings: Settings, names: Iterable[str]) -> None:
    """Raise ConfigError for a name in the settings that means no tool; `names` are the user's own.

    Names of servers' tools (`mcp__server__tool`, `server/tool`) are left: they come later.
    """
    roles = settings.agents.roles.items()
    tables = {"tools": settings.tools, **{f"agents.roles.{name}": role for name, role in roles}}
    asked = [
        (f"{key}.{field}", pattern)
        for key, table in tables.items()
        for field in ("enabled", "disabled")
        for pattern in getattr(table, field) or ()
        if not (pattern in GROUP_NAMES or pattern.startswith("mcp__") or "/" in pattern)
    ]
    if not asked:
        return
    rows = read_prepared()["tools"]
    known = [*rows, *(alias for row in rows.values() for alias in row["aliases"]), *names]
    for key, pattern in asked:
        if not matches(pattern, known, ""):
            raise ConfigError(_no_such_tool(key, pattern.removeprefix(TOOL), known))


def _no_such_tool(key: str, name: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, [*known, *GROUP_NAMES], n=1, cutoff=0.0)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{key}: there is no tool or group {name!r}{hint} (toolrest tools --all lists them)"


class ToolState(NamedTuple):
    """Whether a tool is offered to models or only answers when it is called, and why not."""

    name: str
    offered: bool
    callable: bool
    why: str


def states(
    settings: Tools,
    known: Iterable[Tool],
    switched_off: Iterable[Tool],
    unoffered: Mapping[str, str],
) -> list[ToolState]:
    """The state of every built-in tool and of the user's and servers' own, by name.

    `unoffered`: those that have no form on the model's wire, and why.
    """
    rows = read_prepared()["tools"]
    handlers = {tool.name: tool for tool in known}
    off = {tool.name: tool for tool in switched_off} | {n: _stub(n, rows[n]) for n in rows}
    found = []
    for name in sorted({*handlers, *off}):
        tool = handlers.get(name)
        why = ""
        if tool is None:
            off_by = switched_off_by(off[name], settings, "/".join(off[name].mcp or ()))
            why = off_by or _conditions(rows[name]["needs"])
        elif not tool.offered:
            why = _conditions(rows[name]["offered_when"] if name in rows else ())
        offered = tool is not None and tool.offered and name not in unoffered
        why = why or unoffered.get(name, "")
        found.append(ToolState(name, offered, tool is not None, why))
    return found


def _stub(name: str, row: Mapping[str, Any]) -> Tool:
    """A stand-in for a built-in tool, with all that settings may name it by."""
    aliases = tuple(row["aliases"])
    return LazyTool(name, row["group"], Tool, aliases=aliases, capability=row["capability"])


_CONDITIONS: Final = {
    "shell": 'tools.shell_type = "{}"',
    "patch": "a model family that knows {}",
    "files": 'tools.experimental_tools with "{}"',
    "enabled": 'tools.enabled with "{}"',
    "session:questions": "an approver that answers questions",
    "session:search": "web_search",
    "session:skills": "a folder of skills",
    "session:agents": "a session of the agent",
    "session:deferred_tools": "more tools of MCP servers than fit into a request",
}


def _conditions(facts: Iterable[str]) -> str:
    """The conditions of a tool in the words of settings."""
    words = []
    for fact in facts:
        kind, colon, name = fact.partition(":")
        if fact != "files:all":
            form = _CONDITIONS.get(fact) or _CONDITIONS.get(kind, "tools.{} = true")
            words.append(form.format(name if colon else fact))
    return f"needs {' or '.join(words)}" if words else "tool_search finds it"
