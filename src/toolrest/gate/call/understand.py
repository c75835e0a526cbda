"""Resolve a call item: its tool, typed arguments and effects.

Calls whose arguments had to be repaired may read, but not change anything (R-62).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolrest.errors import MissingLocalShellCallId, Rejected, RespondToModel
from toolrest.gate.call.report import emit_begin
from toolrest.gate.context import Context
from toolrest.gate.threads import run_in_thread
from toolrest.gate.tool import arguments
from toolrest.gate.tool.arguments import PREFIX
from toolrest.gate.tool.freeform import check_freeform
from toolrest.gate.tool.registry import Registry
from toolrest.gate.tool.tool import Tool
from toolrest.items import (
    CallItem,
    CustomToolCall,
    FunctionCall,
    JSONObject,
    LocalShellCall,
    MalformedCall,
    ToolOutput,
    ViewImageCall,
    WebSearchCall,
)
from toolrest.policy.effects import Effects
from toolrest.policy.fingerprint import fingerprint

if TYPE_CHECKING:
    from toolrest.agent.mcp.setup import McpServers
    from toolrest.gate.call.walk import Walk
    from toolrest.gate.tool.call import ToolCall
    from toolrest.policy.launch import Changed


_LONG = 1 << 13
"""Characters of arguments from which on a tool's slow look at them is made in a thread."""
_HUGE = 1 << 17
"""Characters of arguments that are read and redacted in a thread: 5 ms."""


async def understand(walk: Walk) -> ToolCall:
    """The model's item as a call, announced; RespondToModel where it cannot be one."""
    unknown: tuple[str, ...] = ()
    try:
        _count(walk)
        await _wait_for_server(walk)
        found = _routed(walk)
        if len(found.text) > _HUGE:
            walk.place.queue(Effects.unknown())  # later calls do not overtake it
            decoded = await run_in_thread(_decode, (walk, found), threading.Event())
        else:
            decoded = _decode(walk, found)
        unknown = decoded.unknown
    except RecursionError:
        raise RespondToModel("arguments are nested too deeply", kind="input_invalid") from None
    finally:
        emit_begin(walk, unknown)
    if _takes_long(found):
        # Its place in the queue is taken before; a call of that size runs alone.
        walk.place.queue(Effects.unknown())
    return await _begin(walk, found, decoded.args)


async def look(walk: Walk) -> ToolCall:
    """The call as it would be made now; it is neither counted nor announced."""
    found = _routed(walk)
    return await _begin(walk, found, _decode(walk, found).args)


def rewrite(walk: Walk, values: JSONObject) -> ToolCall:
    """The call with other arguments, as if the model had sent them."""
    if walk.route is None:
        raise RespondToModel("there is no call to change")
    found = walk.route.with_input(values)
    args = _decode(walk, found).args
    return _begun(walk, found.tool.begin(args, _context(walk, found)))


async def begin_anew(walk: Walk, call: ToolCall, changed: Changed) -> ToolCall:
    """The call, understood once more after something had changed at the last moment."""
    if walk.route is not None and _takes_long(walk.route):
        walk.call = await call.ctx.in_thread(call.again, changed)
    else:
        walk.call = call.again(changed)
    return walk.call


def _count(walk: Walk) -> None:
    if walk.refused is not None:
        raise Rejected(f"not run: the turn has failed: {walk.refused}", kind="fatal")
    walk.session.quota.take()


async def _wait_for_server(walk: Walk) -> None:
    """Wait for the MCP server of a tool that is not known yet, if it is starting."""
    servers, namespace = walk.session.servers, getattr(walk.item, "namespace", None)
    if servers is not None and walk.session.registry.get(walk.item.name) is None:
        walk.place.queue(Effects.unknown())  # later calls do not overtake it
        await servers.wait_for_tool(f"{namespace or ''}{walk.item.name}")


def _routed(walk: Walk) -> Route:
    session = walk.session
    found = route(walk.item, session.registry, session.servers)
    if not (walk.turn.reaches_all or session.registry.offers(found.tool)):
        raise not_offered(walk.item.name)
    return found


def _decode(walk: Walk, found: Route) -> arguments.Decoded:
    walk.route, walk.tool = found, found.tool
    walk.arguments = walk.session.redactor.redact(found.text)
    walk.fingerprint = fingerprint_of(found)
    return found.decode()


def _context(walk: Walk, found: Route) -> Context:
    turn = walk.turn
    walk.ctx = Context(walk.session, walk.call_id, found.tool.name, turn.id, turn.diff)
    return walk.ctx


async def _begin(walk: Walk, found: Route, args: Any) -> ToolCall:
    tool, ctx = found.tool, _context(walk, found)
    if _takes_long(found):
        return _begun(walk, await ctx.in_thread(tool.begin, args, ctx))
    return _begun(walk, tool.begin(args, ctx))


def _begun(walk: Walk, call: ToolCall) -> ToolCall:
    walk.call = call
    if getattr(walk.item, "repaired", ()):
        refuse_repaired(walk.item, call.effects, walk.arguments)
    return call


def _takes_long(found: Route) -> bool:
    return found.tool.slow_effects and len(found.text) > _LONG


class Route(Struct):
    """A tool and the arguments as text: JSON, or raw for a freeform tool."""

    tool: Tool
    text: str
    freeform: bool = False

    def decode(self) -> arguments.Decoded:
        """Typed arguments; RespondToModel with the reason when they are wrong."""
        if self.freeform:
            check_freeform(self.tool, self.text)
            return arguments.Decoded(self.text)
        return self.tool.decode(self.text)

    def with_input(self, values: JSONObject) -> Route:
        """The same tool with other arguments; a freeform tool's text is under `input`."""
        if not self.freeform:
            return Route(self.tool, arguments.as_json_text(values))
        text = values.get("input")
        if not isinstance(text, str):
            raise RespondToModel("`input` must be a text", kind="input_invalid", fields=("input",))
        return Route(self.tool, text, freeform=True)


def route(item: CallItem, registry: Registry, servers: McpServers | None = None) -> Route:
    """Find the tool; RespondToModel when there is none or it takes another kind of payload."""
    if isinstance(item, FunctionCall):
        return _function(item, registry, servers)
    if isinstance(item, CustomToolCall):
        return _custom(item, registry, servers)
    if isinstance(item, MalformedCall):
        raise RespondToModel(item.problem, kind="input_invalid")
    if isinstance(item, LocalShellCall):
        if not item.call_id:
            raise MissingLocalShellCallId
        values = _shell_arguments(item.action)
    elif isinstance(item, ViewImageCall):
        values = {"path": item.image_path}
    elif isinstance(item, WebSearchCall):
        values = {"query": item.query}
    tool = registry.get(item.name)
    if tool is None:
        raise _unknown(item.name, registry, servers, "unsupported call")
    return Route(tool, arguments.as_json_text(values))


def _function(item: FunctionCall, registry: Registry, servers: McpServers | None) -> Route:
    tool = registry.get(item.name, item.namespace)
    if tool is None:
        raise _unknown(item.name, registry, servers, "unsupported call", item.namespace)
    if tool.kind != "custom" or tool.takes_any_payload:
        return Route(tool, arguments.as_json_text(_own_names(item, tool)))
    value = arguments.parse_object(item.arguments)
    text = value.get("input")
    if not isinstance(text, str):
        problem = (
            "missing field `input`"
            if "input" not in value
            else f"`input`: expected a string, got {arguments.describe(text)}"
        )
        raise arguments.invalid([problem], ("input",))
    return Route(tool, text, freeform=True)


def _own_names(item: FunctionCall, tool: Tool) -> str | Mapping[str, Any]:
    """The arguments under the tool's own names, where the wire had to offer others."""
    if item.wire != "anthropic" or not tool.renamed_arguments:
        return item.arguments
    own = tool.renamed_arguments
    value = arguments.parse_object(item.arguments)
    return {name if own.get(name) in value else own.get(name, name): value[name] for name in value}


def _custom(item: CustomToolCall, registry: Registry, servers: McpServers | None) -> Route:
    tool = registry.get(item.name)
    if tool is None:
        raise _unknown(item.name, registry, servers, "unsupported custom tool call")
    if tool.kind != "custom" and not tool.takes_any_payload:
        raise RespondToModel(
            f"tool {item.name} invoked with incompatible payload: it takes JSON arguments "
            "(a function call), not raw text",
            kind="input_invalid",
        )
    return Route(tool, item.input, freeform=True)


def _shell_arguments(action: Mapping[str, Any]) -> dict[str, Any]:
    """The hosted shell's action as arguments of the shell tool; env and user are ignored."""
    names = {"command": "command", "working_directory": "workdir", "timeout_ms": "timeout_ms"}
    return {
        ours: action[theirs] for theirs, ours in names.items() if action.get(theirs) is not None
    }


def _unknown(
    name: str,
    registry: Registry,
    servers: McpServers | None,
    phrase: str,
    namespace: str | None = None,
) -> RespondToModel:
    reason = registry.reason(name)
    if reason is not None:
        hint = f" (the tool is set aside: {reason})"
    elif namespace and registry.get(name) is not None:
        hint = f" (there is no {name} in the namespace {namespace}; call it without a namespace)"
    elif servers is not None and (why := servers.explain(name)):
        hint = f" ({why})"
    else:
        near = registry.nearest(name)
        hint = f" (did you mean {near}?)" if near else ""
    return RespondToModel(f"{phrase}: {name}{hint}", kind="tool_not_found")


def not_offered(name: str) -> RespondToModel:
    """The answer to a model's call of a tool that the host program did not name."""
    return RespondToModel(f"unsupported call: {name} (not offered here)", kind="tool_not_found")


def fingerprint_of(found: Route) -> str:
    """The fingerprint of a call: equal for the same tool with the same arguments."""
    return fingerprint(found.tool.name, found.text if found.freeform else _loads(found.text))


def _loads(text: str) -> Any:
    try:
        if text.startswith("{"):
            # `json.loads` without its checks, which take most of its time.
            value, end = _raw_decode(text)
            if end == len(text):
                return value
        return json.loads(text)
    except ValueError:
        return text


_raw_decode = json.JSONDecoder().raw_decode


_LONGEST_SHOWN = 2000


def refuse_repaired(item: CallItem, effects: Effects, arguments: str) -> None:
    """Refuse a mutating call with repaired arguments; the model has to send it exactly.

    `arguments` is what would have run, without secrets.
    """
    if not isinstance(item, FunctionCall) or not item.repaired or not effects.mutating:
        return
    message = f"{PREFIX}not what the schema asks for as written ({'; '.join(item.repaired)})"
    message += f"; nothing was run, because {item.name} may change things. "
    if len(arguments) > _LONGEST_SHOWN:
        message += "Send the call again with exact arguments."
    else:
        message += f"If you meant this, send exactly this: {arguments}"
    raise RespondToModel(message, kind="input_invalid", fields=("arguments",))


def with_repair_note(item: CallItem, output: ToolOutput) -> ToolOutput:
    """The output with a note about repaired arguments."""
    if not isinstance(item, FunctionCall) or not item.repaired or output.failed:
        return output
    note = f"the arguments were repaired: {'; '.join(item.repaired)}"
    return replace(output, notes=[*output.notes, note])
