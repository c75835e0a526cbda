"""`write_file`: create a file, or replace its whole content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.call import ToolCall
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.files.apply_patch import PatchCall
from toolrest.tools.files.edit_file import reworded

if TYPE_CHECKING:
    from toolrest.patch.request import Request


class WriteFile(Tool):
    """`write_file`, on the patch engine: the same gate, events and keys as apply_patch."""

    name = "write_file"
    description = (
        "Create a file with this content, or replace everything in it. Missing directories are "
        "made. To change a part of a file, edit it instead."
    )
    group: Group = "edit"
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

    def begin(self, args: Args, ctx: Context) -> ToolCall:
        """The new content, on the patch engine."""
        return WriteCall(self, args, ctx, _request(args, self.name), ctx.cwd)

    def rejected_text(self, message: str) -> str:
        """The message of a denied write."""
        return "write rejected by user" if message == "rejected by user" else message


def _request(args: WriteFile.Args, tool: str) -> Request:
    from toolrest.patch.forms.whole_file import WriteRequest
    from toolrest.patch.request import Request

    return Request("write", WriteRequest(args.path, args.content), f"{tool} failed")


class WriteCall(PatchCall):
    """The whole content of one file; the result says whether it is new."""

    args: WriteFile.Args

    async def prepare(self) -> None:
        """Check that the file could be written, before approval is asked for."""
        size = len(self.args.content.encode("utf-8", "replace"))
        self.ctx.files.check_size(size, self.args.path)
        await super().prepare()

    def present(self, output: ToolOutput) -> ToolOutput:
        """Say whether the file is new."""
        if output.failure is not None:
            return reworded(output.failure, output.notes, self.request)
        for record in self.records:
            done = "Created" if record.before is None else "Replaced"
            output.content = f"{done} {record.path} ({len(record.after or b''):,} bytes)"
        return output
