"""Bytes of a program's output as text: UTF-8, else a known legacy charset, else U+FFFD.

Binary output is replaced by a note that names its kind, size and hash.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable

from toolrest.process.output.head_tail import Piece

_SHORTEST = 64
_SAMPLE = 65_536
_CHARSETS = ("cp1252", "shift_jis", "gb18030", "euc_kr")
_BOMS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_REPLACEMENT = "\ufffd"


def decode(data: bytes) -> str:
    """Text of a complete output."""
    return _decoder(data)(data)


def decode_piece(piece: Piece) -> str:
    """Text of the bytes kept, with a line that counts the omitted ones."""
    if not piece.omitted:
        return decode(piece.head + piece.tail)
    text_of = _decoder(piece.head + piece.tail)
    head, tail, omitted = piece.head, piece.tail, piece.omitted
    if text_of is _lossy or text_of is _strict:
        head, rest = split_incomplete(head)
        skipped = _continuation(tail)
        tail = tail[skipped:]
        omitted += len(rest) + skipped
    return f"{text_of(head)}\n... {omitted} bytes omitted ...\n{text_of(tail)}"


def split_incomplete(data: bytes) -> tuple[bytes, bytes]:
    """Whole UTF-8 characters, and the beginning of one that goes on in the next chunk."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        if byte >= 0xC2 and back < _length(byte) and _is_prefix(data[-back:]):
            return data[:-back], data[-back:]
        break
    return data, b""


class Deltas:
    """Text of a stream while it arrives; characters cut by a chunk border are joined."""

    SIZE = 8192
    MOST = 10_000

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = self.MOST

    def add(self, data: bytes) -> None:
        """Emit the chunk's text, in pieces; after the last allowed piece, nothing."""
        for start in range(0, len(data), self.SIZE):
            if self._left <= 0:
                return
            text = self._decoder.decode(data[start : start + self.SIZE])
            if text:
                self._left -= 1
                self._emit(text)


def _strict(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _lossy(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _decoder(data: bytes) -> Callable[[bytes], str]:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        name = _legacy(data)
        if name is None:
            return _lossy
        return lambda part: part.decode(name, "replace")
    return _strict


def _legacy(data: bytes) -> str | None:
    """The one charset of the short list that fits all of the data; None when there is none."""
    if len(data) < _SHORTEST:
        return None
    name = _BOMS.get(data[:2]) or _guess(data)
    if name is not None:
        try:
            data.decode(name)
        except UnicodeDecodeError:
            return None
    return name


def _guess(data: bytes) -> str | None:
    if b"\0" in data or _mostly_utf8(data):
        return None
    # Slow to import, and most sessions never see such output.
    from charset_normalizer import from_bytes

    best = from_bytes(data[:_SAMPLE], cp_isolation=list(_CHARSETS)).best()
    return None if best is None else best.encoding


def _mostly_utf8(data: bytes) -> bool:
    """Whether data is UTF-8 with a few errors: a legacy charset would garble all the rest."""
    text = data.decode("utf-8", "replace")
    bad = text.count(_REPLACEMENT)
    good = sum(1 for character in text if character > "\x7f") - bad
    return good > bad


def _length(lead: int) -> int:
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4 if lead < 0xF5 else 0


def _is_prefix(data: bytes) -> bool:
    if data[0] == 0xED and data[1:2] >= b"\xa0":
        return False  # half of a surrogate pair: Python's decoder waits for more in vain
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    try:
        return decoder.decode(data) == ""
    except UnicodeDecodeError:
        return False


def _continuation(data: bytes) -> int:
    """Number of bytes at the start that belong to a character whose beginning is missing."""
    count = 0
    while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count


_KINDS = (
    (b"\x7fELF", "ELF program"),
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"BZh", "bzip2 data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (b"SQLite format 3\x00", "SQLite database"),
)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SAMPLE_BINARY = 8192
_SHARE = 10


def binary_note(piece: Piece) -> str | None:
    """A note about binary output: its likely kind, size and hash; None for text.

    A few NUL bytes do not make a binary: `find -print0` and `env -0` are for reading.
    """
    data = piece.head + piece.tail
    if data[:2] in _UTF16:
        return None
    kind = next((name for magic, name in _KINDS if data.startswith(magic)), None)
    if not _unreadable(data[:_SAMPLE_BINARY]):
        return None
    size = f"{kind or 'unknown data'}, {piece.total} bytes"
    if piece.omitted:
        return f"[binary output: {size}]"
    return f"[binary output: {size}, SHA-256 {hashlib.sha256(data).hexdigest()}]"


def _unreadable(sample: bytes) -> bool:
    """Whether a sample is binary: many NULs (legacy text has none) or other control bytes."""
    if b"\0" not in sample:
        return False
    strange = sum(1 for byte in sample if byte < 9 or 13 < byte < 27 or 27 < byte < 32)
    try:
        sample[: len(sample) - 3].decode("utf-8")
    except UnicodeDecodeError:
        return True
    return strange * _SHARE > len(sample) * 3
