"""Tool specs: how a tool is offered on each wire.

Responses takes four kinds of tools; the other wires take functions only, so there a freeform tool
becomes a function with one string `input`, the hosted shell one named `shell`, and web search one
with a `query`. Nothing is left out. Equal tools give equal bytes, run after run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from toolrest.errors import ToolDefinitionError
from toolrest.gate.schema.for_wire import Subset, clean_text, for_wire
from toolrest.gate.tool.wire_names import is_legal
from toolrest.items import JSONObject, Wire

_MAX_DESCRIPTION: Final = 16_384
_MAX_FOREIGN_DESCRIPTION: Final = 4096


class GrammarSource(Protocol):
    """The grammar of a freeform tool's input."""

    @property
    def syntax(self) -> str:
        """`lark` or `regex`."""

    @property
    def definition(self) -> str:
        """The grammar itself."""


class SpecSource(Protocol):
    """The attributes of a tool that its spec needs. `gate.tool.Tool` has them.

    More is read when it is there: `mcp` (the tool is another server's, and its description is cut
    shorter), `annotations` (sent on the MCP wire), and `validate()`, which may refuse.
    """

    @property
    def name(self) -> str:
        """The tool's own name."""

    @property
    def description(self) -> str:
        """The description for the model."""

    @property
    def kind(self) -> str:
        """`function`, `custom`, `local_shell` or `web_search`."""

    @property
    def parameters(self) -> JSONObject:
        """The JSON Schema of its arguments."""

    @property
    def grammar(self) -> GrammarSource | None:
        """For `custom`: the grammar of its input, if it has one."""

    @property
    def hosted(self) -> JSONObject | None:
        """Further keys of its spec on the Responses wire."""


class FunctionForm(Struct, frozen=True):
    """A kind of tool as a function: its name (None: the tool's own) and arguments."""

    description: str
    parameters: JSONObject
    name: str | None = None


def _object(required: str, properties: JSONObject) -> JSONObject:
    return {
        "type": "object",
        "properties": properties,
        "required": [required],
        "additionalProperties": False,
    }


_STRINGS: Final[JSONObject] = {"type": "array", "items": {"type": "string"}}

FUNCTION_FORM: Final[Mapping[str, FunctionForm]] = MappingProxyType(
    {
        "custom": FunctionForm(
            "Takes plain text.",
            _object("input", {"input": {"type": "string"}}),
        ),
        "local_shell": FunctionForm(
            "Runs a program and returns its output.",
            _object(
                "command",
                {
                    "command": {
                        **_STRINGS,
                        "description": "The program and its arguments, one item each.",
                    },
                    "description": {
                        "type": "string",
                        "description": "What the command is for, in a few words.",
                    },
                    "justification": {
                        "type": "string",
                        "description": "With require_escalated: the question for the user.",
                    },
                    "prefix_rule": {
                        **_STRINGS,
                        "description": "With require_escalated: the leading words of commands "
                        "that should not need asking again.",
                    },
                    "sandbox_permissions": {
                        "type": "string",
                        "enum": ["use_default", "require_escalated"],
                        "description": "require_escalated asks to run outside the sandbox.",
                    },
                    "timeout_ms": {
                        "type": "integer",
                        "description": "When to give up, in milliseconds.",
                    },
                    "workdir": {"type": "string", "description": "The folder to run in."},
                },
            ),
            name="shell",
        ),
        "web_search": FunctionForm(
            "Searches the web.",
            _object(
                "query",
                {"query": {"type": "string", "description": "What to look for."}},
            ),
        ),
    }
)
"""By kind, for wires that know only functions. A call of such a function has these arguments:
`input` is the raw text of a `custom` tool, the others are the tool's own arguments."""


def render(
    tool: SpecSource,
    wire: Wire,
    *,
    name: str | None = None,
    subset: Subset | None = None,
    taken: Collection[str] = (),
    as_functions: bool = False,
) -> JSONObject:
    """One tool as `wire` takes it; `ToolDefinitionError` when it cannot be offered.

    `name` is what models see instead of the tool's own; `taken` are names of other tools, which
    the hosted shell's function must not get. `as_functions` is for models that do better with
    functions: on Responses too every kind then becomes one.
    """
    name = tool.name if name is None else name
    if not is_legal(name):
        raise ToolDefinitionError(f"{name}: not a name that wires take (letters, digits, _ and -)")
    _validate(tool)
    if wire == "responses" and tool.kind != "function" and not as_functions:
        return _native(tool, name)
    function = _function(tool, name, wire, subset, taken)
    if wire == "chat":
        return _chat(function, outer=subset == "codex")
    return _SHAPES[wire](tool, function)


def _validate(tool: SpecSource) -> None:
    validate = getattr(tool, "validate", None)
    if validate is None:
        return
    try:
        validate()
    except ToolDefinitionError as problem:
        message = str(problem)
        named = message if tool.name in message else f"{tool.name}: {message}"
        raise ToolDefinitionError(named) from None


class _Function(NamedTuple):
    name: str
    description: str
    parameters: JSONObject


def _function(
    tool: SpecSource, name: str, wire: Wire, subset: Subset | None, taken: Collection[str]
) -> _Function:
    form = FUNCTION_FORM.get(tool.kind)
    parameters: object = tool.parameters
    description = _description(tool)
    if form is not None:
        if form.name is not None and form.name not in taken:
            name = form.name
        parameters = _form_parameters(tool, form)
        description = description or form.description
    return _Function(name, description, for_wire(parameters, wire, subset=subset, tool=tool.name))


def _form_parameters(tool: SpecSource, form: FunctionForm) -> JSONObject:
    """The tool's own arguments if it names any; text for a freeform tool, with its grammar."""
    if tool.kind != "custom":
        return tool.parameters if tool.parameters.get("properties") else form.parameters
    text = "The whole input, as plain text."
    if tool.grammar is not None:
        text += f" It must match this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}"
    return _object("input", {"input": {"type": "string", "description": text}})


def _description(tool: SpecSource) -> str:
    foreign = getattr(tool, "mcp", None) is not None
    limit = _MAX_FOREIGN_DESCRIPTION if foreign else _MAX_DESCRIPTION
    return clean_text(tool.description, limit)


def _native(tool: SpecSource, name: str) -> JSONObject:
    """The spec of a kind that only Responses has."""
    if tool.kind != "custom":
        return _with_extra({"type": tool.kind}, tool)
    form: JSONObject = {"type": "text"}
    if tool.grammar is not None:
        form = {
            "type": "grammar",
            "syntax": tool.grammar.syntax,
            "definition": tool.grammar.definition,
        }
    spec = {"type": "custom", "name": name, "description": _description(tool), "format": form}
    return _with_extra(spec, tool)


def _with_extra(spec: JSONObject, tool: SpecSource) -> JSONObject:
    extra = copy.deepcopy(tool.hosted or {})
    return {**spec, **{key: extra[key] for key in extra if key not in spec}}


def _responses(tool: SpecSource, function: _Function) -> JSONObject:
    spec = {
        "type": "function",
        "name": function.name,
        "description": function.description,
        "strict": False,
        "parameters": function.parameters,
    }
    # The extra keys of a hosted kind are for its own spec; a function has none.
    return _with_extra(spec, tool) if tool.kind == "function" else spec


def _chat(function: _Function, *, outer: bool) -> JSONObject:
    """The spec for Chat Completions; Codex writes the name outside of `function` as well."""
    body = {
        "name": function.name,
        "description": function.description,
        "strict": False,
        "parameters": function.parameters,
    }
    return {"type": "function", **({"name": function.name} if outer else {}), "function": body}


def _anthropic(_tool: SpecSource, function: _Function) -> JSONObject:
    return {
        "name": function.name,
        "description": function.description,
        "input_schema": function.parameters,
    }


def _mcp(tool: SpecSource, function: _Function) -> JSONObject:
    spec: JSONObject = {
        "name": function.name,
        "description": function.description,
        "inputSchema": function.parameters,
    }
    hints = getattr(tool, "annotations", None)
    if isinstance(hints, Mapping) and hints:
        spec["annotations"] = copy.deepcopy(dict(hints))
    return spec


_SHAPES: Final[Mapping[str, Callable[[SpecSource, _Function], JSONObject]]] = MappingProxyType(
    {"responses": _responses, "anthropic": _anthropic, "mcp": _mcp}
)
