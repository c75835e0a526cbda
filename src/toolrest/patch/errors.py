"""Errors of patches.

PatchError           nothing was written
├── ParseError       the text is not a patch; `line` where one is to blame
├── ApplyError       it cannot be applied to what is on disk
│   └── MatchError   a hunk's lines or its context are not in the file
└── EditError        a string edit has no target, or more than one

Each carries the documented message, and notes that a model sees after it.
"""

from __future__ import annotations

from toolrest.errors import ToolrestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class PatchError(ToolrestError):
    """A patch could not be read or applied. Nothing was written.

    `message` is the documented text; `notes` are lines that help the reader further and are
    shown after it, to a model only.
    """

    def __init__(self, message: str, notes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.notes = list(notes)

    @property
    def stderr(self) -> str:
        """The message on the command's stderr, without the final newline."""
        return self.message

    @property
    def verdict(self) -> str:
        """The message behind `apply_patch verification failed: `."""
        return self.message


class ParseError(PatchError):
    """The text is not a patch. `line` counts from 1, the begin line; None: the whole text."""

    def __init__(self, message: str, line: int | None = None, notes: Sequence[str] = ()) -> None:
        super().__init__(message, notes)
        self.line = line

    @property
    def stderr(self) -> str:
        """The message on the command's stderr, without the final newline."""
        if self.line is None:
            return f"Invalid patch: {self.message}"
        return f"Invalid patch hunk on line {self.line}: {self.message}"

    @property
    def verdict(self) -> str:
        """The message behind `apply_patch verification failed: `."""
        if self.line is None:
            return f"invalid patch: {self.message}"
        return f"invalid hunk at line {self.line}, {self.message}"


class ApplyError(PatchError):
    """The patch is valid but cannot be applied to what is on disk."""


class Missing:
    """Lines that were not found: the input of a diagnosis, which only a model sees.

    Hunk `hunk` (from 1), at line `line` of the patch, was to turn the lines `old` into `new`
    somewhere behind line `cursor` of the file. `context` is set when not even that was found.
    """

    __slots__ = ("context", "cursor", "data", "hunk", "label", "line", "new", "old", "texts")

    def __init__(
        self,
        label: str,
        texts: Sequence[str],
        *,
        old: list[str],
        new: list[str],
        hunk: int,
        line: int = 0,
        cursor: int = 0,
    ) -> None:
        self.label = label
        self.texts = texts
        self.old = old
        self.new = new
        self.hunk = hunk
        self.line = line
        self.cursor = cursor
        self.context: str | None = None
        self.data = b""


class MatchError(ApplyError):
    """A hunk's lines, or the context it is to follow, are not in the file."""

    def __init__(self, message: str, missing: Missing) -> None:
        super().__init__(message)
        self.missing = missing


class EditError(PatchError):
    """A string edit has no target in the file, or more than one."""

    def __init__(
        self, message: str, notes: Sequence[str] = (), missing: Missing | None = None
    ) -> None:
        super().__init__(message, notes)
        self.missing = missing
