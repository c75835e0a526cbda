"""`tool_search`: find MCP tools by name instead of offering all of them, which fills the window."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import ExecItem, Tool
from toolrest.items import LOADED_TOOLS, Group, JSONObject, ToolOutput
from toolrest.policy.effects import Effects

SELECT = "select:"
_INTRODUCTION = (
    "Load tools of the connected MCP servers before you call them. `query` is words to look for, "
    "or `select:` and exact names with commas between. What is found can be called from the next "
    "step on."
)
_LINE = 100
_SHORTEST = 12
MOST_ROOM = 15_000
"""Characters of the description; longer ones would be cut on the way to a model."""
_WORD = re.compile(r"[a-z0-9]+")


class ToolSearch(Tool):
    """`tool_search`: has a line for each deferred tool, and loads those that a query matches."""

    name = "tool_search"
    group: Group = "mcp_resources"
    exec_item: ExecItem = ""
    needs = ("session:deferred_tools",)
    typical = Effects.none()

    class Args(Parameters):
        """Parameters."""

        query: str = param(description="Words to look for, or `select:NAME,NAME`.")
        limit: int = param(default=8, ge=1, le=50, description="Most tools to load.")

    def __init__(
        self, tools: Callable[[], list[tuple[str, Tool]]], load: Callable[[Iterable[Tool]], None]
    ) -> None:
        self._tools = tools
        self._load = load
        self.room = MOST_ROOM

    @property
    def description(self) -> str:  # type: ignore[override]
        """What the tool does, and an index of the deferred tools, as far as there is room."""
        return f"{_INTRODUCTION}\n\n{index(self._tools(), self.room)}"

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Load what matches and show its parameters."""
        found = self._select(args) if args.query.startswith(SELECT) else self._search(args)
        if not found:
            raise RespondToModel(
                f"no tool matches {args.query!r}; the description of tool_search lists them all",
                fields=("query",),
            )
        self._load(tool for _, tool in found)
        loaded = [_shown(name, tool) for name, tool in found]
        text = json.dumps({"tools": loaded}, ensure_ascii=False, separators=(",", ":"))
        names = [name for name, _ in found]
        return ToolOutput(text, provenance="external", metadata={LOADED_TOOLS: names})

    def _select(self, args: Args) -> list[tuple[str, Tool]]:
        wanted = [name.strip() for name in args.query.removeprefix(SELECT).split(",")]
        known: dict[str, tuple[str, Tool]] = {}
        for name, tool in self._tools():
            for spelling in (name, tool.name, "/".join(tool.mcp or ())):
                known.setdefault(spelling, (name, tool))
        return [known[name] for name in dict.fromkeys(wanted) if name in known]

    def _search(self, args: Args) -> list[tuple[str, Tool]]:
        words = set(_WORD.findall(args.query.lower()))
        scored = [(_score(words, name, tool), name, tool) for name, tool in self._tools()]
        best = sorted((row for row in scored if row[0] > 0), key=lambda row: (-row[0], row[1]))
        return [(name, tool) for _, name, tool in best[: args.limit]]


def _score(words: set[str], name: str, tool: Tool) -> float:
    """Score a tool for a query: words in the name count most, parts of words less."""
    in_name = set(_WORD.findall(name.lower()))
    in_text = set(_WORD.findall(tool.description.lower()))
    score = 3.0 * len(words & in_name) + len(words & in_text)
    return score + sum(1.0 for word in words if len(word) > 3 and word in name.lower())


def _shown(name: str, tool: Tool) -> JSONObject:
    return {"name": name, "description": tool.description, "parameters": tool.parameters}


def index(tools: list[tuple[str, Tool]], room: int) -> str:
    """A line for each tool as far as there is room, then only names, then a count."""
    names = sum(len(name) + 3 for name, _ in tools)
    width = min((room - names) // max(len(tools), 1), _LINE)
    if width >= _SHORTEST:
        lines = [f"{name}: {first_line(tool.description, width)}" for name, tool in tools]
    else:
        lines = [name for name, _ in tools]
    kept: list[str] = []
    used = 0
    for line in lines:
        used += len(line) + 1
        if used > room:
            kept.append(f"… and {len(lines) - len(kept)} more; search for them")
            break
        kept.append(line)
    return "\n".join(kept)


def first_line(text: str, width: int) -> str:
    """The first sentence or line, shortened."""
    line = text.split("\n", 1)[0].split(". ", 1)[0]
    return line if len(line) <= width else line[: width - 1] + "…"
