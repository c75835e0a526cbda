r"""The lines of a file of any size, read piece by piece.

A line ends at `\n`; that and one `\r` before it are dropped, a last line without an end counts.
Only the beginning of a long line is kept, so memory follows the number of lines asked for and
not the size of the file.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator

LINE_BYTES = 500
KEPT_BYTES = LINE_BYTES + 12
"""Raw bytes that settle what the first 500 bytes of a line's text are: lossy decoding never
shrinks, and the spare bytes end a character that crosses the 500th."""

PIECE = 1 << 18


def pieces(
    fd: int, head: bytes, encoding: str, check: Callable[[int], None] = lambda total: None
) -> Iterator[bytes]:
    """`head`, which was read already, and the rest of the file, as UTF-8.

    `check` gets the number of bytes read so far, and may raise.
    """
    plain = encoding == "utf-8"
    decode = None if plain else codecs.getincrementaldecoder(encoding)("replace").decode
    total = 0
    piece = head
    while piece:
        total += len(piece)
        check(total)
        yield piece if decode is None else decode(piece).encode("utf-8", "replace")
        piece = os.read(fd, PIECE)
    if decode is not None:
        yield decode(b"", True).encode("utf-8", "replace")


def skip(source: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Skip the first `count` lines; whole pieces are skipped without splitting."""
    for piece in source:
        here = piece.count(b"\n")
        if here < count:
            count -= here
            continue
        yield piece.split(b"\n", count)[count] if count else piece
        yield from source
        return


class CutLines:
    """Each line's first `keep` bytes, without its end."""

    def __init__(self, source: Iterator[bytes], keep: int = KEPT_BYTES) -> None:
        self._source = source
        self._keep = keep
        self._ahead = False

    def __iter__(self) -> Iterator[bytes]:
        keep = self._keep
        most = keep + 1  # one more, so that a `\r` right behind the kept bytes is known
        held = b""
        length = 0
        for piece in self._source:
            first, *rest = piece.split(b"\n")
            held += first[: most - len(held)]
            length += len(first)
            left = len(rest)
            for part in rest:
                left -= 1
                self._ahead = left > 0 or part != b""
                if held.endswith(b"\r") and length == len(held):
                    held = held[:-1]
                yield held[:keep]
                held = part[:most]
                length = len(part)
        self._ahead = False
        if length:
            yield held[:keep]

    def more(self) -> bool:
        """Whether another line follows; reads no more than that takes."""
        return self._ahead or any(self._source)


def shown(raw: bytes) -> tuple[str, bool]:
    """The text of a line, at most 500 bytes of it, and whether that cut something off."""
    text = raw.decode("utf-8", "replace")
    if len(raw) * 3 <= LINE_BYTES:
        return text, False
    encoded = text.encode()
    if len(encoded) <= LINE_BYTES:
        return text, False
    return encoded[:LINE_BYTES].decode("utf-8", "ignore"), True
