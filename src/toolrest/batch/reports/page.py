"""The HTML page of a batch: distributions of turns, cost and time, and a table with links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from msgspec import Struct

from toolrest.batch.run_task import task_folder
from toolrest.items import JSONObject

_BARS = 20
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Batch {name}</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem;
  color: #1f2328; background: #fff }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; padding: .2rem .6rem; border-bottom: 1px solid #ddd }}
td.n, th.n {{ text-align: right; font-variant-numeric: tabular-nums }}
.charts {{ display: flex; flex-wrap: wrap; gap: 1.5rem }}
figure {{ margin: 0 }} figcaption {{ color: #57606a }} rect {{ fill: #3b7dd8 }}
.bad {{ color: #b3261e }}
@media (prefers-color-scheme: dark) {{ body {{ color: #e6edf3; background: #0d1117 }}
  th, td {{ border-color: #333 }} figcaption {{ color: #9aa4af }} .bad {{ color: #ff8a80 }} }}
</style>
<h1>Batch {name}</h1>
<p>{summary}</p>
<div class="charts">{charts}</div>
<h2>Tasks</h2>
<table><tr><th>task<th>end<th class="n">score<th class="n">turns<th class="n">calls
<th class="n">tokens<th class="n">cost<th class="n">seconds<th class="n">attempts<th>files</tr>
{rows}
</table></html>
"""


def results_page(rows: Sequence[JSONObject], name: str) -> str:
    """One page without scripts or files of its own; links lead into the store."""
    failures = Counter(str(row["failure"]) for row in rows if row["failure"] is not None)
    parts = [f"{len(rows)} results, {sum(failures.values())} failed"]
    parts += [f"{escape(kind)}: {count}" for kind, count in failures.most_common()]
    scores = [score for row in rows if (score := _score(row)) is not None]
    if scores:
        parts.append(f"mean score of {len(scores)}: {sum(scores) / len(scores):.3f}")
    models = Counter(str(row["model"]) for row in rows if row.get("model"))
    parts += [f"{escape(model)}: {count}" for model, count in models.most_common()]
    return _PAGE.format(
        name=escape(name),
        summary="; ".join(parts),
        charts="".join(map(_chart, histograms(rows))),
        rows="\n".join(map(_row, rows)),
    )


def _tokens(row: JSONObject) -> int:
    return int((row.get("usage") or {}).get("total_tokens") or 0)


def _score(row: JSONObject) -> float | None:
    score: float | None = (row.get("check") or {}).get("score")
    return score


def _row(row: JSONObject) -> str:
    failure = row["failure"]
    error = escape(str(row.get("error") or ""))
    end = f'<span class="bad" title="{error}">{escape(str(failure))}</span>' if failure else "done"
    score, cost = _score(row), row.get("cost")
    numbers = (
        "" if score is None else f"{score:g}",
        row.get("turns"),
        row.get("tool_calls"),
        f"{_tokens(row):,}",
        "" if cost is None else f"{cost:.4f}",
        f"{row.get('seconds') or 0:.1f}",
        len(row.get("attempts") or []),
    )
    cells = "".join(f'<td class="n">{escape(str(value))}' for value in numbers)
    folder = quote(f"{task_folder(row['key'])}/")
    names = ("result.json", "journal.jsonl", "events.jsonl")
    links = " ".join(f'<a href="{folder}{name}">{name.partition(".")[0]}</a>' for name in names)
    return f"<tr><td>{escape(str(row['id']))}<td>{end}{cells}<td>{links}</tr>"


class Distribution(Struct, frozen=True):
    """How often a number has which value: the counts of equal steps from `low` to `high`."""

    title: str
    low: float
    high: float
    median: float
    counts: tuple[int, ...]

    @property
    def caption(self) -> str:
        """Range and median in words."""
        return f"{self.title}: {self.low:g} to {self.high:g}, median {self.median:g}"


def histograms(rows: Sequence[JSONObject]) -> list[Distribution]:
    """Turns, time, tokens, cost and score of results, as far as they are known."""
    columns = (
        ("turns", [float(row.get("turns") or 0) for row in rows]),
        ("seconds", [float(row.get("seconds") or 0) for row in rows]),
        ("tokens", [float(_tokens(row)) for row in rows]),
        ("cost in $", [float(row["cost"]) for row in rows if row.get("cost") is not None]),
        ("score", [float(s) for row in rows if (s := _score(row)) is not None]),
    )
    return [_distribution(title, values) for title, values in columns if values]


def _distribution(title: str, values: Sequence[float]) -> Distribution:
    low, high = min(values), max(values)
    step = (high - low) / _BARS or 1.0
    counts = Counter(min(int((value - low) / step), _BARS - 1) for value in values)
    middle = sorted(values)[len(values) // 2]
    return Distribution(title, low, high, middle, tuple(counts[at] for at in range(_BARS)))


def _chart(shown: Distribution) -> str:
    """A histogram as SVG."""
    most = max(shown.counts)
    step = (shown.high - shown.low) / _BARS or 1.0
    bars = "".join(
        f'<rect x="{at * 12}" y="{80 - 78 * count / most:.1f}" width="11" '
        f'height="{78 * count / most:.1f}"><title>{shown.low + at * step:g}: {count}</title></rect>'
        for at, count in enumerate(shown.counts)
        if count
    )
    caption = escape(shown.caption)
    chart = f'<svg width="240" height="80" role="img" aria-label="{caption}">{bars}</svg>'
    return f"<figure>{chart}<figcaption>{caption}</figcaption></figure>"
