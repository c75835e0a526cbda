"""`write_file`: create a file, or replace its whole content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import ExecItem, Icon, Tool, ToolQuestion
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.files import apply_patch
from toolrest.tools.files.apply_patch import NO_CHANGES
from toolrest.tools.files.edit_file import reporting

if TYPE_CHECKING:
    from toolrest.patch.request import Request


class WriteFile(Tool):
    """`write_file`, on the patch engine: the same gate, events and keys as apply_patch."""

    name = "write_file"
    description = (
        "Create a file with this content, or replace everything in it. Missing directories are "
        "made. To change a part of a file, edit it instead."
    )
    group: Group = "patch"
    capability = "change files"
    icon: Icon = "edit"
    exec_item: ExecItem = ""
    offered_when = ("patch:string_edits", "enabled:write_file")
    typical = Effects(writes=("<path>",))

    class Args(Parameters):
        """Parameters."""

        path: str = param(
            also=("file_path",),
            min_length=1,
            description="The file, absolute or relative to the working directory.",
        )
        content: str = param(description="All of its text.")

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Writes that one file."""
        return apply_patch.patch_effects(_request(args, self.name), ctx.cwd, ctx)

    async def prepare(self, args: Args, ctx: Context) -> None:
        """Check that the file could be written, before approval is asked for."""
        ctx.files.check_size(len(args.content.encode("utf-8", "replace")), args.path)
        await apply_patch.prepare_patch(_request(args, self.name), ctx.cwd, ctx)

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Write the file and say whether it is new."""
        return await ctx.in_thread(_write, _request(args, self.name), ctx)

    def question(self, args: Args, ctx: Context) -> ToolQuestion:
        """The change as a diff."""
        return apply_patch.patch_question(ctx.cwd, ctx)

    def rejected_text(self, message: str) -> str:
        """The message of a denied write."""
        return "write rejected by user" if message == "rejected by user" else message


def _request(args: WriteFile.Args, tool: str) -> Request:
    from toolrest.patch.forms.whole_file import WriteRequest
    from toolrest.patch.request import Request

    return Request("write", WriteRequest(args.path, args.content), f"{tool} failed")


def _write(request: Request, ctx: Context) -> ToolOutput:
    records = apply_patch.verify(request, ctx.cwd, ctx)
    if not records:
        return ToolOutput(NO_CHANGES)
    output = apply_patch.apply(request, ctx.cwd, ctx)
    (record,) = records
    size = len(record.after or b"")
    done = "Created" if record.before is None else "Replaced"
    return reporting(output, request, f"{done} {record.path} ({size:,} bytes)")
