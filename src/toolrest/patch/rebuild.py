"""What does a file look like after its chunks? Untouched lines keep their bytes.

Lines end at CRLF, LF or a lone CR, and keep the ending they have; lines that a patch adds get the
first ending found in the file. Context lines are kept as the file has them, also where the patch
spells them with other white space.
"""

from __future__ import annotations

import io

from toolrest.patch.encoding import decode
from toolrest.patch.errors import MatchError, Missing
from toolrest.patch.match import Finder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolrest.patch.grammar import Chunk


class Lines:
    """A text as lines: `raw` with their endings, `texts` without, and the ending to add."""

    __slots__ = ("ending", "raw", "texts")

    def __init__(self, text: str) -> None:
        returns = "\r" in text
        self.raw = io.StringIO(text, newline="" if returns else "\n").readlines()
        if returns:
            self.texts = [line.rstrip("\r\n") for line in self.raw]
        else:
            self.texts = text.split("\n")
            if not self.texts[-1]:
                self.texts.pop()
        self.ending = self.raw[0][len(self.texts[0]) :] or "\n" if self.raw else "\n"


class _Stretch:
    """Lines of the file that give way to new ones; either may be none."""

    __slots__ = ("new", "position", "size")

    def __init__(self, position: int, size: int, new: list[str]) -> None:
        self.position = position
        self.size = size
        self.new = new


def updated(data: bytes, chunks: list[Chunk], label: str, legacy: str | None = None) -> bytes:
    """A file's bytes after an update. MatchError when a chunk is not found in it."""
    source = decode(data, legacy)
    texts = [text for chunk in chunks for text in chunk.texts]
    mark = source.mark_to_keep(texts)
    try:
        return source.encode(mark + rewrite(source.text[len(mark) :], chunks, label), label)
    except MatchError as error:
        error.missing.data = data
        raise


def rewrite(text: str, chunks: list[Chunk], label: str) -> str:
    """A text after these chunks, which come in file order and never share a line."""
    lines = Lines(text)
    if lines.raw and not lines.raw[-1].endswith(("\n", "\r")):
        lines.raw[-1] += lines.ending
    stretches = _locate(lines.texts, chunks, label)
    stretches.sort(key=lambda stretch: stretch.position)
    out: list[str] = []
    done = 0
    for stretch in stretches:
        out += lines.raw[done : stretch.position]
        out += [text + lines.ending for text in stretch.new]
        done = stretch.position + stretch.size
    out += lines.raw[done:]
    return "".join(out)


def _locate(texts: list[str], chunks: list[Chunk], label: str) -> list[_Stretch]:
    wanted = [line for chunk in chunks for line in chunk.texts]
    wanted += [chunk.context for chunk in chunks if chunk.context is not None]
    finder = Finder(texts, wanted)
    stretches: list[_Stretch] = []
    cursor = 0
    for number, chunk in enumerate(chunks, start=1):
        old, new = chunk.old, chunk.new
        missing = Missing(
            label, texts, hunk=number, line=chunk.line, cursor=cursor, old=old, new=new
        )
        if chunk.context is not None:
            found = finder.find([chunk.context], cursor)
            if found is None:
                missing.context = chunk.context
                raise MatchError(f"Failed to find context '{chunk.context}' in {label}", missing)
            cursor = missing.cursor = found + 1
        if not old:
            stretches.append(_Stretch(len(texts), 0, new))
            continue
        place, old, new = _find(finder, chunk, old, new, cursor)
        if place is None:
            expected = "\n".join(missing.old)
            raise MatchError(f"Failed to find expected lines in {label}:\n{expected}", missing)
        stretches += _stretches(chunk, place, old, new)
        cursor = place + len(old)
    return stretches


def _find(
    finder: Finder, chunk: Chunk, old: list[str], new: list[str], cursor: int
) -> tuple[int | None, list[str], list[str]]:
    """Where a chunk's lines are, and which of them were found there."""
    place = finder.find(old, cursor, eof=chunk.eof)
    if place is None and old[-1] == "":
        # A blank line too many at the end of a hunk is the most common slip.
        old = old[:-1]
        new = new[:-1] if new and new[-1] == "" else new
        place = finder.find(old, cursor, eof=chunk.eof)
    return place, old, new


def _stretches(chunk: Chunk, place: int, old: list[str], new: list[str]) -> list[_Stretch]:
    """What lies between the context lines, which stay as the file has them."""
    found = []
    taken = given = 0
    at = to = 0
    for mark in chunk.marks:
        if mark == " ":
            if at >= len(old) or to >= len(new):
                break
            found.append(_Stretch(place + taken, at - taken, new[given:to]))
            taken, given = at + 1, to + 1
        at += mark != "+"
        to += mark != "-"
    found.append(_Stretch(place + taken, len(old) - taken, new[given:]))
    return [stretch for stretch in found if stretch.size or stretch.new]
