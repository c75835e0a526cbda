"""What does a file look like after a diff's hunks? Placed by content, nearest to where they say.

Unlike a chunk in Codex's language a hunk knows about the newline at the end of a file, and lines
are what git takes for lines: text up to LF.
"""

from __future__ import annotations

from toolrest.patch.text.diff import split_lines
from toolrest.patch.text.encoding import decode
from toolrest.patch.errors import ApplyError, MatchError, Missing
from toolrest.patch.text.match import Finder
from toolrest.patch.forms.unified import Hunk


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
    close = "\n" if "\n" in text else "\r"
    raw = split_lines(text, universal=close == "\r")
    ending = _ending(text, hunks)
    texts = [line.removesuffix(close) for line in raw]
    finder = Finder(texts, [line for hunk in hunks for line in hunk.texts])
    out: list[str] = []
    done = shift = 0
    for number, hunk in enumerate(hunks, start=1):
        place = _place(finder, hunk, number, done, shift, label)
        if hunk.start is not None and hunk.old:
            shift = place - (hunk.start - 1)
        out += raw[done:place]
        done = place + len(hunk.old)
        out += _lines(hunk, raw[place:done], ending, at_end=done == len(raw))
    out += raw[done:]
    # What came to stand before other lines needs an ending of its own.
    out[:-1] = [line if line.endswith(("\n", "\r")) else line + ending for line in out[:-1]]
    return "".join(out)


def _ending(text: str, hunks: list[Hunk]) -> str:
    """A diff that shows CRs means its endings; one that shows none leaves them to the file."""
    if any(line.endswith("\r") for hunk in hunks for line in hunk.texts):
        return "\n"
    first = text.find("\n")
    if first < 0 and "\r" in text:
        return "\r"
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def _place(finder: Finder, hunk: Hunk, number: int, done: int, shift: int, label: str) -> int:
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
    expected = done if hunk.start is None else max(done, hunk.start - 1 + shift)
    place = finder.nearest(old, expected, done)
    if place is None:
        missing = Missing(
            label, finder.texts, old=old, new=hunk.new, hunk=number, line=hunk.line, cursor=done
        )
        expected_lines = "\n".join(old)
        raise MatchError(f"Failed to find expected lines in {label}:\n{expected_lines}", missing)
    return place


def _lines(hunk: Hunk, old: list[str], ending: str, at_end: bool) -> list[str]:
    """The hunk's new lines: context as the file has it, and the end of the file as it says."""
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
