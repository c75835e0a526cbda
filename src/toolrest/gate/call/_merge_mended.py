"""Calls whose arguments were repaired on the way: good enough to look, not to change (R-62)."""

from __future__ import annotations

from toolrest.errors import RespondToModel
from toolrest.gate.tool.arguments import PREFIX
from toolrest.items import CallItem, FunctionCall, ToolOutput
from toolrest.records import replace
from toolrest.policy.effects import Effects

_LONGEST_SHOWN = 2000


def refuse_mended(item: CallItem, effects: Effects, arguments: str) -> None:
    """Ask the model to say it exactly when the call may change something.

    `arguments` is what would have run, without secrets.
    """
    if not isinstance(item, FunctionCall) or not item.repaired or not effects.mutating:
        return
    words = f"{PREFIX}not what the schema asks for as written ({'; '.join(item.repaired)})"
    words += f"; nothing was run, because {item.name} may change things. "
    if len(arguments) > _LONGEST_SHOWN:
        words += "Send the call again with exact arguments."
    else:
        words += f"If this is what you meant, send exactly it: {arguments}"
    raise RespondToModel(words, kind="input_invalid", fields=("arguments",))


def noted(item: CallItem, output: ToolOutput) -> ToolOutput:
    """The output with a line that says what was put right."""
    if not isinstance(item, FunctionCall) or not item.repaired or output.failed:
        return output
    note = f"the arguments were repaired: {'; '.join(item.repaired)}"
    return replace(output, notes=[*output.notes, note])
