"""Line diffs of two texts: a shortest edit script, and its unified diff.

Small texts are compared whole by Myers' algorithm; large ones are first cut at lines that occur
exactly once in both. Where even a piece is too different to be worth the time, it counts as
replaced: longer than necessary, but right. Of very large ones only what lies between their common
beginning and end is made lines, and where those are too many, their numbers are all that is said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import NamedTuple

from toolrest.patch.text.long import count_ends
from toolrest.patch.text.match import MOST_LINES, is_long
from toolrest.patch.text.rebuild import TextLines

_SMALL = 2_000
_LARGE = 1 << 20
"""Characters of two texts from which on their common beginning and end are dropped first."""
_BLOCK = 1 << 16
_BUDGET = 400_000
NO_NEWLINE = "\\ No newline at end of file"


class LineEdit(NamedTuple):
    """Lines `start` to `stop` of the old text become lines `begin` to `end` of the new."""

    start: int
    stop: int
    begin: int
    end: int


def unified_diff(old: str, new: str, context: int = 3, *, universal: bool = True) -> str:
    """The hunks that turn one text into the other, without file names; empty when equal.

    Lines end at LF, CRLF or CR; with `universal=False` at LF only, as git reads them.
    """
    if old == new:
        return ""
    ends = ("\n", "\r") if universal else ("\n",)
    first = kept = 0
    if len(old) + len(new) >= _LARGE or is_long(old) or is_long(new):
        old, new, first, kept = _middle_of(old, new, context, universal)
        counts = [count_ends(text, universal=universal) for text in (old, new)]
        if sum(counts) > MOST_LINES:
            return _left_out(old, new, first, ends)
    before, after = split_lines(old, universal), split_lines(new, universal)
    hunks = _grouped(edits(before, after, kept), context)
    text = _Text(before, after, ends, first)
    return "".join(line for hunk in hunks for line in text.hunk(hunk, context))


def split_lines(text: str, universal: bool = True) -> list[str]:
    """The lines of a text with their endings."""
    return TextLines(text).raw if universal else StringIO(text, newline="\n").readlines()


def edits(old: Sequence[str], new: Sequence[str], kept: int = 0) -> list[LineEdit]:
    """The differences in order; an insertion lies as low as possible above `kept` last lines."""
    numbers: dict[str, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    size = len(a) - kept
    return _slid_down(_joined(_pieces(a[:size], b[: len(b) - kept])), size, b)


# Showing


def _grouped(changes: list[LineEdit], context: int) -> Iterator[list[LineEdit]]:
    group: list[LineEdit] = []
    for edit in changes:
        if group and edit.start - group[-1].stop > 2 * context:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


class _Text:
    """Writes hunks. `ends` are the characters that close a line; `first` lines are not there."""

    def __init__(
        self, before: list[str], after: list[str], ends: tuple[str, ...], first: int
    ) -> None:
        self.before = before
        self.after = after
        self.ends = ends
        self.first = first

    def hunk(self, group: list[LineEdit], context: int) -> Iterator[str]:
        lead = min(context, group[0].start)
        trail = min(context, len(self.before) - group[-1].stop)
        start, stop = group[0].start - lead, group[-1].stop + trail
        begin, end = group[0].begin - lead, group[-1].end + trail
        yield _head(self.first, start, stop, begin, end)
        at = start
        for edit in group:
            yield from self._marked(" ", self.before[at : edit.start])
            yield from self._marked("-", self.before[edit.start : edit.stop])
            yield from self._marked("+", self.after[edit.begin : edit.end])
            at = edit.stop
        yield from self._marked(" ", self.before[at:stop])

    def _marked(self, mark: str, lines: list[str]) -> Iterator[str]:
        for line in lines:
            yield mark + line
        if lines and not lines[-1].endswith(self.ends):
            yield f"\n{NO_NEWLINE}\n"


def _left_out(old: str, new: str, first: int, ends: tuple[str, ...]) -> str:
    """A hunk that says how many lines it would have. A line with a backslash is none of a file."""
    gone, come = (
        count_ends(text, universal=len(ends) > 1) + bool(text and not text.endswith(ends))
        for text in (old, new)
    )
    return (
        f"{_head(first, 0, gone, 0, come)}"
        f"\\ Too many lines to list: {gone:,} before, {come:,} after\n"
    )


def _head(first: int, start: int, stop: int, begin: int, end: int) -> str:
    old, new = _range(first + start, first + stop), _range(first + begin, first + end)
    return f"@@ -{old} +{new} @@\n"


def _range(start: int, stop: int) -> str:
    size = stop - start
    if size == 1:
        return str(start + 1)
    return f"{start + 1 if size else start},{size}"


# Dropping what is common


def _middle_of(old: str, new: str, context: int, universal: bool) -> tuple[str, str, int, int]:
    """What differs, with context, the lines before it, and the lines of context behind it."""
    end = "\r" if universal and "\n" not in old and "\n" not in new else "\n"
    start = common = _common_beginning(old, new)
    for _ in range(context + 1):
        start = old.rfind(end, 0, max(start - 1, 0)) + 1
    tail = _common_end(old, new, min(len(old), len(new)) - common)
    # Its first line may differ in what is before it.
    stop = len(old) - tail
    kept = 0
    for number in range(context + 1):
        stop = old.find(end, stop) + 1 or len(old)
        kept += number > 0 and stop < len(old)
    behind = len(old) - stop
    first = count_ends(old, 0, start, universal=universal)
    return old[start:stop], new[start : len(new) - behind], first, kept if behind else 0


def _common_beginning(old: str, new: str) -> int:
    """How many characters at the beginning are the same."""
    most = min(len(old), len(new))
    at, step = 0, _BLOCK
    while step and at < most:
        if old.startswith(new[at : min(at + step, most)], at):
            at = min(at + step, most)
        else:
            step //= 2
    return at


def _common_end(old: str, new: str, most: int) -> int:
    """How many characters at the end are the same, `most` at most."""
    size, step = 0, _BLOCK
    while step and size < most:
        more = min(size + step, most)
        if old.endswith(new[len(new) - more : len(new) - size], 0, len(old) - size):
            size = more
        else:
            step //= 2
    return size


# Comparing


def _pieces(a: list[int], b: list[int]) -> Iterator[LineEdit]:
    budget = _Budget()
    if len(a) + len(b) <= _SMALL:
        yield from _myers(a, b, LineEdit(0, len(a), 0, len(b)), budget)
        return
    for piece in _between_anchors(a, b):
        yield from _myers(a, b, piece, budget)


def _between_anchors(a: list[int], b: list[int]) -> Iterator[LineEdit]:
    """The stretches between lines that are unique in both texts and in the same order."""
    once_a = {line for line, count in Counter(a).items() if count == 1}
    once = {line for line, count in Counter(b).items() if count == 1 and line in once_a}
    places = {line: index for index, line in enumerate(b) if line in once}
    pairs = [(index, places[line]) for index, line in enumerate(a) if line in once]
    start = begin = 0
    for x, y in _rising(pairs):
        if x > start or y > begin:
            yield LineEdit(start, x, begin, y)
        start, begin = x + 1, y + 1
    yield LineEdit(start, len(a), begin, len(b))


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest choice of pairs in which both numbers rise."""
    tails: list[int] = []
    at: list[int] = []
    previous: list[int] = []
    for index, (_, y) in enumerate(pairs):
        level = bisect_left(tails, y)
        previous.append(at[level - 1] if level else -1)
        if level == len(tails):
            tails.append(y)
            at.append(index)
        else:
            tails[level] = y
            at[level] = index
    chosen = []
    index = at[-1] if at else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = previous[index]
    return chosen[::-1]


def _myers(a: list[int], b: list[int], whole: LineEdit, budget: _Budget) -> Iterator[LineEdit]:
    """Split at the middle of a shortest path until only pure changes are left."""
    waiting = [whole]
    while waiting:
        start, stop, begin, end = waiting.pop()
        while start < stop and begin < end and a[start] == b[begin]:
            start, begin = start + 1, begin + 1
        while start < stop and begin < end and a[stop - 1] == b[end - 1]:
            stop, end = stop - 1, end - 1
        if start == stop and begin == end:
            continue
        middle = None
        if start < stop and begin < end:
            middle = _middle(a[start:stop], b[begin:end], budget)
        if middle is None:
            yield LineEdit(start, stop, begin, end)
            continue
        x, y = start + middle[0], begin + middle[1]
        waiting += [LineEdit(x, stop, y, end), LineEdit(start, x, begin, y)]


class _Budget:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _BUDGET


def _middle(a: list[int], b: list[int], budget: _Budget) -> tuple[int, int] | None:
    """A point on a shortest path, found from both ends; None when there is nothing to split."""
    n, m = len(a), len(b)
    delta = n - m
    odd = delta % 2 != 0
    forward, backward = {1: 0}, {1: 0}
    reverse_a, reverse_b = a[::-1], b[::-1]
    for d in range((n + m + 1) // 2 + 1):
        budget.left -= 2 * d + 1
        if budget.left < 0:
            return None
        for k in range(d, -d - 1, -2):
            x = _furthest(forward, k, d)
            snake = _snake(a, b, x, x - k, budget)
            forward[k] = x + snake
            if odd and abs(k - delta) < d and forward[k] + backward.get(delta - k, 0) >= n:
                return _inside(x, x - k, n, m)
        for k in range(d, -d - 1, -2):
            x = _furthest(backward, k, d)
            x += _snake(reverse_a, reverse_b, x, x - k, budget)
            backward[k] = x
            if not odd and abs(k - delta) <= d and x + forward.get(delta - k, 0) >= n:
                return _inside(n - x, m - (x - k), n, m)
    return None


def _furthest(reach: dict[int, int], k: int, d: int) -> int:
    if k == -d or (k != d and reach[k - 1] < reach[k + 1]):
        return reach[k + 1]
    return reach[k - 1] + 1


def _snake(a: list[int], b: list[int], x: int, y: int, budget: _Budget) -> int:
    start = x
    while x < len(a) and y < len(b) and a[x] == b[y]:
        x, y = x + 1, y + 1
    budget.left -= x - start
    return x - start


def _inside(x: int, y: int, n: int, m: int) -> tuple[int, int] | None:
    """The split point, or None unless it leaves two smaller pieces."""
    return None if (x, y) in ((0, 0), (n, m)) else (x, y)


# Tidying


def _joined(pieces: Iterator[LineEdit]) -> list[LineEdit]:
    """The edits, with neighbours that have no equal line between them joined."""
    joined: list[LineEdit] = []
    for edit in pieces:
        last = joined[-1] if joined else None
        if last is not None and last.stop == edit.start and last.end == edit.begin:
            joined[-1] = LineEdit(last.start, edit.stop, last.begin, edit.end)
        else:
            joined.append(edit)
    return joined


def _slid_down(changes: list[LineEdit], size: int, b: list[int]) -> list[LineEdit]:
    """The edits, with insertions moved down as far as the equal lines behind them allow."""
    done: list[LineEdit] = []
    waiting = changes[::-1]
    while waiting:
        edit = waiting.pop()
        limit = waiting[-1].start if waiting else size
        *left, edit = _slid(edit, limit - edit.stop, b)
        done += left
        if waiting and edit.stop == limit:
            follower = waiting.pop()
            waiting.append(LineEdit(edit.start, follower.stop, edit.begin, follower.end))
        else:
            done.append(edit)
    return done


def _slid(edit: LineEdit, room: int, b: list[int]) -> list[LineEdit]:
    """The edit after sliding; an insertion that can slide parts from its deletion."""
    start, stop, begin, end = edit
    down = 0
    while begin < end and down < room and b[begin + down] == b[end + down]:
        down += 1
    lower = LineEdit(stop + down, stop + down, begin + down, end + down)
    if not down:
        return [edit]
    return [lower] if start == stop else [LineEdit(start, stop, begin, begin), lower]
