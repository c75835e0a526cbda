"""Rebuild a file with a patch's chunks applied; untouched lines keep their bytes.

Lines end at CRLF, LF or a lone CR, and keep the ending they have; lines that a patch adds get the
first ending found in the file. Context lines are kept as the file has them, also where the patch
spells them with other white space.
"""

from __future__ import annotations

import io

from toolrest.patch.errors import MatchError, Missing
from toolrest.patch.text.encoding import decode
from toolrest.patch.text.match import Finder, is_long

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from toolrest.patch.codex_grammar import Chunk
    from toolrest.patch.text.long import LongText

    Places: TypeAlias = Finder | LongText


def lines_of(text: str) -> TextLines | LongText:
    """A text as lines, in the way that its size allows."""
    if is_long(text):
        from toolrest.patch.text.long import LongText  # rarely needed, and slow to import

        return LongText(text)
    return TextLines(text)


class TextLines:
    """A text as lines: `texts` without their endings, and the ending that added lines get.

    Nearly every file has one kind of ending; then the endings need not be kept line by line.
    """

    __slots__ = ("_raw", "_text", "ending", "texts")

    def __init__(self, text: str) -> None:
        self._text = text
        self._raw: list[str] | None = None
        uniform = _only_ending(text)
        if uniform is None:
            self._raw = io.StringIO(text, newline="").readlines()
            self.texts = [line.rstrip("\r\n") for line in self._raw]
            self.ending = self._raw[0][len(self.texts[0]) :]
        else:
            self.ending = uniform
            self.texts = text.split(uniform)
            if not self.texts[-1]:
                self.texts.pop()

    @property
    def raw(self) -> list[str]:
        """The lines with their endings; the last one may have none."""
        if self._raw is None:
            self._raw = [text + self.ending for text in self.texts]
            if self._raw and not self._text.endswith(self.ending):
                self._raw[-1] = self.texts[-1]
        return self._raw

    def span(self, first: int, stop: int) -> str:
        """A range of lines as one text, in which every line has an ending."""
        if first >= stop:
            return ""
        if self._raw is None:
            return self.ending.join(self.texts[first:stop]) + self.ending
        text = "".join(self._raw[first:stop])
        return text if text.endswith(("\n", "\r")) else text + self.ending


def _only_ending(text: str) -> str | None:
    """The one kind of line ending in a text, LF when there is none; None when they differ."""
    if "\r" not in text:
        return "\n"
    pairs = text.count("\r\n")
    kinds = (("\r\n", pairs), ("\n", text.count("\n") - pairs), ("\r", text.count("\r") - pairs))
    found = [ending for ending, count in kinds if count]
    return found[0] if len(found) == 1 else None


class _Stretch:
    """A range of the file's lines and the new lines that replace it; either may be empty."""

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
    lines = lines_of(text)
    stretches = _locate(_places(lines, chunks), chunks, label)
    stretches.sort(key=lambda stretch: stretch.position)
    out: list[str] = []
    done = 0
    for stretch in stretches:
        out.append(lines.span(done, stretch.position))
        out += [added + lines.ending for added in stretch.new]
        done = stretch.position + stretch.size
    out.append(lines.span(done, len(lines.texts)))
    return "".join(out)


def _places(lines: TextLines | LongText, chunks: list[Chunk]) -> Places:
    if not isinstance(lines, TextLines):
        return lines
    wanted = [line for chunk in chunks for line in chunk.texts]
    wanted += [chunk.context for chunk in chunks if chunk.context is not None]
    return Finder(lines.texts, wanted)


def _locate(finder: Places, chunks: list[Chunk], label: str) -> list[_Stretch]:
    texts = finder.texts
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
    finder: Places, chunk: Chunk, old: list[str], new: list[str], cursor: int
) -> tuple[int | None, list[str], list[str]]:
    """Index of a chunk's lines, and which of them were found there."""
    place = finder.find(old, cursor, eof=chunk.eof)
    if place is None and old[-1] == "":
        # A blank line too many at the end of a hunk is the most common slip.
        old = old[:-1]
        new = new[:-1] if new and new[-1] == "" else new
        place = finder.find(old, cursor, eof=chunk.eof)
    return place, old, new


def _stretches(chunk: Chunk, place: int, old: list[str], new: list[str]) -> list[_Stretch]:
    """The changes between the context lines, which stay as the file has them."""
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
