"""Plan of a unified diff: hunks placed by content, nearest to their line numbers.

Unlike a chunk in Codex's language a hunk knows about the newline at the end of a file, and lines
are what git takes for lines: text up to LF.
"""

from __future__ import annotations

from collections.abc import Callable

from toolrest.patch.errors import ApplyError, MatchError, Missing
from toolrest.patch.files.file_system import FileSystem
from toolrest.patch.files.paths import Target, resolve
from toolrest.patch.forms.unified import Hunk, UnifiedFile
from toolrest.patch.overlay import Spot
from toolrest.patch.plan import Plan, Planner, Record
from toolrest.patch.text.diff import split_lines
from toolrest.patch.text.encoding import Unreadable, decode
from toolrest.patch.text.long import MOST_PLACES, LongText
from toolrest.patch.text.match import Finder, is_long


def patched(data: bytes, hunks: list[Hunk], label: str, legacy: str | None = None) -> bytes:
    """A file's bytes after these hunks. MatchError when one is not found in it."""
    source = decode(data, legacy)
    mark = source.mark_to_keep([text for hunk in hunks for text in hunk.texts])
    try:
        return source.encode(mark + _apply(source.text[len(mark) :], hunks, label), label)
    except MatchError as error:
        error.missing.data = data
        raise


def _apply(text: str, hunks: list[Hunk], label: str) -> str:
    universal = "\n" not in text
    finder, cut = _lines_of(text, universal, hunks)
    ending = _ending(text, hunks)
    size = len(finder.texts)
    out: list[str] = []
    done = shift = 0
    for number, hunk in enumerate(hunks, start=1):
        place = _place(finder, hunk, number, done, shift, label)
        if hunk.start is not None and hunk.old:
            shift = place - (hunk.start - 1)
        out.append(cut(done, place))
        done = place + len(hunk.old)
        old = split_lines(cut(place, done), universal)
        out += _lines(hunk, old, ending, at_end=done == size)
    out = [part for part in [*out, cut(done, size)] if part]
    # Every line but the last needs an ending.
    out[:-1] = [part if part.endswith(("\n", "\r")) else part + ending for part in out[:-1]]
    return "".join(out)


def _lines_of(
    text: str, universal: bool, hunks: list[Hunk]
) -> tuple[Finder | LongText, Callable[[int, int], str]]:
    """The lines of a text, and what gives a range of them as one text."""
    if is_long(text):
        long = LongText(text, universal=universal)
        return long, long.raw_span
    raw = split_lines(text, universal)
    texts = [line.removesuffix("\r" if universal else "\n") for line in raw]
    finder = Finder(texts, [line for hunk in hunks for line in hunk.texts])
    return finder, lambda first, stop: "".join(raw[first:stop])


def _ending(text: str, hunks: list[Hunk]) -> str:
    """Line ending of new lines: the diff's if it has CRs, else the file's."""
    if any(line.endswith("\r") for hunk in hunks for line in hunk.texts):
        return "\n"
    first = text.find("\n")
    if first < 0 and "\r" in text:
        return "\r"
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def _place(
    finder: Finder | LongText, hunk: Hunk, number: int, done: int, shift: int, label: str
) -> int:
    old = hunk.old
    size = len(finder.texts)
    if not old:
        # Nothing to compare: the number is all there is, and it counts the line before.
        if hunk.start is None or not done <= hunk.start + shift <= size:
            raise ApplyError(
                f"Failed to find the place of hunk {number} in {label}",
                ["a hunk without context or removed lines needs a line number inside the file"],
            )
        return hunk.start + shift
    if hunk.start is None:
        place = _only_place(finder, hunk, number, done, label)
    else:
        place = finder.nearest(old, max(done, hunk.start - 1 + shift), done)
    if place is None:
        missing = Missing(
            label, finder.texts, old=old, new=hunk.new, hunk=number, line=hunk.line, cursor=done
        )
        expected_lines = "\n".join(old)
        raise MatchError(f"Failed to find expected lines in {label}:\n{expected_lines}", missing)
    return place


def _only_place(
    finder: Finder | LongText, hunk: Hunk, number: int, done: int, label: str
) -> int | None:
    """The place of a hunk without a line number: the first one behind its heading, or the only."""
    places = finder.places(hunk.old, done)
    if len(places) < 2:
        return places[0] if places else None
    if hunk.heading:
        headings = (at for at, text in enumerate(finder.texts) if _opens(text, hunk.heading))
        first = next(headings, len(finder.texts))
        behind = next((place for place in places if place >= first), None)
        if behind is not None and next(headings, None) is None:
            return behind
    more = " or more" if len(places) == MOST_PLACES else ""
    raise ApplyError(
        f"Failed to find the place of hunk {number} in {label}",
        [
            f"its lines occur {len(places)} times{more}, at lines"
            f" {', '.join(str(place + 1) for place in places[:5])}{', …' if places[5:] else ''}:"
            " add lines around them, or give the line number (@@ -LINE,COUNT +LINE,COUNT @@)"
        ],
    )


def _opens(text: str, heading: str) -> bool:
    return text.strip().startswith(heading)


def _lines(hunk: Hunk, old: list[str], ending: str, at_end: bool) -> list[str]:
    """The hunk's new lines: context as the file has it, the end of the file as the hunk does."""
    out = []
    index = 0
    for mark, text in zip(hunk.marks, hunk.texts, strict=True):
        if mark == "+":
            out.append(text + ending)
        elif mark == " ":
            out.append(old[index])
        index += mark != "+"
    last = next((mark for mark in reversed(hunk.marks) if mark != "-"), "")
    if at_end and hunk.open_new and last == "+":
        out[-1] = out[-1].removesuffix(ending)
    return out


def plan_diff(
    diffs: list[UnifiedFile], files: FileSystem, cwd: str, legacy: str | None = None
) -> Plan:
    """Plan a unified diff. ApplyError gives the reason when it cannot be applied."""
    planner = Planner(files, cwd, legacy)
    for diff in diffs:
        if diff.old is None and diff.new is not None:
            _make(planner, diff, diff.new)
        elif diff.new is None and diff.old is not None:
            _delete(planner, diff, diff.old)
        else:
            _update(planner, diff)
    return planner.finish()


def paths(diffs: list[UnifiedFile]) -> list[str]:
    """Every path that a diff would write or remove, as spelled, each once."""
    named = (name for diff in diffs for name in (diff.old, diff.new) if name is not None)
    return list(dict.fromkeys(named))


def _make(planner: Planner, diff: UnifiedFile, name: str) -> None:
    target = _target(planner, name)
    if _exists(planner, target):
        raise ApplyError(
            f"File already exists: {target.label}",
            ["the diff says it is new (/dev/null); diff against its content instead"],
        )
    for hunk in diff.hunks:
        hunk.start = 0  # there is only one place in a new file, whatever the line numbers
    content = patched(b"", diff.hunks, target.label)
    spot = planner.write_new(target, content)
    planner.view.changes[spot.real].executable = diff.executable
    planner.records.append(Record(target.label, None, content))
    planner.added.append(name)


def _delete(planner: Planner, diff: UnifiedFile, name: str) -> None:
    target = _target(planner, name)
    _, data = _read(planner, target)
    if _patched(planner, diff, data, target):
        raise ApplyError(
            f"Failed to delete file {target.label}",
            ["the diff does not remove every line that the file has; read it again"],
        )
    planner.remove(target, f"Failed to delete file {target.label}")
    planner.records.append(Record(target.label, data, None))
    planner.deleted.append(name)


def _update(planner: Planner, diff: UnifiedFile) -> None:
    old, new = diff.old or "", diff.new or ""
    moved = diff.renamed or diff.copied
    source = _target(planner, old if moved else _which(planner, old, new))
    spot, data = _read(planner, source)
    content = _patched(planner, diff, data, source)
    target = _target(planner, new) if moved else source
    if moved and target.path != source.path and _exists(planner, target):
        raise ApplyError(f"File already exists: {target.label}")
    if diff.copied:
        landed = planner.write_new(target, content, planner.view.model(spot)).real
        planner.records.append(Record(target.label, None, content))
        planner.added.append(new)
    else:
        planner.replace(source, spot, data, content, target if diff.renamed else None)
        landed = planner.view.spot(target.path).real
    planner.view.changes[landed].executable = diff.executable


def _target(planner: Planner, name: str) -> Target:
    return resolve(planner.cwd, name, literal=True)


def _which(planner: Planner, old: str, new: str) -> str:
    """The file of a plain diff, which may name a backup first: new, unless only old exists."""
    if old == new or _exists(planner, _target(planner, new)):
        return new
    return old if _exists(planner, _target(planner, old)) else new


def _exists(planner: Planner, target: Target) -> bool:
    try:
        return planner.view.spot(target.path).kind != "missing"
    except OSError:
        return False


def _read(planner: Planner, target: Target) -> tuple[Spot, bytes]:
    if not _exists(planner, target):
        raise ApplyError(f"File not found: {target.label}")
    return planner.read(target)


def _patched(planner: Planner, diff: UnifiedFile, data: bytes, target: Target) -> bytes:
    if not diff.hunks:
        return data
    try:
        return patched(data, diff.hunks, target.label, planner.legacy)
    except Unreadable as error:
        message = f"Failed to read file to update {target.label}: {error}"
        raise ApplyError(message) from None
