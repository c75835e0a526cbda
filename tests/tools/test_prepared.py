"""The schemas, the index and the page of the built-in tools are what their classes say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import toolrest.tools
from toolrest.gate.tool.args_class import (
    FILE,
    Parameters,
    fingerprint,
    is_noted,
    made_schema,
    name_of,
    param,
    prepared,
    read_prepared,
)
from toolrest.gate.tool.tool import Tool
from toolrest.items import GROUPS
from toolrest.tools.catalog import prepared_row

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "tools.md"
WRITE = os.environ.get("WRITE_SCHEMAS") == "1"
RUN = "run: WRITE_SCHEMAS=1 pytest tests/tools/test_prepared.py"


def classes(package: ModuleType = toolrest.tools) -> list[type[Tool]]:
    """Every class of a tool in a package that has a name, by that."""
    names = [found.name for found in walk_packages(package.__path__, f"{package.__name__}.")]
    modules = [import_module(name) for name in names]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Tool) and value.__module__ in names
    }
    return sorted((tool for tool in found if tool.name), key=lambda tool: tool.name)


def built_in() -> dict[str, type[Parameters]]:
    args = [tool.Args for tool in classes()]
    return {name_of(each): each for each in args if each is not None and is_noted(each)}


def write(part: str, rows: dict[str, Any]) -> None:
    """Put this part into the file, a line for each row."""
    parts = {**json.loads(Path(FILE).read_text()), part: rows}
    lines = {
        part: ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        for part, rows in parts.items()
    }
    text = ",\n".join(f' "{part}": {{\n{rows}\n }}' for part, rows in lines.items())
    Path(FILE).write_text(f"{{\n{text}\n}}\n")
    read_prepared.cache_clear()


def test_each_tool_has_its_row() -> None:
    rows = {tool.name: prepared_row(tool) for tool in classes()}
    assert len(rows) == len(classes()), "two tools of one name"
    if WRITE:
        write("tools", rows)
    assert read_prepared()["tools"] == rows, RUN


def table(tools: list[type[Tool]]) -> str:
    """The page's table of built-in tools, from their classes."""
    lines = [
        "| tool | risk | parallel | offered | small window | icon |",
        "|---|---|---|---|---|---|",
    ]
    for tool in sorted(tools, key=lambda tool: (GROUPS.index(tool.group), tool.name)):
        names = ", ".join(f"`{name}`" for name in (tool.name, *tool.aliases))
        made = tool.__new__(tool)  # what the table says is the class's, whatever it is built with
        cells = (
            made.level(tool.typical).label,
            "yes" if made.parallel else "no",
            " or ".join(f"`{fact}`" for fact in tool.offered_when or tool.needs),
            "yes" if tool.small_window else "no",
            tool.icon,
        )
        lines.append(f"| {names} | {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_page_has_a_row_for_each_tool() -> None:
    before, start, rest = TABLE.read_text().partition("<!-- tools -->\n")
    _, end, after = rest.partition("\n<!-- /tools -->")
    assert start
    assert end
    if WRITE:
        TABLE.write_text(f"{before}{start}{table(classes())}{end}{after}")
    assert table(classes()) in TABLE.read_text(), RUN


def test_what_is_prepared_is_what_would_be_made() -> None:
    models = built_in()
    if WRITE:
        rows = {
            name: {"of": fingerprint(model), "schema": made_schema(model)}
            for name, model in sorted(models.items())
        }
        write("schemas", rows)
    fresh = 0
    for name, model in models.items():
        ready = prepared(model)
        if ready is not None:
            fresh += 1
            assert list(ready["properties"]) == list(made_schema(model)["properties"]), name
            assert ready == made_schema(model), name
    assert fresh == len(models), RUN


class Inner(Parameters):
    """Inside."""

    a: int = param(default=1, description="a")


class OtherInner(Parameters):
    """Inside."""

    a: int = param(default=2, description="a")


class One(Parameters):
    """Outside."""

    x: list[Inner] = param(default=[], description="d")


class Two(Parameters):
    """Outside."""

    x: list[OtherInner] = param(default=[], description="d")


class Three(Parameters):
    """Outside."""

    x: list[Inner] = param(default=[], description="other")


class Four(Parameters, extra="forbid"):
    """Outside."""

    x: list[Inner] = param(default=[], description="d")


def test_any_change_has_another_fingerprint() -> None:
    OtherInner.__qualname__ = Inner.__qualname__
    for args in (Two, Three, Four):
        args.__qualname__ = One.__qualname__
    assert len({fingerprint(args) for args in (One, Two, Three, Four)}) == 4
    assert fingerprint(One) == fingerprint(One)
    assert prepared(One) is None


def test_starting_a_session_and_offering_its_tools_does_not_import_pydantic() -> None:
    code = """
import sys
from toolrest import Toolrest
for tool in Toolrest(".").session.registry.listed():
    assert tool.parameters["type"] == "object"
print([name for name in sys.modules if name.startswith("pydantic")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
