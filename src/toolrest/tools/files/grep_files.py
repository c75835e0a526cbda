"""`grep_files`: find files whose content matches, newest first; also the lines, or counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, field

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.files import grep_matches as matches
from toolrest.tools.files.ripgrep import (
    PathFilter,
    PathNames,
    Ripgrep,
    SearchEnd,
    SearchRoot,
    one_line_each,
    place,
)

NOTHING = "No matches found."
MOST = 2000
_MOST_CONTEXT = 50
_NAMED = 5
_INCOMPLETE = "some files or folders could not be read and were not searched"


class GrepFiles(Tool):
    """`grep_files`, with ripgrep. No result names a hidden path, whatever was asked for."""

    name = "grep_files"
    description = (
        "Find the files whose contents match a regular expression, newest first. Files that "
        'git ignores are left out. output_mode "content" shows the matching lines, "count" how '
        "many there are in each file."
    )
    group: Group = "read"
    icon: Icon = "search"
    exec_item: ExecItem = ""
    needs = ("files:all", "files:grep_files")
    typical = Effects(reads=("<path>",))
    idempotent = True

    class Args(Parameters):
        """Parameters."""

        pattern: str = param(description="The regular expression, in ripgrep's syntax.")
        include: str | None = param(
            default=None, description='Only files that match this glob, such as "*.py".'
        )
        path: str | None = param(
            default=None,
            description="The directory or file to search; the working directory by default.",
        )
        limit: int = param(default=100, ge=0, description=f"Most results to return, up to {MOST}.")
        output_mode: Literal["files", "content", "count"] = param(
            default="files",
            description='"files" lists paths, "content" matching lines, "count" their number.',
        )
        context: int = param(
            default=0, ge=0, description='With "content": lines to show around each match.'
        )
        offset: int = param(default=1, ge=0, description="First result to return, from 1.")

    def __init__(self, rg: Ripgrep | None = None) -> None:
        self.rg = rg or Ripgrep()

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Reads what lies below the searched path."""
        return Effects(reads=(args.path or ctx.cwd,))

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Return one page of results, or an error for the model."""
        search = _search(args, ctx)
        if args.output_mode == "files":
            return await self._files(search, ctx)
        return await self._lines(search, ctx, args.output_mode == "count")

    async def _files(self, search: Search, ctx: Context) -> ToolOutput:
        names = PathNames(search.where, ctx.files, search.offset - 1, search.limit)
        ended = await self._run(["--files-with-matches"], search, ctx, names.take)
        lines = list(one_line_each(names.kept))
        return search.output(lines, len(lines), ended, more=names.more)

    async def _lines(self, search: Search, ctx: Context, counted: bool) -> ToolOutput:
        skipped, limit = search.offset - 1, search.limit
        found = matches.GrepMatches(search.where, ctx.files, skipped, limit)
        # The text of a line comes from the file, by way of the policy; its number is enough here.
        flags = ["--count"] if counted else ["--line-number", "--max-columns=1", "--no-heading"]
        ended = await self._run(["--with-filename", *flags], search, ctx, found.take)
        if counted:
            lines = [f"{path}:{count}" for path, count in found.counts()]
        else:
            lines = await ctx.in_thread(
                found.lines, search.context, ctx.session.settings.legacy_encoding
            )
        return search.output(lines, found.taken, ended, more=found.more)

    async def _run(
        self, flags: list[str], search: Search, ctx: Context, take: Callable[[bytes], bool]
    ) -> SearchEnd:
        arguments = [
            *flags,
            "--null",
            "--debug",
            f"--max-filesize={ctx.files.max_file_size}",
            "--color=never",
            "--sortr=modified",
            f"--regexp={search.pattern}",
            "--no-messages",
            *([f"--glob={search.include}"] if search.include else []),
            "--",
            search.where.real,
        ]
        where, most = search.where, ctx.files.max_file_size
        if not where.is_folder and os.stat(where.real).st_size > most:
            ended = SearchEnd(1, too_large=(os.fsencode(where.real),))  # rg would search it
        else:
            ended = await self.rg.run(arguments, take, cwd=ctx.cwd, ctx=ctx)
            ended.check()
        search.note_large(ended.too_large, ctx)
        return ended


class Search(Struct):
    """A checked search request."""

    pattern: str
    include: str
    where: SearchRoot
    limit: int
    offset: int
    context: int
    notes: list[str] = field(default_factory=list)

    def note_large(self, paths: Sequence[bytes], ctx: Context) -> None:
        """Note the files that were passed over for their size, as far as they may be shown."""
        filtered = PathFilter(self.where, ctx.files)
        shown = sorted(path for path in map(filtered.shown, paths) if path is not None)
        if not shown:
            return
        top = self.where.shown if self.where.is_folder else os.path.dirname(self.where.shown)
        named = ", ".join(one_line_each([os.path.relpath(path, top) for path in shown[:_NAMED]]))
        more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
        limit = f"tool_security.max_file_access_size ({ctx.files.max_file_size:,} bytes)"
        self.notes.append(f"not searched, over {limit}: {named}{more}")

    def output(self, lines: list[str], shown: int, ended: SearchEnd, *, more: bool) -> ToolOutput:
        """The page of results, with notes."""
        if ended.incomplete:
            self.notes.append(_INCOMPLETE)
        if more:
            following = self.offset + shown
            self.notes.append(f"more results follow; continue with offset {following}")
        if not lines:
            # Nothing found is a result, not an error.
            return ToolOutput(NOTHING, success=False, notes=self.notes)
        return ToolOutput("\n".join(lines), notes=self.notes)


def _search(args: GrepFiles.Args, ctx: Context) -> Search:
    pattern = args.pattern.strip()
    if not pattern:
        raise _wrong("pattern", "pattern must not be empty")
    if args.limit < 1:
        raise _wrong("limit", "limit must be greater than zero")
    if args.offset < 1:
        raise _wrong("offset", "offset must be a 1-indexed result number")
    include = (args.include or "").strip()
    where = place(args.path or None, ctx)
    limit = min(args.limit, MOST)
    return Search(pattern, include, where, limit, args.offset, min(args.context, _MOST_CONTEXT))


def _wrong(name: str, message: str) -> RespondToModel:
    return RespondToModel(message, kind="input_invalid", fields=(name,))
