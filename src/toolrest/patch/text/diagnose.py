"""Diagnosis of a hunk that does not match: nearest candidate, first difference, likely cause.

None of this changes what is applied: it follows the documented message, for a model that
would otherwise have to guess.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import asdict

from toolrest.items import JSONObject
from toolrest.patch.errors import EditError, MatchError, Missing, PatchError
from toolrest.patch.text.long import EXACT_ONLY, LongText
from toolrest.patch.text.match import Finder, folded

REDACTED = "[redacted:"
_MOST_LINES = 400
_MOST_PLACES = 200
_SHOWN = 160


class Diagnosis(Struct, frozen=True):
    """The diagnosis of a hunk that was not found. Line numbers count from 1.

    `first` to `last` is the nearest candidate, where `agreeing` of `total` lines are as expected;
    at `line` the patch expects `expected` and the file has `found` (None: it has ended).
    `above` is where the lines are, if only above the hunk before; `applied` where the new lines
    already are.
    """

    path: str
    hunk: int
    patch_line: int
    sha256: str
    total: int
    agreeing: int = 0
    first: int | None = None
    last: int | None = None
    line: int | None = None
    expected: str | None = None
    found: str | None = None
    above: int | None = None
    applied: int | None = None
    redacted: bool = False

    def to_json(self) -> JSONObject:
        """The diagnosis as JSON, for events and structured output."""
        return asdict(self)

    def notes(self) -> list[str]:
        """The diagnosis as notes for a model, one line each."""
        where = f"hunk {self.hunk} of {self.path}"
        if self.patch_line:
            where += f" (line {self.patch_line} of the patch)"
        notes = [f"{where}: {self._nearest()}"]
        if self.line is not None:
            has = "the file has ended" if self.found is None else f"found {_shown(self.found)}"
            notes.append(
                f"first difference at line {self.line}: expected {_shown(self.expected)}, {has}"
            )
        if self.above is not None:
            notes.append(
                f"these lines are at line {self.above}, above the hunk before: "
                "hunks must come in the order of the file"
            )
        if self.applied is not None:
            notes.append(f"already applied: the new lines are in the file at line {self.applied}")
        if self.redacted:
            notes.append("redacted text never matches a file: leave out lines that show it")
        return notes

    def _nearest(self) -> str:
        if self.first is None:
            return "nothing in the file resembles these lines; read it again"
        place = f"line {self.first}"
        if self.last != self.first:
            place = f"lines {self.first}-{self.last}"
        return f"the nearest candidate is {place}, where {self.agreeing} of {self.total} agree"


def notes(error: PatchError) -> list[str]:
    """The notes for a model after this error, one line each."""
    missing = missing_of(error)
    if missing is None:
        return list(error.notes)
    if isinstance(missing.texts, LongText):
        return [*error.notes, EXACT_ONLY]
    return [*error.notes, *diagnose(missing).notes()]


def missing_of(error: PatchError) -> Missing | None:
    """The lines that were not found, when that is the error."""
    return error.missing if isinstance(error, MatchError | EditError) else None


def diagnose(missing: Missing) -> Diagnosis:
    """Look for the lines that a hunk may have meant."""
    wanted = [missing.context] if missing.context is not None else missing.old
    keys = [folded(text) for text in missing.texts]
    asked = [folded(line) for line in wanted]
    start = _candidate(keys, asked, missing.cursor)
    known = Diagnosis(
        path=missing.label,
        hunk=missing.hunk,
        patch_line=missing.line,
        sha256=sha256(missing.data).hexdigest() if missing.data else "",
        total=len(wanted),
        above=_above(missing, wanted),
        applied=_applied(missing),
        redacted=any(REDACTED in line for line in wanted),
    )
    if start is None:
        return known
    return _at(known, missing.texts, wanted, keys, asked, start)


def _at(
    known: Diagnosis,
    texts: Sequence[str],
    wanted: list[str],
    keys: list[str],
    asked: list[str],
    start: int,
) -> Diagnosis:
    here = keys[start : start + len(asked)]
    agreeing = sum(one == other for one, other in zip(here, asked, strict=False))
    differing = next((i for i, line in enumerate(asked) if i >= len(here) or here[i] != line), None)
    details = asdict(known)
    details |= {
        "agreeing": agreeing,
        "first": start + 1,
        "last": start + len(here),
    }
    if differing is not None:
        details |= {
            "line": start + differing + 1,
            "expected": wanted[differing],
            "found": texts[start + differing] if differing < len(here) else None,
        }
    return Diagnosis(**details)


def _candidate(keys: list[str], asked: list[str], cursor: int) -> int | None:
    """Index where most of the lines agree; of equals the one nearest to the cursor."""
    places: dict[str, list[int]] = defaultdict(list)
    interesting = set(asked[:_MOST_LINES])
    for index, key in enumerate(keys):
        if key in interesting:
            places[key].append(index)
    votes: Counter[int] = Counter()
    for offset, line in enumerate(asked[:_MOST_LINES]):
        if line and len(places[line]) <= _MOST_PLACES:
            votes.update(place - offset for place in places[line] if place >= offset)
    if votes:
        return min(votes, key=lambda start: (-votes[start], abs(start - cursor)))
    return _alike(keys, asked, cursor)


def _alike(keys: list[str], asked: list[str], cursor: int) -> int | None:
    """Index of the line that shares most words with the longest of the lines."""
    offset, line = max(enumerate(asked), key=lambda pair: len(pair[1]), default=(0, ""))
    words = set(line.split())
    best, score = None, 0
    for index, key in enumerate(keys):
        shared = len(words.intersection(key.split())) if key else 0
        nearer = best is not None and abs(index - cursor) < abs(best - cursor)
        if shared > score or (shared == score and score and nearer):
            best, score = index, shared
    return None if best is None else max(0, best - offset)


def _above(missing: Missing, wanted: list[str]) -> int | None:
    if not missing.cursor or not wanted:
        return None
    place = Finder(missing.texts, wanted).find(wanted, 0)
    return None if place is None or place >= missing.cursor else place + 1


def _applied(missing: Missing) -> int | None:
    """Line number of the new lines, if there is enough of them to rule out chance."""
    new = missing.new
    added = [line for line in new if line.strip() and line not in missing.old]
    if not added and len([line for line in new if line.strip()]) < 2:
        return None
    place = Finder(missing.texts, new).find(new, 0)
    return None if place is None else place + 1


def _shown(line: str | None) -> str:
    line = line or ""
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…")
