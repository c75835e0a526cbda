"""The type of a file, by its first bytes: text in some encoding, or a kind of binary."""

from __future__ import annotations

import codecs
from typing import Literal, NamedTuple

HEAD_BYTES = 8192
_FEW_BYTES = 64
_BAD_SHARE = 0.3

_UNKNOWN = "binary data"

Encoding = Literal["utf-8", "utf-16"]


class FileType(NamedTuple):
    """A description of a file's type, and whether it is an image that a model can look at."""

    words: str
    image: bool = False


_SIGNATURES: tuple[tuple[int, bytes, FileType], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", FileType("a PNG image", True)),
    (0, b"\xff\xd8\xff", FileType("a JPEG image", True)),
    (0, b"GIF87a", FileType("a GIF image", True)),
    (0, b"GIF89a", FileType("a GIF image", True)),
    (8, b"WEBP", FileType("a WebP image", True)),
    (0, b"BM", FileType("a BMP image", True)),
    (0, b"II*\0", FileType("a TIFF image")),
    (0, b"MM\0*", FileType("a TIFF image")),
    (0, b"\0\0\x01\0", FileType("an icon")),
    (0, b"%PDF-", FileType("a PDF document")),
    (0, b"PK\x03\x04", FileType("a ZIP archive (or a format based on it)")),
    (0, b"PK\x05\x06", FileType("a ZIP archive (or a format based on it)")),
    (0, b"\x1f\x8b", FileType("gzip-compressed data")),
    (0, b"BZh", FileType("bzip2-compressed data")),
    (0, b"\xfd7zXZ\0", FileType("xz-compressed data")),
    (0, b"\x28\xb5\x2f\xfd", FileType("zstd-compressed data")),
    (0, b"7z\xbc\xaf\x27\x1c", FileType("a 7z archive")),
    (0, b"Rar!\x1a\x07", FileType("a RAR archive")),
    (257, b"ustar", FileType("a tar archive")),
    (0, b"!<arch>\n", FileType("a static library")),
    (0, b"\x7fELF", FileType("an ELF program or library")),
    (0, b"MZ", FileType("a Windows program or library")),
    (0, b"\xcf\xfa\xed\xfe", FileType("a Mach-O program or library")),
    (0, b"\xce\xfa\xed\xfe", FileType("a Mach-O program or library")),
    (0, b"\xca\xfe\xba\xbe", FileType("a Java class or Mach-O program")),
    (0, b"\0asm", FileType("a WebAssembly module")),
    (0, b"SQLite format 3\0", FileType("an SQLite database")),
    (0, b"PAR1", FileType("a Parquet file")),
    (0, b"\x89HDF\r\n\x1a\n", FileType("an HDF5 file")),
    (0, b"\x93NUMPY", FileType("a NumPy array")),
    (0, b"OggS", FileType("Ogg audio or video")),
    (0, b"fLaC", FileType("FLAC audio")),
    (0, b"ID3", FileType("MP3 audio")),
    (4, b"ftyp", FileType("MP4-like video or audio")),
    (8, b"WAVE", FileType("WAV audio")),
    (0, b"wOFF", FileType("a web font")),
    (0, b"wOF2", FileType("a web font")),
    (0, b"\xff\xfe\0\0", FileType("UTF-32 text")),
    (0, b"\0\0\xfe\xff", FileType("UTF-32 text")),
)
_NEVER_TEXT = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"%PDF-")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_UTF32 = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")


def text_encoding(head: bytes) -> Encoding | None:
    """The encoding of a file with this beginning; None when it is not text.

    A NUL byte, or many bytes that are no UTF-8, mean binary. A file that would be refused for
    that but starts with a UTF-16 byte order mark is UTF-16.
    """
    if head.startswith(_NEVER_TEXT):
        return None
    if b"\0" not in head and not _mostly_undecodable(head):
        return "utf-8"
    return "utf-16" if head.startswith(_UTF16) and not head.startswith(_UTF32) else None


def readable_as(head: bytes, legacy: str | None) -> str | None:
    """`text_encoding`, with the user's encoding for files that are not UTF-8."""
    found = text_encoding(head)
    if legacy is None or found == "utf-16" or _is_utf8(head):
        return found
    odd = found is None and (b"\0" in head or type_of(head).words != _UNKNOWN)
    return None if odd else legacy


def _is_utf8(head: bytes) -> bool:
    """Whether these bytes begin a UTF-8 text; the last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _mostly_undecodable(head: bytes) -> bool:
    if head.isascii() or len(head) < _FEW_BYTES:
        return False
    text = head.decode("utf-8", "replace")
    bad = text.count("\ufffd") - head.count(b"\xef\xbf\xbd")
    return bad > len(text) * _BAD_SHARE


def type_of(head: bytes) -> FileType:
    """The type of a file that is not text, by its first bytes."""
    for offset, signature, found in _SIGNATURES:
        if head.startswith(signature, offset):
            if signature in (b"WEBP", b"WAVE") and not head.startswith(b"RIFF"):
                continue
            return found
    return FileType(_UNKNOWN)
