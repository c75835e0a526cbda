"""What was asked for and decided is there: three pages of docs against the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import TABLE, Mutant
from toolrest import Tool, Toolrest
from toolrest.tools.tool_search import ToolSearch

ROOT = Path(__file__).parent.parent
MISSION = (ROOT / "docs" / "internals" / "mission.md").read_text()
DECISIONS = (ROOT / "docs" / "internals" / "decisions.md").read_text()
TOOLS = (ROOT / "docs" / "tools.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FAMILIES = (None, "claude-sonnet", "gpt-5", "gpt-5.1-codex", "codex-mini-latest")
SEARCH = {"web_search": "live", "search.backend": "searxng", "search.url": "http://127.0.0.1:9"}
ANOTHER_SERVERS = {"mcp__server__tool", "server/tool"}
DISAGREEMENTS = 11
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    part = re.split(r"^## ", page.split(f"## {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@cache
def names_in(path: str) -> frozenset[str]:
    file = ROOT / path
    text = file.read_text() if file.exists() else ""
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


def missing_tests(text: str) -> list[str]:
    return [f"{path}::{name}" for path, name in NAMED.findall(text) if name not in names_in(path)]


PARTS = ("Tools and their shapes", "Dispatch, errors, output", "Policy")


def test_every_number_has_its_row_in_order() -> None:
    numbers = [row[0] for part in PARTS for row in rows(MISSION, part)]
    assert numbers == [f"M-{number}" for number in range(1, 39)]
    assert len(rows(MISSION, "Where the documents disagree")) == DISAGREEMENTS


@pytest.mark.parametrize("part", [*PARTS, "Where the documents disagree"])
def test_every_row_names_code_and_tests_that_exist(part: str) -> None:
    for number, meaning, code, tests in rows(MISSION, part):
        assert meaning
        for file in re.findall(r"`([^`]+)`", code):
            assert (ROOT / "src" / "toolrest" / file).exists(), f"{number}: {file}"
        assert NAMED.search(tests) or "**open**" in tests, number
        assert missing_tests(tests) == []


def test_every_decision_has_its_row_and_what_holds_it() -> None:
    parts = re.findall(r"^## (.+)$", DECISIONS, re.MULTILINE)
    found = [row for part in parts for row in rows(DECISIONS, part)]
    assert [row[0] for row in found] == [*(f"D-{number}" for number in range(1, 52)), "keys"]
    for number, meaning, code, tests in found:
        assert meaning
        for file in re.findall(r"`([^`]+)`", code):
            place = ROOT if file.startswith("/") else ROOT / "src" / "toolrest"
            assert (place / file.lstrip("/")).exists(), f"{number}: {file}"
        measured = re.findall(r"`(bench/\w+\.py)`", tests)
        assert all((ROOT / script).exists() for script in measured), number
        targets = re.findall(r"`make ([a-z-]+)`", tests)
        assert set(targets) <= {*TARGETS}, number
        assert measured or targets or NAMED.search(tests), number
        assert missing_tests(tests) == []


def page_tools() -> dict[str, list[str]]:
    """Risk, parallel and more by each callable name."""
    return {
        name: cells
        for names, *cells in rows(TOOLS, "The built-in tools")
        for name in re.findall(r"`([^`]+)`", names)
    }


@pytest.fixture(scope="module")
def callable_tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tool]:
    """Every built-in tool by every name that reaches it, over all families."""
    found: dict[str, Tool] = {}
    folder = tmp_path_factory.mktemp("mission")
    for model in FAMILIES:
        registry = Toolrest(folder, model=model, settings=SEARCH).session.registry
        for stand_in in [*registry._tools.values()]:
            tool = registry.get(stand_in.name)
            assert tool is not None
            found |= dict.fromkeys((tool.name, *tool.aliases), tool)
    found["tool_search"] = ToolSearch(list, lambda _: None)
    return found


def test_the_page_lists_every_callable_name(callable_tools: dict[str, Tool]) -> None:
    listed = page_tools()
    assert set(listed) == set(callable_tools)
    for name, tool in callable_tools.items():
        risk, parallel, *_ = listed[name]
        assert risk == tool.level(tool.typical).label, name
        assert parallel == ("yes" if tool.parallel else "no"), name


def test_the_page_agrees_with_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "toolrest", "tools", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = page_tools()
    for row in json.loads(done.stdout):
        risk, parallel, *_ = listed[row["name"]]
        assert (risk, parallel) == (row["risk"], "yes" if row["parallel"] else "no")


def test_every_tool_is_held_by_tests_that_exist() -> None:
    held = rows(MISSION, "Every tool")
    names = {name for row in held for name in re.findall(r"`([^`]+)`", row[0])}
    assert names == {*page_tools(), *ANOTHER_SERVERS}
    assert all(NAMED.search(tests) for _, tests in held)
    assert missing_tests(MISSION) == []


def test_every_mutant_changes_one_place_and_names_a_test_that_exists() -> None:
    """Else `make mutants` says so after minutes."""
    wrong = []
    for mutant in (Mutant(**row) for row in tomllib.loads(TABLE.read_text())["mutant"]):
        file, _, test = mutant.test.partition("::")
        count = (ROOT / "src" / "toolrest" / mutant.file).read_text().count(mutant.old)
        if count != 1 or test.partition("[")[0] not in {"", *names_in(file)}:
            wrong.append((mutant.row, mutant.file, count, mutant.test))
    assert wrong == []
