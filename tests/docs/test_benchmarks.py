"""The benchmarks' page and plots are those of its numbers; `make bench` writes all three."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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


@pytest.mark.slow
@pytest.mark.needs("namespaces")
@pytest.mark.parametrize(
    ("script", "rounds", "said"),
    [
        ("exec", ("2", "1"), "exec_command, sandboxed"),
        ("sandbox", ("2",), "target: 1.3x bwrap; reached"),
    ],
)
def test_a_script_runs(script: str, rounds: tuple[str, ...], said: str) -> None:
    path = Path(results.__file__).parent / f"{script}.py"
    done = subprocess.run([sys.executable, path, *rounds], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_the_figures_of_the_readme_are_those_of_the_numbers() -> None:
    measured = json.loads(results.FILE.read_text())["startup"]["values"]
    text = (results.PAGE.parents[1] / "README.md").read_text()
    assert len(text.splitlines()) < 150
    assert re.findall(r"([\d,.]+ (?:kB|s|ms|µs))\b", text) == [
        f"{measured[f'{name}, an Agent with one tool']:,.0f} ms"
        for name in ("toolrest", "pydantic-ai")
    ]
    today = text.partition("## What works today\n")[2].partition("\n##")[0].strip()
    assert len(today.splitlines()) == 5


# What the page's first paragraph says of Codex's figure over ours, and what that may be.
SUMMARY = {
    "in a third of the time": ("chat-start", "first paint", 2.6, 3.5),
    "two thirds of the bytes": ("chat-stream-bytes", "", 1.4, 1.7),
    "a third of the CPU time": ("chat-stream-cpu", "", 2.8, 3.4),
    "three times as fast (the slowest 1 in 100)": ("chat-echo", "p99", 2.9, 3.9),
    "to ten times (the median)": ("chat-echo", "median", 9.5, 11.5),
    "ready for a message a quarter later": ("chat-start", "ready for a message", 0.75, 0.85),
}


def test_the_summary_is_that_of_the_numbers() -> None:
    charts = json.loads(results.FILE.read_text())
    said = " ".join(results.PAGE.read_text().split("`make bench`")[0].split())
    for words, (chart, bar, least, most) in SUMMARY.items():
        assert words in said
        ours, theirs = (
            charts[chart]["values"][f"{name}, {bar}" if bar else name]
            for name in ("toolrest", "codex 0.169.0")
        )
        assert least <= theirs / ours < most, f"{words}: {theirs / ours:.2f}"
