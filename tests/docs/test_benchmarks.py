"""The benchmarks' page and plots are those of its numbers; `make bench` writes all three."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench import results

RUN = "run: python bench/results.py"


def test_page_and_plots_are_those_of_the_numbers() -> None:
    charts = json.loads(results.FILE.read_text())
    assert results.PAGE.read_text() == results.page(charts, results.PAGE.read_text()), RUN
    for name, chart in charts.items():
        assert (results.PLOTS / f"{name}.svg").read_text() == results.bars(chart), RUN
    assert {path.stem for path in results.PLOTS.iterdir()} == set(charts)


def test_a_measurement_is_kept_with_its_load_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "numbers.json"
    results.record("one", "One", "ms", {"toolrest": 1.0})
    monkeypatch.setenv("BENCH_RESULTS", str(file))
    results.record("one", "One", "ms", {"toolrest": 12.3456, "other <x>": 40.0})
    results.record("two", "Two", "s", {"toolrest": 0.0, "other": 3.0})
    charts = json.loads(file.read_text())
    assert charts["one"]["values"] == {"toolrest": 12.35, "other <x>": 40.0}
    assert charts["one"]["load"] >= 0
    for chart in charts.values():
        drawn = ElementTree.fromstring(results.bars(chart))
        texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert all(name in texts for name in chart["values"])
    before = f"# Top\n\n{results.START}\nold\n{results.END}\nbelow\n"
    page = results.page(charts, before)
    assert "old" not in page
    assert "### One" in page
    assert f"load {charts['one']['load']}" in page
    assert page.endswith("\nbelow\n")


def test_the_page_names_every_script() -> None:
    folder = Path(results.__file__).parent
    scripts = {path.name for path in folder.glob("*.py")} - {"run.py", "results.py"}
    page = results.PAGE.read_text()
    assert [name for name in sorted(scripts) if f"`bench/{name}`" not in page] == []


# Where the figures of README's table come from: chart and bar, for each column that has one.
README_ROWS = {
    "one call of an empty tool": {
        0: "dispatch: toolrest, audit on",
        2: "dispatch: pydantic-ai",
        3: "dispatch: openai-agents",
    },
    "start until an agent": {
        0: "startup: toolrest, an Agent with one tool",
        2: "startup: pydantic-ai, an Agent with one tool",
    },
    "chat: first paint": {
        0: "chat-start: toolrest, first paint",
        1: "chat-start: codex 0.166.0, first paint",
    },
    "chat: ready for a message": {
        0: "chat-start: toolrest, ready for a message",
        1: "chat-start: codex 0.166.0, ready for a message",
    },
    "chat: 1,000 streamed lines": {
        0: "chat-stream-bytes: toolrest; chat-stream-cpu: toolrest",
        1: "chat-stream-bytes: codex 0.166.0; chat-stream-cpu: codex 0.166.0",
    },
    "chat: key to echo": {
        0: "chat-echo: toolrest, p99",
        1: "chat-echo: codex 0.166.0, p99",
    },
}
UNITS = {"kB": 1000.0, "s": 1.0, "ms": 1.0, "µs": 1.0}


def figures(cell: str) -> list[tuple[float, float]]:
    """The figures of a cell, in the unit of their chart, each with half of its last digit."""
    found = re.findall(r"([\d,]*\d)(\.\d+)? (kB|s|ms|µs)\b", cell)
    return [
        (
            float(whole.replace(",", "") + part) * UNITS[unit],
            0.5 * UNITS[unit] / 10 ** len(part[1:]),
        )
        for whole, part, unit in found
    ]


def test_the_figures_of_the_readme_are_those_of_the_numbers() -> None:
    charts = json.loads(results.FILE.read_text())
    text = (results.PAGE.parents[1] / "README.md").read_text()
    assert len(text.splitlines()) < 150
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    measured = [row for row in rows if any(figures(cell) for cell in row[1:])]
    assert len(measured) == len(README_ROWS)
    for (start, sources), (name, *cells) in zip(README_ROWS.items(), measured, strict=True):
        assert name.startswith(start)
        assert {column for column, cell in enumerate(cells) if figures(cell)} == set(sources)
        for column, source in sources.items():
            bars = [bar.split(": ", 1) for bar in source.split("; ")]
            for (figure, half), (chart, bar) in zip(figures(cells[column]), bars, strict=True):
                value = charts[chart]["values"][bar]
                assert abs(figure - value) <= half, f"{name}: {figure}, measured {value}"


# What the page's first paragraph says of Codex's figure over ours, and what that may be.
SUMMARY = {
    "in a third of the time": ("chat-start", "first paint", 2.6, 3.5),
    "less than half the bytes": ("chat-stream-bytes", "", 2.0, 3.0),
    "a fifth of the CPU time": ("chat-stream-cpu", "", 4.5, 5.6),
    "three times as fast (the slowest 1 in 100)": ("chat-echo", "p99", 2.9, 3.9),
    "to seven times (the median)": ("chat-echo", "median", 6.9, 7.9),
    "ready for a message a little later": ("chat-start", "ready for a message", 0.8, 1.0),
}


def test_the_summary_is_that_of_the_numbers() -> None:
    charts = json.loads(results.FILE.read_text())
    said = " ".join(results.PAGE.read_text().split("`make bench`")[0].split())
    for words, (chart, bar, least, most) in SUMMARY.items():
        assert words in said
        ours, theirs = (
            charts[chart]["values"][f"{name}, {bar}" if bar else name]
            for name in ("toolrest", "codex 0.166.0")
        )
        assert least <= theirs / ours < most, f"{words}: {theirs / ours:.2f}"


def test_the_lines_of_code_of_the_readme_are_those_of_the_examples() -> None:
    root = results.PAGE.parents[1]
    rows = re.findall(
        r"\| (\d+) \| (\d+) \| (\d+) \|$", (root / "examples" / "README.md").read_text(), re.M
    )
    ours, theirs, others = (sum(map(int, column)) for column in zip(*rows, strict=True))
    assert len(rows) == 7
    shown = f"lines of code | {ours} | – | {theirs} | {others} |"
    assert shown in (root / "README.md").read_text()
