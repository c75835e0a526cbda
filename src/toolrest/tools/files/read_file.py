"""`read_file`: numbered lines of a text file, by range or by indentation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Literal

from msgspec import Struct, field

from toolrest.errors import Rejected, RespondToModel, os_words
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, given_in, make, param
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.policy.paths.policy import PathPolicy
from toolrest.tools.files import indentation, text_lines
from toolrest.tools.files.file_types import HEAD_BYTES, readable_as, type_of
from toolrest.tools.images.pictures import format_of
from toolrest.tools.images.view_image import ViewImage, show

DEFAULT_LIMIT = 2000
FAILED = "failed to read file: "
_QUICK_BYTES = 1 << 18
_MOST_BYTES = 16 << 20
_MOST_ROWS = 100_000
_NAMED_LINES = 5


class Indentation(Parameters):
    """How far the block around the anchor line reaches."""

    anchor_line: int | None = param(
        default=None, ge=0, description="Line in the wanted block; `offset` when left out."
    )
    max_levels: int = param(
        default=0,
        ge=0,
        description="How many levels of enclosing blocks to include; 0 means all of them.",
    )
    include_siblings: bool = param(
        default=False, description="Also include blocks beside the outermost one."
    )
    include_header: bool = param(
        default=True, description="Also include comments right above the outermost block."
    )
    max_lines: int | None = param(
        default=None, ge=0, description="Most lines to return; `limit` when left out."
    )


class ReadFile(Tool):
    """`read_file`. Images come back as from view_image; other binary files are refused."""

    name = "read_file"
    description = (
        "Read a text file. Each line comes back as `L<number>: <text>`, cut at 500 bytes. "
        "Page through long files with offset and limit, or use indentation mode to read the "
        "block of code around a line."
    )
    group: Group = "read"
    icon: Icon = "read"
    exec_item: ExecItem = ""
    needs = ("files:all", "files:read_file")
    typical = Effects(reads=("<file_path>",))
    idempotent = True

    class Args(Parameters):
        """Parameters."""

        file_path: str = param(
            description="The file, absolute or relative to the working directory."
        )
        offset: int = param(default=1, ge=0, description="First line to read, counted from 1.")
        limit: int = param(default=DEFAULT_LIMIT, ge=0, description="Most lines to return.")
        mode: Literal["slice", "indentation"] = param(
            default="slice",
            description='"slice" reads a range of lines, "indentation" the block around one.',
        )
        indentation: Indentation | None = param(
            default=None, description="Options of indentation mode; ignored in slice mode."
        )

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Reads that one file."""
        return Effects(reads=(args.file_path,))

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Return the lines asked for, or an error for the model."""
        job = Job(
            ctx.files,
            args.file_path,
            plan(args),
            lambda: ctx.cancelled,
            ViewImage.name in ctx.session.registry,
            ctx.session.settings.legacy_encoding,
        )
        fd, status = job.open()
        try:
            if 0 < status.st_size <= _QUICK_BYTES:
                output = job.finish(fd, whole=True)
            else:
                output = await ctx.in_thread(job.finish, fd)
        except Picture as found:
            output = await ctx.in_thread(show, found.data, ctx)
        ctx.note_read(args.file_path, status, job.sha256)
        return output


class Slice(Struct, frozen=True):
    """A range of lines. `asked`: the model chose the limit."""

    offset: int
    limit: int
    asked: bool = False


class Block(Struct, frozen=True):
    """The block around a line."""

    anchor: int
    most: int
    shape: indentation.Shape


def plan(args: ReadFile.Args) -> Slice | Block:
    """Plan what to read; RespondToModel for invalid numbers."""
    _positive(args.offset, "offset", "offset must be a 1-indexed line number")
    _positive(args.limit, "limit", "limit must be greater than zero")
    if args.mode == "slice":
        return Slice(args.offset, args.limit, "limit" in given_in(args))
    options = args.indentation or make(Indentation)
    anchor = args.offset if options.anchor_line is None else options.anchor_line
    guard = args.limit if options.max_lines is None else options.max_lines
    _positive(anchor, "indentation.anchor_line", "anchor_line must be a 1-indexed line number")
    _positive(guard, "indentation.max_lines", "max_lines must be greater than zero")
    shape = indentation.Shape(options.max_levels, options.include_siblings, options.include_header)
    return Block(anchor, min(args.limit, guard, _MOST_ROWS), shape)


def _positive(value: int, name: str, message: str) -> None:
    if value < 1:
        raise RespondToModel(message, kind="input_invalid", fields=(name,))


class Picture(Exception):
    """Raised for an image file, with its bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__("an image")
        self.data = data


class Job(Struct):
    """One read: opens the file through the policy, reads what the plan asks for.

    `sha256` is that of a small file, which is read in one go whatever part of it is shown; of a
    larger one only the lines up to those asked for are read, and it stays None.
    """

    files: PathPolicy
    path: str
    plan: Slice | Block
    stopped: Callable[[], bool] = lambda: False
    images: bool = False
    legacy: str | None = None
    cut_lines: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sha256: str | None = None
    is_spill: bool = False

    def open(self) -> tuple[int, os.stat_result]:
        """Open the file, if policy and size allow; the caller closes the descriptor."""
        try:
            fd = self.files.open_read(self.path)
        except OSError as error:
            raise RespondToModel(FAILED + os_words(error)) from None
        except Rejected as error:
            raise Rejected(FAILED + error.message, kind=error.kind) from None
        status = os.fstat(fd)
        try:
            self._check_size(status.st_size)
        except Rejected as error:
            os.close(fd)
            raise Rejected(FAILED + error.message) from None
        return fd, status

    def _check_size(self, size: int) -> None:
        """Enforce the size limit, except for this session's spill files: they are read in pages."""
        if size <= self.files.max_file_size or self.is_spill:
            return
        real = self.files.canonical(self.path)
        self.is_spill = any(real.startswith(f"{folder}/") for folder in self.files.exceptions)
        if not self.is_spill:
            self.files.check_size(size, self.path)

    def finish(self, fd: int, *, whole: bool = False) -> ToolOutput:
        """Read and close; `whole` says that the file is small. Raises Picture for an image.

        The descriptor stays with this function: a cancelled thread that is left behind must not
        read from another file that got its number.
        """
        try:
            source = self._source(fd, whole)
            text = self._slice(source) if isinstance(self.plan, Slice) else self._block(source)
        except OSError as error:
            raise RespondToModel(FAILED + os_words(error)) from None
        except Rejected as error:
            raise Rejected(FAILED + error.message, kind=error.kind) from None
        finally:
            os.close(fd)
        return ToolOutput("\n".join(text), notes=[*self._cut_note(), *self.notes])

    def _source(self, fd: int, whole: bool) -> Iterator[bytes]:
        head = os.read(fd, HEAD_BYTES)
        encoding = readable_as(head, self.legacy)
        if encoding is None:
            if self.images and type_of(head).image and format_of(head) is not None:
                raise Picture(head + self.files.read_fd(fd, self.path))
            raise RespondToModel(FAILED + self._not_text(head, os.fstat(fd).st_size))
        if whole:
            head = self._hashed(fd, head)
            if encoding == "utf-8" and self.legacy is not None:
                encoding = readable_as(head, self.legacy) or encoding
        return text_lines.pieces(fd, head, encoding, self._check)

    def _hashed(self, fd: int, data: bytes) -> bytes:
        while len(data) <= _QUICK_BYTES:
            piece = os.read(fd, _QUICK_BYTES)
            if not piece:
                self.sha256 = sha256(data).hexdigest()
                break
            data += piece
        return data

    def _check(self, total: int) -> None:
        self._check_size(total)
        if self.stopped():
            raise RespondToModel(FAILED + "cancelled", kind="aborted")

    def _not_text(self, head: bytes, size: int) -> str:
        return f"{self.path} is not text but {type_of(head).words}, {size:,} bytes"

    def _slice(self, source: Iterator[bytes]) -> list[str]:
        wanted = self.plan
        assert isinstance(wanted, Slice)  # noqa: S101 - finish() looked
        shown: list[str] = []
        size = 0
        lines = text_lines.CutLines(text_lines.skip(source, wanted.offset - 1))
        for number, raw in enumerate(lines, wanted.offset):
            shown.append(self._line(number, raw))
            size += len(shown[-1])
            if len(shown) == wanted.limit or size >= _MOST_BYTES:
                unasked = size >= _MOST_BYTES or not wanted.asked
                if unasked and lines.more():
                    self.notes.append(f"more lines follow; continue with offset {number + 1}")
                break
        if not shown:
            message = "offset exceeds file length"
            raise RespondToModel(message, kind="input_invalid", fields=("offset",))
        return shown

    def _block(self, source: Iterator[bytes]) -> list[str]:
        wanted = self.plan
        assert isinstance(wanted, Block)  # noqa: S101 - finish() looked
        rows, anchor = indentation.around(
            text_lines.CutLines(source, indentation.MEASURED_BYTES),
            wanted.anchor,
            wanted.most,
            text_lines.KEPT_BYTES,
        )
        if not rows:
            message = "anchor_line exceeds file length"
            raise RespondToModel(message, kind="input_invalid", fields=("indentation.anchor_line",))
        block = indentation.block(rows, anchor, wanted.most, wanted.shape)
        if len(block) == _MOST_ROWS:
            self.notes.append(f"stopped at {_MOST_ROWS:,} lines, the most for one block")
        return [self._line(row.number, row.raw) for row in block]

    def _line(self, number: int, raw: bytes) -> str:
        text, cut = text_lines.shown(raw)
        if cut:
            self.cut_lines.append(number)
        return f"L{number}: {text}"

    def _cut_note(self) -> list[str]:
        if not self.cut_lines:
            return []
        names = ", ".join(f"L{number}" for number in self.cut_lines[:_NAMED_LINES])
        more = len(self.cut_lines) - _NAMED_LINES
        tail = f" and {more} more" if more > 0 else ""
        return [f"cut at {text_lines.LINE_BYTES} bytes: {names}{tail}"]
