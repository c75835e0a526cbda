"""`glob_files`: find files by name, newest first."""

from __future__ import annotations

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.files.ripgrep import PathNames, Ripgrep, one_line_each, place

NOTHING = "No files found."
MOST = 2000


class GlobFiles(Tool):
    """`glob_files`, with ripgrep. No result names a hidden path."""

    name = "glob_files"
    description = (
        'Find files by name, newest first. A pattern without a slash ("*.py") matches names at '
        'any depth, one with a slash ("src/**/*.ts") paths below the directory. Files that git '
        "ignores are left out unless the pattern names them."
    )
    group: Group = "read"
    icon: Icon = "search"
    exec_item: ExecItem = ""
    small_window = False
    needs = ("files:all", "files:grep_files")
    typical = Effects(reads=("<path>",))
    idempotent = True

    class Args(Parameters):
        """Parameters."""

        pattern: str = param(description="The glob: *, **, ?, [abc] and {a,b} are known.")
        path: str | None = param(
            default=None,
            description="The directory to look in; the working directory by default.",
        )
        limit: int = param(default=100, ge=0, description=f"Most paths to return, up to {MOST}.")

    def __init__(self, rg: Ripgrep | None = None) -> None:
        self.rg = rg or Ripgrep()

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Reads names in that folder."""
        return Effects(reads=(args.path or ctx.cwd,))

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Return the paths, or an error for the model."""
        pattern = args.pattern.strip()
        if not pattern or pattern.startswith("!"):
            message = "pattern must name the files to find; it is empty or starts with `!`"
            raise _wrong("pattern", message)
        if args.limit < 1:
            raise _wrong("limit", "limit must be greater than zero")
        where = place(args.path or None, ctx)
        if not where.is_folder:
            raise _wrong("path", f"`{where.shown}` is not a directory")
        if pattern.startswith("/"):
            pattern = _below(pattern, where.shown, where.real)
        names = PathNames(where, ctx.files, 0, min(args.limit, MOST))
        hidden = ["--hidden"] if any(p.startswith(".") for p in pattern.split("/")) else []
        arguments = ["--files", "--null", "--color=never", "--sortr=modified", "--no-messages"]
        arguments += [*hidden, f"--glob={pattern}", "--", where.real]
        # ripgrep matches a pattern with slashes against paths below its own working directory.
        ended = await self.rg.run(arguments, names.take, cwd=where.real, ctx=ctx)
        ended.check()
        notes = []
        if ended.incomplete:
            notes.append("some folders could not be read and were not searched")
        if names.more:
            notes.append(f"more than {len(names.kept)} files match; narrow the pattern")
        text = "\n".join(one_line_each(names.kept)) or NOTHING
        return ToolOutput(text, success=bool(names.kept), notes=notes)


def _below(pattern: str, *folders: str) -> str:
    """An absolute pattern, made relative to the folder that is searched."""
    for folder in folders:
        if pattern.startswith(f"{folder.rstrip('/')}/"):
            return pattern[len(folder.rstrip("/")) :]
    raise _wrong("pattern", f"an absolute pattern must begin with the directory, {folders[0]}/")


def _wrong(name: str, message: str) -> RespondToModel:
    return RespondToModel(message, kind="input_invalid", fields=(name,))
