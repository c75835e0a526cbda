"""`edit_file`: replace text that occurs exactly once in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.tool import arguments
from toolrest.gate.tool.tool import ExecItem, Icon, Tool, ToolQuestion
from toolrest.items import Group, JSONObject, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.files import apply_patch

if TYPE_CHECKING:
    from toolrest.patch.request import Request

_NAMES = frozenset(
    {"path", "file_path", "edits", "dryRun", "dry_run"}
    | {"oldText", "old_string", "newText", "new_string", "replaceAll", "replace_all"}
)


def _schema() -> JSONObject:
    def text(description: str) -> JSONObject:
        return {"type": "string", "description": description}

    def flag(description: str) -> JSONObject:
        return {"type": "boolean", "description": description}

    edit: JSONObject = {
        "type": "object",
        "properties": {
            "oldText": text("The text to replace, exactly as it is in the file."),
            "newText": text("The text to put there."),
            "replaceAll": flag("Replace every occurrence."),
        },
        "required": ["oldText", "newText"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "path": text("The file to change."),
            "edits": {
                "type": "array",
                "description": "The replacements, each on the result of the one before.",
                "items": edit,
            },
            "dryRun": flag("Only show what would change."),
        },
        "required": ["path", "edits"],
        "additionalProperties": False,
    }


class EditFile(Tool):
    """`edit_file`, on the patch engine: the same gate, events and keys as apply_patch."""

    name = "edit_file"
    description = (
        "Change a file by replacing text, and get the change back as a diff. oldText must occur "
        "exactly once, or set replaceAll. All edits of a call apply, or none."
    )
    group: Group = "patch"
    capability = "change files"
    icon: Icon = "edit"
    exec_item: ExecItem = ""
    offered_when = ("enabled:edit_file",)
    typical = Effects(writes=("<path>",))
    parameters = _schema()

    def decode(self, raw: str | Mapping[str, Any]) -> arguments.Decoded:
        """Read the edits, in any of their spellings."""
        value = arguments.parse_object(raw)
        unknown = tuple(name for name in value if name not in _NAMES)
        return arguments.Decoded(_request(value, self.name), unknown)

    def effects(self, args: Request, ctx: Context) -> Effects:
        """Writes that one file; a dry run reads it."""
        return apply_patch.patch_effects(args, ctx.cwd, ctx)

    async def prepare(self, args: Request, ctx: Context) -> None:
        """Check that the edits would apply, before approval is asked for."""
        await apply_patch.prepare_patch(args, ctx.cwd, ctx)

    async def run(self, args: Request, ctx: Context) -> ToolOutput:
        """Make all edits or none, and show them."""
        return await ctx.in_thread(_edit, args, ctx)

    def question(self, args: Request, ctx: Context) -> ToolQuestion:
        """The change as a diff."""
        return apply_patch.patch_question(ctx.cwd, ctx)

    def rejected_text(self, message: str) -> str:
        """The message of a denied edit."""
        return "edit rejected by user" if message == "rejected by user" else message


def _request(value: Mapping[str, Any], tool: str) -> Request:
    from toolrest.patch.errors import PatchError
    from toolrest.patch.forms.string_edits import from_arguments
    from toolrest.patch.request import Request

    try:
        return Request("edit", from_arguments(value), f"{tool} failed")
    except PatchError as error:
        raise RespondToModel(f"{tool} failed: {error.verdict}", kind="input_invalid") from None


def _edit(request: Request, ctx: Context) -> ToolOutput:
    if request.dry_run:
        return apply_patch.dry_run(request, ctx)
    records = apply_patch.verify(request, ctx.cwd, ctx)
    if not records:
        return ToolOutput(apply_patch.NO_CHANGES)
    return reporting(
        apply_patch.apply(request, ctx.cwd, ctx), request, apply_patch.fenced_diff(records, ctx)
    )


def reporting(output: ToolOutput, request: Request, text: str) -> ToolOutput:
    """A message of apply_patch, reworded for a tool with another name."""
    if output.failure is not None:
        message = f"{request.error_prefix}: {output.failure.message.rstrip()}"
        failed = ToolOutput.error(message, output.failure.kind, output.failure.fields)
        failed.notes = output.notes
        return failed
    output.content = text
    return output
