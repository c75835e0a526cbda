"""String edits: replace a text that occurs exactly once in a file, or every occurrence.

Nothing is expanded in the new text, an edit that is not unique is refused with the count, and all
edits of a call apply or none. Line endings need not match; the file's are kept.

Models often get the indentation of what they quote wrong. When the exact text is not found, whole
lines are compared without the white space around them; the new lines are then indented as the
lines in the file are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct

from toolrest.patch.errors import ApplyError, EditError, Missing
from toolrest.patch.files.file_system import FileSystem
from toolrest.patch.files.paths import Target, resolve
from toolrest.patch.plan import Plan, Planner
from toolrest.patch.text.encoding import Unreadable, decode
from toolrest.patch.text.long import count_ends, first_ending
from toolrest.patch.text.match import is_long
from toolrest.patch.text.rebuild import TextLines, lines_of


class Loose(NamedTuple):
    """A match but for white space: span, first line (from 1), and the replacement."""

    start: int
    stop: int
    line: int
    new: str


def ignoring_whitespace(text: str, old: str, new: str) -> list[Loose]:
    """Every match of `old` whose lines differ only in the white space around them."""
    wanted = TextLines(old).texts
    bare = [line.strip() for line in wanted]
    if not any(bare):
        return []
    lines = TextLines(text)
    offsets = [0, *accumulate(map(len, lines.raw))]
    ended = old.endswith(("\n", "\r"))
    places = list(_windows([line.strip() for line in lines.texts], bare))
    found = []
    for at in places:
        last = at + len(bare) - 1
        stop = offsets[last + 1] if ended else offsets[last] + len(lines.texts[last])
        # Several matches are refused, so only a single one needs its replacement.
        only = len(places) == 1
        moved = _moved(new, wanted, lines.texts[at : last + 1]) if only else new
        found.append(Loose(offsets[at], stop, at + 1, moved))
    return found


def _windows(lines: list[str], wanted: list[str]) -> Iterator[int]:
    """Indices where the wanted lines follow each other, found by the longest of them."""
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    for at, line in enumerate(lines):
        first = at - anchor
        if line != wanted[anchor] or not 0 <= first <= len(lines) - len(wanted):
            continue
        if lines[first : first + len(wanted)] == wanted:
            yield first


def _moved(new: str, quoted: list[str], real: list[str]) -> str:
    """The new text, indented as the real lines are where the quoted ones were not."""
    first = next(index for index, line in enumerate(quoted) if line.strip())
    wrong, right = _indent(quoted[first]), _indent(real[first])
    lines = new.replace("\r\n", "\n").split("\n")
    return "\n".join(
        right + line[len(wrong) :] if line.strip() and line.startswith(wrong) else line
        for line in lines
    )


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


_PATHS = ("path", "file_path")
_OLD = ("oldText", "old_string")
_NEW = ("newText", "new_string")
_ALL = ("replaceAll", "replace_all")
_DRY = ("dryRun", "dry_run")
_LISTED = 5
_COUNTED = 10_000
_MOST = 1_000_000
_LARGEST = 128 << 20
"""Characters that a file may grow to: a few edits that each double it would fill any memory."""


class Edit(NamedTuple):
    """Replace `old` by `new`: the only one, or every one."""

    old: str
    new: str
    replace_all: bool = False


class EditRequest(Struct, frozen=True):
    """The edits of one file; with `dry_run` nothing is written."""

    path: str
    edits: tuple[Edit, ...]
    dry_run: bool = False


class EditPlan(Struct, frozen=True):
    """The plan of string edits. `plan` is None when they change nothing."""

    plan: Plan | None
    replacements: int


def is_edit(arguments: Mapping[str, Any]) -> bool:
    """Whether a call's arguments are string edits."""
    return any(name in arguments for name in (*_OLD, *_NEW, "edits"))


def from_arguments(arguments: Mapping[str, Any]) -> EditRequest:
    """Read a call's arguments, in any of the spellings. EditError names the field at fault."""
    path = _field(arguments, _PATHS, str)
    if not path:
        raise EditError("file_path is missing: name the file to edit")
    single = any(name in arguments for name in (*_OLD, *_NEW))
    listed = arguments.get("edits")
    if single and listed is not None:
        raise EditError("Use either edits or old_string/new_string, not both")
    if single:
        found = [_edit(arguments, "")]
    elif isinstance(listed, Sequence) and not isinstance(listed, str) and listed:
        found = [_edit(item, f"edits[{index}].") for index, item in enumerate(listed)]
    else:
        raise EditError("Provide old_string/new_string, or edits with at least one of them")
    return EditRequest(path, tuple(found), bool(_field(arguments, _DRY, bool)))


def _edit(item: Any, where: str) -> Edit:
    if not isinstance(item, Mapping):
        raise EditError(f"{where.rstrip('.')} must be an object with old_string and new_string")
    old, new = _field(item, _OLD, str, where), _field(item, _NEW, str, where)
    if old is None or new is None:
        name = _OLD[1] if old is None else _NEW[1]
        raise EditError(f"{where}{name} is missing. Provide old_string/new_string")
    if not old:
        raise EditError(f"{where}old_string cannot be empty; write_file makes new files")
    return Edit(old, new, bool(_field(item, _ALL, bool, where)))


def _field(
    arguments: Mapping[str, Any], names: tuple[str, ...], kind: type, where: str = ""
) -> Any:
    for name in names:
        value = arguments.get(name)
        if value is not None:
            if not isinstance(value, kind):
                raise EditError(f"{where}{name} must be a {kind.__name__}")
            return value
    return None


def plan_edits(
    request: EditRequest, files: FileSystem, cwd: str, legacy: str | None = None
) -> EditPlan:
    """Plan the edits of a file. PatchError names the one that cannot be made, and the reason."""
    planner = Planner(files, cwd, legacy)
    target = resolve(cwd, request.path, literal=True)
    try:
        spot, data = planner.read(target)
        source = decode(data, legacy)
    except ApplyError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise EditError(f"file does not exist: {target.label}") from None
        raise
    except Unreadable as error:
        raise ApplyError(f"Failed to read file to update {target.label}: {error}") from None
    try:
        text, count = edited(source.text, request.edits, target, planner.notes)
    except EditError as error:
        if error.missing is not None:
            error.missing.data = data
        raise
    content = source.encode(text, target.label)
    if content == data:
        return EditPlan(None, count)
    planner.replace(target, spot, data, content)
    return EditPlan(planner.finish(), count)


def edited(
    text: str, edits: Sequence[Edit], target: Target, notes: list[str] | None = None
) -> tuple[str, int]:
    """A text after all edits, each on the result of the one before, and how many were made.

    `notes` gets a line on each that matched only without the white space around its lines.
    """
    total = 0
    for number, edit in enumerate(edits, start=1):
        at = f" at edit {number}" if len(edits) > 1 else ""
        if edit.replace_all and "\r" not in text and (count := text.count(edit.old)):
            _refuse_growth(text, edit, count, at)
            text = text.replace(edit.old, edit.new)
            total += count
            continue
        spans = _spans(text, edit)
        if not spans:
            place = _loose(text, edit, at) or _never(_not_found(text, edit, number, at, target))
            text = _replaced(text, place.new, [(place.start, place.stop)])
            total += 1
            if notes is not None:
                notes.append(
                    f"old_string{at} was found at line {place.line} only with other white space "
                    "around its lines; the new lines are indented as those were"
                )
            continue
        if len(spans) > 1 and not edit.replace_all:
            raise _not_unique(text, spans, at)
        _refuse_growth(text, edit, len(spans), at)
        text = _replaced(text, edit.new, spans)
        total += len(spans)
    return text, total


def _refuse_growth(text: str, edit: Edit, count: int, at: str) -> None:
    if count > _MOST:
        raise EditError(f"old_string{at} occurs more than {_MOST:,} times: change it by a command")
    size = len(text) + count * (len(edit.new) - len(edit.old))
    if size > max(len(text), _LARGEST):
        raise EditError(
            f"the file would be {size:,} characters long{at}, and {_LARGEST:,} is the most"
        )


def _loose(text: str, edit: Edit, at: str) -> Loose | None:
    """The one match but for white space; several are refused like exact ones."""
    exactly = edit.replace_all or is_long(text)
    found = [] if exactly else ignoring_whitespace(text, edit.old, edit.new)
    if len(found) > 1:
        raise _not_unique(text, [(place.start, place.stop) for place in found], at)
    return found[0] if found else None


def _never(error: EditError) -> NoReturn:
    raise error


def _spans(text: str, edit: Edit) -> list[tuple[int, int]]:
    """Spans of the target. A model sees no CR, so a target without one fits any line ending."""
    if "\r" not in text or "\r" in edit.old:
        spans = _find_all(text, edit.old, edit.replace_all)
        if spans or "\r" not in text:
            return spans
    # Compare with every ending as LF, then count the CRs back in.
    spans = _find_all(_plain(text), _plain(edit.old), edit.replace_all)
    starts = _widened(text, [start for start, _ in spans])
    return list(zip(starts, _widened(text, [stop for _, stop in spans]), strict=True))


def _widened(text: str, places: list[int]) -> Iterator[int]:
    """Rising places in the text without CRs, as places in the text."""
    endings = re.finditer("\r\n", text)
    ending, passed = next(endings, None), 0
    for place in places:
        while ending is not None and ending.start() - passed < place:
            ending, passed = next(endings, None), passed + 1
        yield place + passed


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _find_all(text: str, part: str, apart: bool = True) -> list[tuple[int, int]]:
    """Spans of a part; overlapping ones count too unless `apart`, to prove it unique."""
    spans: list[tuple[int, int]] = []
    at = text.find(part)
    most = _MOST + 1 if apart else _COUNTED
    while at >= 0 and len(spans) < most:
        spans.append((at, at + len(part)))
        at = text.find(part, at + (len(part) if apart else 1))
    return spans


def _replaced(text: str, new: str, spans: list[tuple[int, int]]) -> str:
    adapt = "\n" in new and "\r" not in new and "\r" in text
    usual = first_ending(text) if adapt else ""
    out = []
    done = 0
    for start, stop in spans:
        out.append(text[done:start])
        # Line endings as in what is replaced, else as in the file.
        out.append(new.replace("\n", first_ending(text[start:stop]) or usual) if adapt else new)
        done = stop
    return "".join([*out, text[done:]])


def _not_found(text: str, edit: Edit, number: int, at: str, target: Target) -> EditError:
    old, new = TextLines(edit.old).texts, TextLines(edit.new).texts
    missing = Missing(target.label, lines_of(text).texts, old=old, new=new, hunk=number)
    return EditError(f"target text not found{at}.", missing=missing)


def _not_unique(text: str, spans: list[tuple[int, int]], at: str) -> EditError:
    lines = [str(count_ends(text, 0, start) + 1) for start, _ in spans[:_LISTED]]
    more = ", …" if len(spans) > _LISTED else ""
    times = f"{len(spans)} times" + (" or more" if len(spans) == _COUNTED else "")
    return EditError(
        f"old_string is not unique{at}: it occurs {times}, at lines "
        f"{', '.join(lines)}{more}. Add lines around it, or set replace_all"
    )
