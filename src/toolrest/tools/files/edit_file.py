"""`edit_file`: replace text that occurs exactly once in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolrest.errors import Failure, RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.tool import arguments
from toolrest.gate.tool.call import ToolCall
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group, JSONObject, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.files.apply_patch import PatchCall, fenced_diff

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
    group: Group = "edit"
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

    def begin(self, args: Request, ctx: Context) -> ToolCall:
        """The edits, on the patch engine."""
        return EditCall(self, args, ctx, args, ctx.cwd)

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


class EditCall(PatchCall):
    """Edits of one file; the result is their diff."""

    def present(self, output: ToolOutput) -> ToolOutput:
        """The change as a diff."""
        if output.failure is not None:
            return reworded(output.failure, output.notes, self.request)
        if self.records:
            output.content = fenced_diff(self.records, self.ctx)
        return output


def reworded(failure: Failure, notes: list[str], request: Request) -> ToolOutput:
    """A failure of apply_patch, reworded for a tool with another name."""
    message = f"{request.error_prefix}: {failure.message.rstrip()}"
    output = ToolOutput.error(message, failure.kind, failure.fields)
    output.notes = notes
    return output
