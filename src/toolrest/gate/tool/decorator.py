"""`@tool`, which makes a tool from a typed function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, overload

from toolrest.errors import ToolDefinitionError
from toolrest.gate.tool.tool import Grammar, Icon, Tool
from toolrest.items import JSONObject
from toolrest.policy.effects import Effects, Risk

if TYPE_CHECKING:
    from toolrest.gate.tool.function_tool import FunctionTool

P = ParamSpec("P")
R = TypeVar("R")
EffectsSource: TypeAlias = "Effects | Callable[..., Effects] | None"
Names: TypeAlias = "str | tuple[str, ...]"


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    reads: Names = (),
    writes: Names = (),
    connects: Names = (),
    effects: EffectsSource = None,
    mutating: bool | None = None,
    parallel: bool | None = None,
    risk: Risk | str | None = None,
    timeout: float | None = None,
    idempotent: bool = False,
    polling: bool = False,
    parameters: JSONObject | None = None,
    max_chars: int | None = None,
    grammar: Grammar | str | None = None,
    input_format: Literal["json", "freeform"] = "json",
    aliases: tuple[str, ...] = (),
    icon: Icon | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool from a typed function: sync or async, plain or a generator of text pieces.

    ```python
    @tool(reads="path")
    async def count_lines(path: Path, ctx: Context) -> str:
        "Count the lines of a text file."
        return str(len((await ctx.read_text(path)).splitlines()))
    ```

    The schema comes from the type hints, the description from the docstring. Say what a call
    touches, as the approval policy, the path policy and the schedule go by that: `reads`, `writes`
    and `connects` name the parameters that hold paths or URLs, `effects` is an `Effects` value or a
    function of the arguments that returns one, and `mutating=False` means that a call touches
    nothing. Declarations add up. A tool that declares none of these runs alone, and passing it in
    `tools=` approves it; with `mutating=True` alone it asks before every call. `parallel=`
    overrides the schedule.

    `parameters` is a JSON Schema that replaces the signature; `grammar` or
    `input_format="freeform"` make it take raw text, which a grammar limits to 64 KiB (8 KiB when it
    is ambiguous). The function runs in this process, not in the sandbox: nothing checks that it
    does only what it declares.
    """
    from toolrest.gate.tool.function_tool import FunctionTool

    def make(fn: Callable[P, R]) -> FunctionTool[P, R]:
        return FunctionTool(fn, **options)

    return make if function is None else make(function)


def as_tool(value: Any) -> Tool:
    """The Tool of a user's value: a Tool, a Tool subclass, a typed function or an agent.

    ToolDefinitionError where models could not be told its arguments.
    """
    if isinstance(value, Tool):
        value.check_types()
        return value
    if isinstance(value, type) and issubclass(value, Tool):
        return value()
    if hasattr(value, "as_tool"):
        return as_tool(value.as_tool())
    if callable(value):
        return as_tool(tool(value))
    raise ToolDefinitionError(
        f"tools must be functions, agents or Tool objects, not {type(value).__name__}: {value!r}"
    )
