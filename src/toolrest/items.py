"""Items of a conversation that a tool system handles: calls and their outputs.

A call item remembers the wire it came from, so that its output can go back in the same shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field  # noqa: TID251 - public values
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from msgspec import Struct

from toolrest.errors import Failure

if TYPE_CHECKING:
    from toolrest.errors import FailureKind

Wire: TypeAlias = Literal["responses", "chat", "anthropic", "mcp"]
WIRES: tuple[Wire, ...] = ("responses", "chat", "anthropic", "mcp")

JSONObject: TypeAlias = dict[str, Any]

Group: TypeAlias = Literal[
    "shell",
    "mcp_resources",
    "plan",
    "edit",
    "read",
    "web",
    "images",
    "memory",
    "agents",
    "mcp",
    "user",
]
"""A group of tools; settings may name one instead of its tools."""
GROUPS: tuple[Group, ...] = get_args(Group)
"""Groups in the order that models see them; inside a group tools are sorted by name."""
GROUP_NAMES: Mapping[str, frozenset[Group]] = {
    **{group: frozenset((group,)) for group in GROUPS},
    "read": frozenset(("read", "images")),
    "files": frozenset(("read", "images", "edit")),
    "patch": frozenset(("edit",)),
}
"""The groups that each name in settings and `tools=` means; `patch` is the old name of `edit`."""

Provenance: TypeAlias = Literal["trusted", "workspace", "external"]
"""Origin of an output's text: Toolrest itself, the user's files, or elsewhere."""


LOADED_TOOLS = "loaded_tools"
"""A key of an output's metadata and of its item: the names of tools that can be called from there
on. Wires that can bring tools in at that place do, the others have them in their list of tools."""


class FunctionCall(Struct):
    """A call with JSON arguments: as the text the model wrote, or already decoded.

    `repaired` lists the repairs made to them: a call that changes things is then not run.
    """

    call_id: str
    name: str
    arguments: str | Mapping[str, Any] = "{}"
    wire: Wire = "responses"
    namespace: str | None = None
    repaired: tuple[str, ...] = ()


class CustomToolCall(Struct):
    """A call of a freeform tool: the input is raw text."""

    call_id: str
    name: str
    input: str
    wire: Wire = "responses"


class LocalShellCall(Struct):
    """The hosted shell's call. `call_id` falls back to the item's `id`; neither is an error."""

    call_id: str | None
    action: Mapping[str, Any]
    wire: Wire = "responses"
    name: str = "local_shell"


class ViewImageCall(Struct):
    """`view_image_call`: answered by a `view_image_call_output` item.

    Such hosted items carry no name; the tools that answer them have the item's (`name`).
    """

    call_id: str
    image_path: str
    wire: Wire = "responses"
    name: str = "view_image"


class WebSearchCall(Struct):
    """`web_search_call` that the server has not completed: answered with results."""

    call_id: str
    query: str
    wire: Wire = "responses"
    name: str = "web_search"


class MalformedCall(Struct):
    """An item that is a tool call by its type but invalid; answered with `problem`."""

    call_id: str
    problem: str
    name: str = ""
    wire: Wire = "responses"
    custom: bool = False
    item: str = ""
    """The type of a hosted item, whose output has a type of its own."""


CallItem: TypeAlias = (
    FunctionCall | CustomToolCall | LocalShellCall | ViewImageCall | WebSearchCall | MalformedCall
)


@dataclass(slots=True)
class Text:
    """A text part of an output."""

    text: str
    """The text."""


@dataclass(slots=True)
class Image:
    """An image part of an output, as a `data:` URL (or a URL the model's server can fetch)."""

    url: str
    """The `data:` URL with the image, or its address."""
    detail: str | None = None
    """How closely the model looks, on APIs that know it: `low`, `high`, `auto`."""


Content: TypeAlias = Text | Image


@dataclass(slots=True)
class ToolOutput:
    """The output of a tool call. A tool that only has text for the model returns a str instead.

    The gate redacts it and cuts it to the session's limits before the model sees it.
    """

    content: str | list[Content] = ""
    """What the model reads: a text, or parts with images."""
    success: bool | None = True
    """Whether the call did what it was asked; None when that is not known."""
    failure: Failure | None = None
    """Why the call failed. APIs with an error flag are told when this is set."""
    provenance: Provenance = "workspace"
    """Where the text comes from: Toolrest, the workspace, or `external` content."""
    structured: Any = None
    """The same as JSON, for clients that read it (MCP)."""
    metadata: JSONObject = field(default_factory=dict)
    """JSON for events and front ends, such as `exit_code`; the model does not get it."""
    notes: list[str] = field(default_factory=list)
    """Lines that are added below the output after it was cut."""
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    """Values in the content that only the model may read, by name; no event or file holds them."""

    @classmethod
    def error(
        cls, text: str, kind: FailureKind = "execution_failed", fields: tuple[str, ...] = ()
    ) -> ToolOutput:
        """An output with an error message for the model."""
        return cls(text, success=False, failure=Failure(kind, text, fields), provenance="trusted")

    @property
    def failed(self) -> bool:
        """True when the call failed for a reason that has a kind."""
        return self.failure is not None

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


class Answered(Struct):
    """A call item together with its one output, ready for a wire to encode."""

    item: CallItem
    output: ToolOutput
