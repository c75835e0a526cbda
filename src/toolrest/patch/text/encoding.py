"""Encodings of files: decode bytes, encode a changed text; never guessed for writing.

UTF-8, UTF-16 with a byte order mark, or the one legacy encoding that the settings name. Decoding
and encoding again must give the very same bytes, else the file is refused.
"""

from __future__ import annotations

import codecs
import errno
import os

from toolrest.patch.errors import ApplyError

BOM = "\ufeff"

# Messages of the C library that the recorded messages were made with.
_MESSAGES = {errno.ELOOP: "Symbolic link loop", errno.ENAMETOOLONG: "Filename too long"}


class Unreadable(Exception):
    """The reason why a file's bytes are no text, as in the recorded messages."""


class DecodedText:
    """A file's text, and how to turn a changed text into bytes again."""

    __slots__ = ("encoding", "mark", "text")

    def __init__(self, text: str, encoding: str = "utf-8", mark: bytes = b"") -> None:
        self.text = text
        self.encoding = encoding
        self.mark = mark

    def mark_to_keep(self, lines: list[str]) -> str:
        """The byte order mark, to be set aside and put back: models never see it.

        In a patch whose lines show one, it is a character like any other.
        """
        if self.text.startswith(BOM) and not any(line.startswith(BOM) for line in lines):
            return BOM
        return ""

    def encode(self, text: str, label: str) -> bytes:
        """The bytes of a new text in this file's encoding."""
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            character = text[error.start]
            raise ApplyError(
                f"Failed to write file {label}",
                [
                    f"U+{ord(character):04X} cannot be written in {self.encoding}, "
                    "the encoding of this file"
                ],
            ) from None


def decode(data: bytes, legacy: str | None = None) -> DecodedText:
    """Decode a file. Raises Unreadable when the text could not be written back unchanged."""
    try:
        return DecodedText(data.decode())
    except UnicodeDecodeError as error:
        problem = _utf8_problem(error)
    wide = _utf16(data)
    if wide is not None:
        return wide
    if legacy is not None:
        try:
            text = data.decode(legacy)
            if text.encode(legacy) == data:
                return DecodedText(text, legacy)
        except (UnicodeError, LookupError):
            pass
    raise Unreadable(problem)


def _utf16(data: bytes) -> DecodedText | None:
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return None
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark):
            try:
                return DecodedText(data[2:].decode(name), name, mark)
            except UnicodeDecodeError:
                return None
    return None


def _utf8_problem(error: UnicodeDecodeError) -> str:
    if error.reason == "unexpected end of data":
        return f"incomplete utf-8 byte sequence from index {error.start}"
    return f"invalid utf-8 sequence of {error.end - error.start} bytes from index {error.start}"


def os_reason(error: OSError) -> str:
    """The message of an OSError, as in the recorded messages."""
    number = error.errno or 0
    return f"{_MESSAGES.get(number) or os.strerror(number)} (os error {number})"


def why(error: OSError) -> str:
    """The reason of an OSError for a note; for a policy's denial, the policy's message."""
    reason: str | None = getattr(error, "reason", None)
    return os_reason(error) if reason is None else reason
