"""The drawing of changes: numbered lines, red and green, with the words that changed marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolrest.timeline.cells import FileDiff
from toolrest.timeline.text import safe_lines
from toolrest.timeline.wrap import Line

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_ALIKE = 0.5
_LONGEST = 400
"""Letters of a line whose changed words are looked for."""
_PAIRS = 200
_MOST_WORDS = 100
"""The lines of a change, and the words of a line, that are looked at: each takes its time."""
_KINDS = {"+": "green", "-": "red", "@": "cyan", " ": ""}


def diff_lines(file: FileDiff) -> list[Line]:
    """The lines of a change, with the line numbers of the file as it is now (or was)."""
    if file.kind != "update":
        sign, style = ("+", "green") if file.kind == "add" else ("-", "red")
        return [
            [_number(number), (style, f"{sign}{safe_lines(text)[0]}")]
            for number, text in enumerate(_lines(file.text), 1)
        ]
    found: list[Line] = []
    old = new = 0
    in_hunk = False
    body = _lines(file.text)
    for text, pieces in zip(body, _coloured(body), strict=True):
        if text.startswith("@@"):
            if in_hunk:
                found.append([("dim", "      ⋮")])
            old, new = _hunk(text)
            in_hunk = True
        elif in_hunk or not text.startswith(("--- ", "+++ ")):
            found.append([_number(old if text.startswith("-") else new), *pieces])
            old += not text.startswith("+")
            new += not text.startswith("-")
    return found


def unified_lines(text: str) -> list[Line]:
    """A diff of any number of files as it is, in colours."""
    lines = _lines(text)
    found = list(_coloured(lines))
    in_hunk = False
    for number, line in enumerate(lines):
        in_hunk = line.startswith("@@") or (in_hunk and line[:1] in ("+", "-", " ", "\\"))
        if not in_hunk:
            found[number] = [("bold", safe_lines(line)[0])]
        elif line.startswith("@@"):
            found[number] = [("cyan", safe_lines(line)[0])]
    return found


def counts(lines: Sequence[Line]) -> tuple[int, int]:
    """How many of a change's lines were added and removed."""
    signs = [line[1][0].partition(" ")[0] for line in lines if len(line) > 1]
    return signs.count("green"), signs.count("red")


def _number(number: int) -> tuple[str, str]:
    return "dim", f"  {number:>5} "


def _coloured(lines: Sequence[str]) -> Iterator[Line]:
    """The lines in the colours of their signs; where lines replace others, the words too."""
    at, left = 0, _PAIRS
    while at < len(lines):
        removed = _run(lines, at, "-")
        added = _run(lines, at + removed, "+")
        if removed and removed == added <= left:
            left -= removed
            pairs = [_changed(lines[at + n], lines[at + removed + n]) for n in range(removed)]
            yield from (before for before, _ in pairs)
            yield from (after for _, after in pairs)
        else:
            for line in lines[at : at + max(removed + added, 1)]:
                text = safe_lines(line)[0]
                yield [(_KINDS.get(line[:1], "dim"), text)] if text else []
        at += max(removed + added, 1)


def _run(lines: Sequence[str], start: int, sign: str) -> int:
    end = start
    while end < len(lines) and lines[end].startswith(sign):
        end += 1
    return end - start


def _changed(before: str, after: str) -> tuple[Line, Line]:
    # Slow to import, and needed where lines replace others alone.
    from difflib import SequenceMatcher

    old, new = safe_lines(before)[0], safe_lines(after)[0]
    plain: tuple[Line, Line] = [("red", old)], [("green", new)]
    if len(old) > _LONGEST or len(new) > _LONGEST:
        return plain
    olds, news = _WORDS.findall(old[1:]), _WORDS.findall(new[1:])
    if max(len(olds), len(news)) > _MOST_WORDS:
        return plain
    match = SequenceMatcher(None, olds, news, autojunk=False)
    if match.ratio() < _ALIKE:
        return plain
    left: Line = [("red", "-")]
    right: Line = [("green", "+")]
    for kind, a, b, c, d in match.get_opcodes():
        mark = "" if kind == "equal" else " changed"
        left += [(f"red{mark}", text)] if (text := "".join(olds[a:b])) else []
        right += [(f"green{mark}", text)] if (text := "".join(news[c:d])) else []
    return left, right


def _lines(text: str) -> list[str]:
    """The lines as diffs have them; `splitlines` also takes a form feed or U+2028 for an end."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if not lines[-1] else lines


def _hunk(head: str) -> tuple[int, int]:
    """The first line numbers of a hunk, before and after; 1 where it names none."""
    numbers = [1, 1]
    for word in head.split()[1:3]:
        digits = word[1:].partition(",")[0]
        if word[:1] in "+-" and digits.isdigit():
            numbers[word[0] == "+"] = int(digits)
    return numbers[0], numbers[1]
