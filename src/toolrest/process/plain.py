"""Terminal output as a reader would see it, and output that is no text at all."""

from __future__ import annotations

import hashlib
import re

from toolrest.process.buffer import Piece

# Control sequences (colours, cursor), operating system commands (titles, links), charset and
# other two-character escapes.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
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
_SAMPLE = 8192


def plain(text: str) -> str:
    """Text without escapes, each line as its last carriage return and backspaces left it."""
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" not in text and "\b" not in text:
        return text
    return "\n".join(_settled(line) for line in text.split("\n"))


def _settled(line: str) -> str:
    if "\b" in line:
        line = _typed(line)
    if "\r" not in line:
        return line
    shown: list[str] = []
    for part in line.split("\r"):
        shown[: len(part)] = part
    return "".join(shown)


def _typed(line: str) -> str:
    kept: list[str] = []
    for character in line:
        if character != "\b":
            kept.append(character)
        elif kept and kept[-1] != "\r":
            kept.pop()
    return "".join(kept)


def binary_note(piece: Piece) -> str | None:
    """For output that is no text: what it seems to be, its size and hash; None for text."""
    data = piece.head + piece.tail
    sample = data[:_SAMPLE]
    if b"\0" not in sample or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return None
    kind = next((name for magic, name in _KINDS if data.startswith(magic)), "data")
    if piece.omitted:
        return f"[binary output: {kind}, {piece.total} bytes]"
    digest = hashlib.sha256(data).hexdigest()
    return f"[binary output: {kind}, {piece.total} bytes, SHA-256 {digest}]"
