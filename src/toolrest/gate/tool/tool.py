"""The base class of tools.

A tool has a name, arguments, the effects of a call and how to run it. Approval, scheduling,
limits, events, audit and the wire formats come from the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from toolrest.errors import ToolDefinitionError
from toolrest.gate.tool import arguments
from toolrest.gate.tool.args_class import Parameters, model_of, schema_of
from toolrest.gate.tool.call import ToolCall
from toolrest.items import Group, JSONObject, Wire
from toolrest.policy.effects import Effects, Risk

if TYPE_CHECKING:
    from pydantic import BaseModel

    from toolrest.gate.context import Context
    from toolrest.gate.decision.decide import Decision
    from toolrest.gate.session import Ground, Session
    from toolrest.policy.name_risk import NameRisk

ToolKind: TypeAlias = Literal["function", "custom", "local_shell", "web_search"]
Icon: TypeAlias = Literal["read", "edit", "search", "execute", "think", "fetch", "other"]
"""The kind of a call for editors, as the Agent Client Protocol has them."""
OfferedAs: TypeAlias = Literal["own kind", "function", "nothing"]
"""The form in which a tool is offered on a wire: its own kind where the wire has it, or none."""
ExecItem: TypeAlias = Literal["", "command_execution", "todo_list", "tool_call"]
"""Item types of `codex exec --json` that a call alone can begin."""


class Grammar(Struct, frozen=True):
    """The grammar of a freeform tool's input."""

    syntax: Literal["lark", "regex"]
    """The syntax, which the server of the model must know."""
    definition: str
    """The grammar itself, or the regular expression."""


_OF_CALLS = ("prepare", "question", "known_writes", "reaches", "retry_keys")
_OF_EITHER = ("effects", "decide", "run")


def refuse_methods_of_calls(owner: Tool | type[Tool], name: str) -> None:
    """Raise ToolDefinitionError where a tool has a method that its calls have instead.

    The gate does not ask the tool for it, so what it says would silently not count. `Tool` has none
    of the first five, so whatever is found comes from a subclass, a mixin or the instance. The
    others count where `begin` is Tool's own, and for calls of a `begin` that was written with them.
    """
    moved = [method for method in _OF_CALLS if hasattr(owner, method)]
    order = (owner if isinstance(owner, type) else type(owner)).__mro__
    # The instance's own attributes come before those of its classes.
    places = (owner, *order) if order[0] is not owner else order

    def depth(method: str) -> int:
        return next(n for n, place in enumerate(places) if method in vars(place))

    if places[depth("begin")] is not Tool:
        moved += [method for method in _OF_EITHER if depth(method) < depth("begin")]
    if moved:
        raise ToolDefinitionError(
            f"{name} defines {', '.join(moved)}, which the gate asks of a call and not of its "
            "tool: define it on a subclass of ToolCall, and return that from `begin`"
        )


class Tool:
    """Base class of tools. Most tools are better written as a function, with `@tool`.

    A subclass gives `name`, `description`, `Args`, `effects` and `run`; one whose calls learn
    something on the way returns its own `ToolCall` from `begin` instead. A freeform tool
    (`kind = "custom"`) has no `Args`: `run` gets the text itself, after it was checked against
    `grammar` and by `check`. Calls of a tool that does not declare its effects run alone and ask.

    It must name what a call touches before the call runs, open files through `ctx` and keep
    nothing of one call on itself: a session has one object of it for all. It must not ask for
    approval, choose a sandbox or shorten its output: that is the gate's. Not promised: the thread
    that `effects` and `begin` run on, or that a call of one turn comes before one of the next.
    """

    name: str = ""
    """The name; models see it with other characters than letters, digits, `_` and `-` replaced."""
    description: str = ""
    """What models read about it."""
    kind: ToolKind = "function"
    """`function` takes JSON arguments, `custom` raw text; the others are for hosted tools."""
    group: Group = "user"
    """The group that settings and `tools=` may name instead of it."""
    aliases: tuple[str, ...] = ()
    """Other names under which it is called, but not offered."""
    Args: ClassVar[type[BaseModel] | type[Parameters] | None] = None
    """A pydantic model of the arguments. Built-in tools use `Parameters`, which load faster."""
    typical: Effects = Effects.unknown()
    """The usual effects of a call, for tables and the model's parallel flag; never decides."""
    risk: Risk | None = None
    """Raises the risk that effects give; never lowers it."""
    timeout: float | None = None
    """Seconds that a call may take; None: the setting `tool_timeout_sec`."""
    idempotent: bool = False
    """A second call with the same arguments changes nothing more (MCP's `idempotentHint`)."""
    polling: bool = False
    """Repeating the same call is normal, so loop detection ignores it."""
    slow_effects: bool = False
    """Run `begin`, which finds the effects, in a thread for long arguments."""
    only_reads: bool = False
    """A call only reads, from a server that the user trusts."""
    rejects_unknown_fields: bool = False
    """Whether an argument that the schema does not know is an error."""
    max_chars: int | None = None
    """Characters of its output that models are shown, if fewer than the settings allow."""
    grammar: Grammar | None = None
    """The grammar of a freeform tool."""
    checks_grammar: bool = True
    """False: the grammar is only for the model's server; the tool reads more than it allows."""
    takes_any_payload: bool = False
    """Take JSON arguments and raw text alike, whichever was offered."""
    max_input_bytes: int = 1_000_000
    """The largest input of a freeform tool."""
    offered: bool = True
    late: bool = False
    """Offered only after a request was sent: it comes behind the others, which may be cached."""
    """False: calls of it are answered, but it is not offered to models."""
    hosted: JSONObject | None = None
    """Extra keys of a hosted kind's spec (`web_search`)."""
    mcp: tuple[str, str] | None = None
    """(server, tool) when another MCP server runs it."""

    icon: Icon = "other"
    """The icon of its calls in editors."""
    exec_item: ExecItem = "tool_call"
    """The item type of its calls in `exec --json`.

    A command and a plan are shown by events of their own; "" waits for such events, and the call
    is a `tool_call` when none came.
    """
    small_window: bool = True
    """Whether a model with a small window is offered it (R-64). What stays of the built-in tools
    is enough to read, search, change and run; the others still answer when they are called."""
    asks_user: bool = False
    """It only asks the user, so it is not offered where no question can be shown."""

    capability: str = ""
    """The capability that this tool is one form of: `[tools] disabled` switches off all its forms.

    A part of it (`run commands/input`) goes off with it, and may be switched off alone.
    """
    needs: ClassVar[tuple[str, ...]] = ()
    """Conditions of a built-in tool's handler: one must hold; without any it always has one.

    A boolean of `[tools]` by its name, or `shell:FORM`, `patch:FORM` (what the model's family
    knows), `files:NAME` (`experimental_tools`), `enabled:NAME` (`[tools] enabled` has it),
    `session:questions`, `session:search`, `session:skills`, `session:agents`.
    """
    offered_when: ClassVar[tuple[str, ...]] = ()
    """The same conditions for offering it to models."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse what a call answers now: the gate would not ask the tool any more."""
        super().__init_subclass__(**options)
        refuse_methods_of_calls(cls, cls.__name__)

    @classmethod
    def build(cls, ground: Ground) -> Tool:
        """The tool for a session."""
        return cls()

    def offered_as(self, wire: Wire, session: Session) -> OfferedAs:
        """The form in which it is offered now. May change between requests; must be quick."""
        return "own kind"

    @property
    def missing(self) -> str:
        """The reason why it could answer no call, for lists; empty where it can."""
        return ""

    may_escalate: bool = True
    """Whether a call that the sandbox blocked may be retried outside, once approved."""
    may_ask_to_leave: bool = False
    """Whether the model may ask for a run without the sandbox."""
    skips_second_question: bool = True
    """Whether approving the call also approves its unsandboxed retry (the prompt says so)."""

    @property
    def pin(self) -> str:
        """A hash of the definition of a tool that others can change; grants hold for this one."""
        return ""

    def effects(self, args: Any, ctx: Context) -> Effects:
        """The effects of this very call. Must be quick and change nothing."""
        return self.typical

    def begin(self, args: Any, ctx: Context) -> ToolCall:
        """The call with these arguments: the gate asks it whatever is to be known about it."""
        return ToolCall(self, args, ctx, self.effects(args, ctx))

    def decide(self, args: Any, effects: Effects, ctx: Context) -> Decision | None:
        """Decide on a call in place of the approval table; None leaves it to the table."""
        return None

    async def run(self, args: Any, ctx: Context) -> Any:
        """Run the call. Return text, a ToolOutput or any JSON value; RespondToModel on failure."""
        raise NotImplementedError(f"tool {self.name} has no run method")

    def check(self, text: str) -> str | None:
        """Check a freeform tool's input; returns what is wrong with it, or None."""
        return None

    def hook_names(self, effects: Effects) -> tuple[str, ...]:
        """Other names by which the matchers of hooks may name such a call."""
        known = ("Bash",) if self.group == "shell" else ()
        return (*known, "Write", "Edit") if effects.writes else known

    def rejected_text(self, message: str) -> str:
        """The output of a call whose approval was denied."""
        return message

    def aborted_text(self, seconds: float) -> str:
        """The output of a call that was cancelled."""
        return f"aborted by user after {seconds:.1f}s"

    @cached_property
    def parameters(self) -> JSONObject:
        """The JSON Schema of the arguments."""
        if self.kind == "custom":
            return {
                "type": "object",
                "properties": {"input": {"type": "string"}},
                "required": ["input"],
                "additionalProperties": False,
            }
        if self.Args is None:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        return schema_of(self.Args, self.name)

    def check_types(self) -> None:
        """Raise ToolDefinitionError where no schema can be made; called when it is passed."""

    def validate(self) -> None:
        """Raise ToolDefinitionError when the tool cannot work; called before it is offered."""
        if self.grammar is not None and self.checks_grammar:
            from toolrest.gate.tool.freeform import compile_grammar

            compile_grammar(self.grammar)

    @cached_property
    def renamed_arguments(self) -> dict[str, str]:
        """Arguments that have another name on the Anthropic wire: that name to their own."""
        from toolrest.gate.schema.for_wire import argument_names

        return argument_names(self.parameters)

    def decode(self, raw: str | Mapping[str, Any]) -> arguments.Decoded:
        """Typed arguments from what the model sent; RespondToModel names every wrong field."""
        return self._decoder(raw)

    def warm(self) -> None:
        """Prepare the decoder before the first call, in any thread."""
        if self.Args is not None:
            model_of(self.Args).model_rebuild()

    @cached_property
    def _decoder(self) -> Callable[[str | Mapping[str, Any]], arguments.Decoded]:
        if self.Args is None:
            return arguments.decode_anything
        from toolrest.gate.tool.validate import decode_model

        return partial(decode_model, model_of(self.Args), strict_fields=self.rejects_unknown_fields)

    @property
    def parallel(self) -> bool:
        """Whether a usual call of this tool may run beside others."""
        return not self.typical.runs_alone and not self.typical.serial and not self.typical.writes

    @property
    def undeclared(self) -> bool:
        """Whether its author declared nothing about its effects."""
        own = type(self).effects is not Tool.effects or type(self).begin is not Tool.begin
        return self.typical.is_unknown and self.risk is None and not own

    @cached_property
    def named(self) -> NameRisk:
        """The risk that its name suggests; counts only where nothing is declared."""
        from toolrest.policy.name_risk import name_risk

        return name_risk(self.name)

    def level(self, effects: Effects) -> Risk:
        """The risk of a call with these effects."""
        risk = effects.risk
        if effects.is_unknown and effects.critical is None and self.undeclared:
            risk = self.named.risk
        return risk if self.risk is None else max(risk, self.risk)
