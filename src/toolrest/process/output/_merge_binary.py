"""Output that is no text: say what it is instead of showing it."""

from __future__ import annotations

import hashlib

from toolrest.process.output.head_tail import Piece

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
_SAMPLE = 8192
_SHARE = 10


def binary_note(piece: Piece) -> str | None:
    """What binary output seems to be, its size and its hash; None for text.

    A few NUL bytes do not make a binary: `find -print0` and `env -0` are for reading.
    """
    data = piece.head + piece.tail
    if data[:2] in _UTF16:
        return None
    kind = next((name for magic, name in _KINDS if data.startswith(magic)), None)
    if not _unreadable(data[:_SAMPLE]):
        return None
    size = f"{kind or 'unknown data'}, {piece.total} bytes"
    if piece.omitted:
        return f"[binary output: {size}]"
    return f"[binary output: {size}, SHA-256 {hashlib.sha256(data).hexdigest()}]"


def _unreadable(sample: bytes) -> bool:
    """Text that is not UTF-8 has no NUL; binary data has many, or much else that prints nothing."""
    if b"\0" not in sample:
        return False
    strange = sum(1 for byte in sample if byte < 9 or 13 < byte < 27 or 27 < byte < 32)
    try:
        sample[: len(sample) - 3].decode("utf-8")
    except UnicodeDecodeError:
        return True
    return strange * _SHARE > len(sample) * 3
