"""What was measured, kept for the page: docs/benchmarks.json, its plots, and the page's middle.

`make bench` sets BENCH_RESULTS, and each script then records its numbers as it prints them; a
chart that was not measured keeps its earlier numbers, with their own date and load.

    python bench/results.py       plots and page anew from the numbers
"""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

DOCS = Path(__file__).resolve().parent.parent / "docs"
FILE = DOCS / "benchmarks.json"
PAGE = DOCS / "benchmarks.md"
PLOTS = DOCS / "plots"
START, END = "<!-- plots -->", "<!-- /plots -->"
OURS, THEIRS = "#3568c9", "#9aa5b8"
LOGARITHMIC = 200
"""From this ratio of the largest to the smallest value on, bars are logarithmic."""


def record(name: str, title: str, unit: str, values: dict[str, float], about: str = "") -> None:
    """Keep the values of one chart; those whose name begins with `toolrest` are ours."""
    file = os.environ.get("BENCH_RESULTS")
    if not file or not values:
        return
    path = Path(file)
    charts = json.loads(path.read_text()) if path.exists() else {}
    charts[name] = {
        "title": title,
        "unit": unit,
        "about": about,
        "values": {key: float(f"{value:.4g}") for key, value in values.items()},
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    text = json.dumps(dict(sorted(charts.items())), indent=1, ensure_ascii=False)
    path.write_text(text + "\n")


def number(value: float) -> str:
    """A value as it is written beside its bar."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def bars(chart: dict[str, Any]) -> str:
    """Horizontal bars as an SVG with a background of its own, for light and dark pages."""
    from math import log10

    values: dict[str, float] = chart["values"]
    top, low = max(values.values()), min(value for value in values.values() if value > 0)
    steep = top / low > LOGARITHMIC
    left, width, step = 16 + 8 * max(map(len, values)), 720, 28
    room = width - left - 90

    def length(value: float) -> float:
        if value <= 0:
            return 1
        share = log10(value / low * 2) / log10(top / low * 2) if steep else value / top
        return max(room * share, 1)

    unit = f"{chart['unit']}{', logarithmic' if steep else ''}; less is better"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {44 + step * len(values)}"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        '<rect width="100%" height="100%" rx="8" fill="#fbfcfe"/>',
        f'<text x="12" y="22" fill="#5b6577" font-size="12">{escape(unit)}</text>',
    ]
    for row, (name, value) in enumerate(values.items()):
        y = 36 + step * row
        ours = name.startswith("toolrest")
        weight = "600" if ours else "400"
        parts += [
            f'<text x="{left - 6}" y="{y + 14}" fill="#1d2430" text-anchor="end"'
            f' font-weight="{weight}">{escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{length(value):.0f}" height="18" rx="3"'
            f' fill="{OURS if ours else THEIRS}"/>',
            f'<text x="{left + length(value) + 6:.0f}" y="{y + 14}" fill="#1d2430">'
            f"{number(value)}</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def part(name: str, chart: dict[str, Any]) -> str:
    """A chart's part of the page."""
    words = ", ".join(f"{key} {number(value)}" for key, value in chart["values"].items())
    load = "quiet" if chart["load"] is None else f"load {chart['load']}"
    measured = f"Measured {chart['when']}: {chart['cores']} cores, {load}"
    measured += f", Python {chart['python']}." if chart["python"] else "."
    about = f"{chart['about']} " if chart["about"] else ""
    return (
        f"### {chart['title']}\n\n![{words} ({chart['unit']})](plots/{name}.svg)\n\n"
        f"{about}{measured}"
    )


def page(charts: dict[str, Any], before: str) -> str:
    """The page with these charts in its middle."""
    head, _, rest = before.partition(START)
    _, _, tail = rest.partition(END)
    middle = "\n\n".join(part(name, chart) for name, chart in charts.items())
    return f"{head}{START}\n\n{middle}\n\n{END}{tail}"


def write() -> None:
    """Write the plots and the page from the numbers."""
    charts = json.loads(FILE.read_text())
    PLOTS.mkdir(exist_ok=True)
    for old in PLOTS.iterdir():
        old.unlink()
    for name, chart in charts.items():
        (PLOTS / f"{name}.svg").write_text(bars(chart))
    PAGE.write_text(page(charts, PAGE.read_text()))


if __name__ == "__main__":
    write()
