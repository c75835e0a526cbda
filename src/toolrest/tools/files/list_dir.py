"""`list_dir`: list a folder, sorted by path, a page at a time."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Generator
from typing import TypeAlias

from msgspec import Struct, field

from toolrest.errors import Rejected, RespondToModel, os_words
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.policy.paths.policy import Entry, OpenFolder, PathPolicy

FAILED = "failed to read directory: "
NAME_BYTES = 500
_NAMED_PROBLEMS = 5
# Each level holds a descriptor.
_MOST_LEVELS = 200
_SUFFIXES = {"file": "", "dir": "/", "symlink": "@", "other": "?"}
# A line break in a file's name must not be able to forge a line of this listing.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


Run: TypeAlias = tuple[int, list[Entry]]
"""Entries that follow each other on one level."""


class ListDir(Tool):
    """`list_dir`. Hidden entries are left out without a trace."""

    name = "list_dir"
    description = (
        "List a directory, sorted by path, children indented under their parent. Directories "
        "end in `/`, symbolic links in `@`, other special files in `?`."
    )
    group: Group = "read"
    icon: Icon = "read"
    exec_item: ExecItem = ""
    needs = ("files:all", "files:list_dir")
    typical = Effects(reads=("<dir_path>",))
    idempotent = True

    class Args(Parameters):
        """Parameters."""

        dir_path: str = param(
            description="The directory, absolute or relative to the working directory."
        )
        offset: int = param(default=1, ge=0, description="First entry to list, counted from 1.")
        limit: int = param(default=25, ge=0, description="Most entries to return.")
        depth: int = param(
            default=2, ge=0, description="How many levels to list; 1 is the directory itself."
        )

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Reads that folder."""
        return Effects(reads=(args.dir_path,))

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Return a page of the listing, or an error for the model."""
        _positive(args.offset, "offset", "offset must be a 1-indexed entry number")
        _positive(args.limit, "limit", "limit must be greater than zero")
        _positive(args.depth, "depth", "depth must be greater than zero")
        listing = Listing(ctx.files, args.dir_path, args.depth, lambda: ctx.cancelled)
        return await ctx.in_thread(listing.page, args.offset, args.limit)


def _positive(value: int, name: str, message: str) -> None:
    if value < 1:
        raise RespondToModel(message, kind="input_invalid", fields=(name,))


class Listing(Struct):
    """A walk in the order of whole paths, no further than one page."""

    files: PathPolicy
    path: str
    depth: int
    stopped: Callable[[], bool] = lambda: False
    problems: list[str] = field(default_factory=list)

    def page(self, offset: int, limit: int) -> ToolOutput:
        """The header, the entries of one page, and a last line when more follow."""
        shown = self.path if self.path.startswith("/") else self.files.resolve(self.path)
        lines = [f"Absolute path: {one_line(lossy(shown))}"]
        passed = 0
        with contextlib.closing(self.walk()) as walk:
            for level, entries in walk:
                first = max(offset - 1 - passed, 0)
                passed += len(entries)
                if first < len(entries):
                    room = limit + 1 - len(lines)
                    lines += shown_entries(entries[first : first + room], level)
                    if len(entries) - first > room:
                        lines.append(f"More than {limit} entries found")
                        break
        if len(lines) == 1 and passed:
            message = "offset exceeds directory entry count"
            raise RespondToModel(message, kind="input_invalid", fields=("offset",))
        return ToolOutput("\n".join(lines), notes=self._notes())

    def walk(self) -> Generator[Run, None, None]:
        """Every entry, in runs of one level, as if all relative paths were sorted bytewise.

        The children of `foo` sort as `foo/...`, so a name like `foo-bar` comes between the two.
        Each folder is read only when its turn comes.
        """
        try:
            with self.files.open_dir(self.path) as top:
                yield from self._inside(top, top.entries(), top, 0)
        except OSError as error:
            raise RespondToModel(FAILED + os_words(error)) from None
        except Rejected as error:
            raise Rejected(FAILED + error.message, kind=error.kind) from None

    def _inside(
        self, folder: OpenFolder, entries: list[Entry], top: OpenFolder, level: int
    ) -> Generator[Run, None, None]:
        run: list[Entry] = []
        count = len(entries)
        ordered = in_order(entries, level + 1 < self.depth)
        if len(ordered) == count:  # nothing to enter
            run, ordered = ordered, []
        for entry in ordered:
            name = entry[0]
            if not name.endswith("/"):
                run.append(entry)
                continue
            if run:
                yield level, run
                run = []
            if self.stopped():
                raise RespondToModel(FAILED + "cancelled", kind="aborted")
            with contextlib.ExitStack() as stack:
                try:
                    if level >= _MOST_LEVELS:
                        raise Rejected(f"deeper than {_MOST_LEVELS} levels")
                    below = stack.enter_context(folder.enter(name[:-1]))
                    children = below.entries()
                except (OSError, Rejected) as error:
                    self._missed(os.path.join(folder.real, name[:-1]), top.real, error)
                else:
                    yield from self._inside(below, children, top, level + 1)
        if run:
            yield level, run

    def _missed(self, path: str, top: str, error: OSError | Rejected) -> None:
        """Record a folder that cannot be read, for a note below the listing."""
        reason = os_words(error) if isinstance(error, OSError) else error.message
        name = one_line(lossy(os.path.relpath(path, top)))
        self.problems.append(f"{name} ({reason})")

    def _notes(self) -> list[str]:
        if not self.problems:
            return []
        named = ", ".join(self.problems[:_NAMED_PROBLEMS])
        more = len(self.problems) - _NAMED_PROBLEMS
        return [f"not listed: {named}" + (f" and {more} more" if more > 0 else "")]


def shown_entries(entries: list[Entry], level: int) -> list[str]:
    """Entries of one level as lines."""
    indent = "  " * level
    names = [name for name, _ in entries]
    # Nearly all names can be shown as they are; one check covers them all.
    if not "".join(names).isprintable() or max(map(len, names), default=0) * 4 > NAME_BYTES:
        names = [clean(name) for name in names]
    return [indent + name + _SUFFIXES[kind] for name, (_, kind) in zip(names, entries, strict=True)]


def in_order(entries: list[Entry], deeper: bool) -> list[Entry]:
    """Entries sorted bytewise; a name that ends in a slash stands for a folder's children."""
    if deeper:
        entries += [(f"{name}/", kind) for name, kind in entries if kind == "dir"]
    try:
        "".join([name for name, _ in entries]).encode()
    except UnicodeEncodeError:
        # Only names that are no UTF-8 sort differently as text than as bytes.
        entries.sort(key=lambda entry: os.fsencode(entry[0]))
    else:
        entries.sort()
    return entries


def clean(name: str) -> str:
    """A name that can be shown: valid text, one line, at most 500 bytes."""
    if len(name) * 4 <= NAME_BYTES and name.isprintable():
        return name
    # Three bytes more than shown, so that a character across the limit is whole until it is cut.
    text = os.fsencode(name)[: NAME_BYTES + 3].decode("utf-8", "replace")
    return one_line(text.encode()[:NAME_BYTES].decode("utf-8", "ignore"))


def lossy(path: str) -> str:
    """A path as valid text."""
    return os.fsencode(path).decode("utf-8", "replace")


def one_line(text: str) -> str:
    """Text with its control characters escaped."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
