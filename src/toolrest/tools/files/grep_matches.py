"""Matching lines: numbers from ripgrep, text from the files.

ripgrep says where; what is shown is read through the path policy. A file that was swapped under
ripgrep's feet can so at worst show other lines of a file that may be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from toolrest.errors import Rejected
from toolrest.policy.paths.policy import PathPolicy
from toolrest.tools.files import text_lines
from toolrest.tools.files.file_types import HEAD_BYTES, readable_as
from toolrest.tools.files.ripgrep import PathFilter, SearchRoot, one_line_each

_APART = "--"


class GrepMatches:
    """Gathers `PATH NUL NUMBER…` records until `limit` results after the skipped ones are held.

    A result is a matching line, or of ripgrep's counts a file.
    """

    def __init__(self, where: SearchRoot, files: PathPolicy, skip: int, limit: int) -> None:
        self.taken = 0
        self.more = False
        self._judge = PathFilter(where, files)
        self._files = files
        self._skip = skip
        self._limit = limit
        self._numbers: dict[str, list[int]] = {}
        self._shown: dict[bytes, str | None] = {}
        self._rest = b""
        self._legacy: str | None = None

    def take(self, piece: bytes) -> bool:
        """Take a piece of output; returns False when nothing more is needed."""
        *records, self._rest = (self._rest + piece).split(b"\n")
        return all(map(self._add, records))

    def _add(self, record: bytes) -> bool:
        name, separator, rest = record.partition(b"\0")
        digits = rest.split(b":", 1)[0]
        if not separator or not digits.isdigit():
            return True  # a word about a binary file, or the first lines of a strange name
        path = self._path(name)
        if path is None:
            return True
        if self._skip:
            self._skip -= 1
        elif self.taken == self._limit:
            self.more = True
        else:
            self.taken += 1
            self._numbers.setdefault(path, []).append(int(digits))
        return not self.more

    def _path(self, name: bytes) -> str | None:
        if name not in self._shown:
            self._shown = {name: self._judge.shown(name)}
        return self._shown[name]

    def counts(self) -> Iterator[tuple[str, int]]:
        """Each file and how many of its lines match."""
        names = one_line_each(list(self._numbers))
        return zip(names, (numbers[0] for numbers in self._numbers.values()), strict=True)

    def lines(self, context: int, legacy: str | None = None) -> list[str]:
        """Each file's name and below it its lines: `12:` a match, `13-` one around it."""
        self._legacy = legacy
        out: list[str] = []
        for path, numbers in self._numbers.items():
            block = list(self._block(path, numbers, context))
            if block:
                out += [""] if out else []
                out += [*one_line_each([path]), *block]
        return out

    def _block(self, path: str, numbers: list[int], context: int) -> Iterator[str]:
        matching = set(numbers)
        wanted = {
            near
            for number in numbers
            for near in range(number - context, number + context + 1)
            if near > 0
        }
        last = 0
        for number, text in _numbered(self._files, path, wanted, self._legacy):
            if context and last and number > last + 1:
                yield _APART
            yield f"{number}{':' if number in matching else '-'}{text}"
            last = number


def _numbered(
    files: PathPolicy, path: str, wanted: set[int], legacy: str | None
) -> Iterator[tuple[int, str]]:
    """These lines of a file, in order; none when it cannot be read any more."""
    try:
        fd = files.open_read(path)
    except (OSError, Rejected):
        return
    try:
        head = os.read(fd, HEAD_BYTES)
        encoding = readable_as(head, legacy) or "utf-8"
        last = max(wanted)
        source = text_lines.pieces(fd, head, encoding, lambda total: files.check_size(total, path))
        for number, raw in enumerate(text_lines.CutLines(source), 1):
            if number in wanted:
                yield number, text_lines.shown(raw)[0]
            if number >= last:
                return
    except (OSError, Rejected):
        return
    finally:
        os.close(fd)
