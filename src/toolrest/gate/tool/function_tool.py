"""Tools from typed Python functions: schema from the signature, description from the docstring."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Generator, Mapping
from contextlib import aclosing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from toolrest.answer import Answer
from toolrest.errors import ToolDefinitionError
from toolrest.gate.context import Context
from toolrest.gate.decision.decide import Decision
from toolrest.gate.threads import Abandoned
from toolrest.gate.tool import arguments
from toolrest.gate.tool.declared_effects import UNKNOWN, EffectParameters, join, raw_value
from toolrest.gate.tool.raw_schema import RawSchema
from toolrest.gate.tool.tool import Grammar, Icon, Tool
from toolrest.items import JSONObject
from toolrest.policy.effects import Effects, Risk

if TYPE_CHECKING:
    from pydantic import BaseModel

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Tool, Generic[P, R]):
    """The tool that `@tool` makes. Calling it calls the function itself."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        reads: str | tuple[str, ...] = (),
        writes: str | tuple[str, ...] = (),
        connects: str | tuple[str, ...] = (),
        effects: Effects | Callable[..., Effects] | None = None,
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
    ) -> None:
        self.function: Callable[..., Any] = function
        self.name = name or str(getattr(function, "__name__", ""))
        self.timeout = timeout
        self.idempotent = idempotent
        self.polling = polling
        self.max_chars = max_chars
        self.aliases = aliases
        self.risk = _risk(risk, self.name)
        self.grammar = Grammar("lark", grammar) if isinstance(grammar, str) else grammar
        if self.grammar is not None or input_format == "freeform":
            self.kind = "custom"
        if description is not None:
            self.description = description
        if parameters is not None and not isinstance(parameters, dict):
            raise ToolDefinitionError(
                f"tool {self.name}: parameters must be a JSON Schema (a dict), "
                f"not {type(parameters).__name__}"
            )
        self._raw_schema = parameters
        raw = parameters is not None
        self._signature = _Signature(function, self.name, caller_locals(), hinted=not raw)
        self._is_async = inspect.iscoroutinefunction(function)
        self._generates = inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(
            function
        )
        self._check_shape()
        self._places = EffectParameters(
            self._names(reads), self._names(writes), self._names(connects)
        )
        self._declared = effects
        self._mutating = mutating
        self._exclusive = None if parallel is None else not parallel
        self.typical = self._typical()
        self.icon = icon or _icon(self.typical)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly, without the gate."""
        result: R = self.function(*args, **kwargs)
        return result

    @property
    def deps(self) -> Any:
        """The type of `ctx.deps` that its function takes; Any when it names none."""
        return self._signature.deps

    @cached_property
    def _docs(self) -> tuple[str, dict[str, str]]:
        return _read_docstring(inspect.getdoc(self.function) or "")

    @property
    def description(self) -> str:
        """The given description, else the docstring's."""
        return self.__dict__.get("_description") or self._docs[0]

    @description.setter
    def description(self, value: str) -> None:
        self.__dict__["_description"] = value

    @cached_property
    def Args(self) -> type[BaseModel] | None:  # type: ignore[override]  # noqa: N802
        """The argument model; None when a raw schema or raw text takes its place."""
        if self._raw_schema is not None or self.kind == "custom":
            return None
        return self._signature.model(lambda: self._docs[1])

    @cached_property
    def parameters(self) -> JSONObject:
        """The JSON Schema of the arguments."""
        if self._raw is not None:
            return self._raw.parameters
        try:
            return super().parameters
        except ToolDefinitionError:
            raise
        except Exception as error:
            raise ToolDefinitionError(self._signature.without_schema(error)) from None

    def check_types(self) -> None:
        """Raise ToolDefinitionError for a parameter whose type has no schema."""
        if self._raw_schema is None and self.kind == "function" and not self._signature.is_plain:
            _ = self.parameters

    @cached_property
    def _raw(self) -> RawSchema | None:
        return None if self._raw_schema is None else RawSchema(self._raw_schema, self.name)

    def validate(self) -> None:
        """Raise ToolDefinitionError also for a raw schema that is none."""
        super().validate()
        if self._raw is not None:
            self._raw.check()

    def decode(self, raw: str | Mapping[str, Any]) -> arguments.Decoded:
        """Typed arguments, or the dict itself when the tool brought a raw schema."""
        return super().decode(raw) if self._raw is None else self._raw.decode(raw)

    @cached_property
    def undeclared(self) -> bool:
        """Whether the author declared nothing about its effects."""
        nothing = self._declared is None and not self._places
        return nothing and self._mutating is None and self.risk is None

    def effects(self, args: Any, ctx: Context) -> Effects:
        """The effects of this call: everything that the author declared, joined."""
        declared = self._declared
        if not callable(declared) and not self._places:
            return self.typical
        parts: list[Effects] = []
        if isinstance(declared, Effects):
            parts.append(declared)
        elif declared is not None:
            parts.append(self._asked(declared(**self._kwargs(args))))
        if self._places:
            parts.append(self._places.of(self._values(args), ctx))
        return self._finished(parts)

    def _asked(self, effects: object) -> Effects:
        if not isinstance(effects, Effects):
            raise TypeError(f"effects of {self.name} returned {type(effects).__name__}")
        return effects

    def _values(self, args: Any) -> Callable[[str], Any]:
        """A lookup of declared parameters: as the function gets them, else as they came."""
        kwargs = self._kwargs(args)
        defaults = self._signature.defaults

        def value(name: str) -> Any:
            if name in kwargs:
                return kwargs[name]
            if name in defaults:
                return defaults[name]
            if self._raw_schema is None:
                return UNKNOWN
            return raw_value(name, args, self._raw_schema)

        return value

    def _finished(self, parts: list[Effects]) -> Effects:
        effects = join(parts)
        if self._mutating and not effects.mutating:
            # It changes something that no declaration names.
            effects = join((effects, Effects.unknown()))
        return effects if self._exclusive is None else effects.with_exclusive(self._exclusive)

    def decide(self, args: Any, effects: Effects, ctx: Context) -> Decision | None:
        """Deny a declared host that is not on the list, where there is one."""
        listed = ctx.session.settings.tool_security.allowed_network_domains
        if listed is None or not effects.connects:
            return None
        from toolrest.sandbox.network.hosts import Allowlist  # few tools name a host

        hosts = Allowlist(listed)
        other = next((host for host in effects.connects if not hosts.names(host)), None)
        if other is None:
            return None
        reason = f"{other} is not in tool_security.allowed_network_domains"
        return Decision(Answer.DENY, "network.not_listed", reason)

    async def run(self, args: Any, ctx: Context) -> Any:
        """Call the function: sync ones in a thread, generators piece by piece."""
        kwargs = self._kwargs(args)
        if self._signature.context is not None:
            kwargs[self._signature.context] = ctx
        if self._is_async:
            return await self.function(**kwargs)
        if self._generates:
            return _pieces(self.function(**kwargs), ctx)
        value: Any = await ctx.in_thread(lambda: self.function(**kwargs))
        if inspect.isawaitable(value):
            # An async function behind a plain decorator looks sync until it is called.
            value = await value
        return _pieces(value, ctx) if isinstance(value, Generator) else value

    def _kwargs(self, args: Any) -> dict[str, Any]:
        if self.kind == "custom":
            return {self._signature.fields[0].name: args}
        if self._raw_schema is not None:
            return self._signature.spread(args, self._properties)
        return {name: getattr(args, name) for name in self._field_names}

    @cached_property
    def _properties(self) -> frozenset[str]:
        properties = (self._raw_schema or {}).get("properties")
        return frozenset(properties) if isinstance(properties, dict) else frozenset()

    @cached_property
    def _field_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._signature.fields)

    def _names(self, value: str | tuple[str, ...]) -> tuple[str, ...]:
        names = (value,) if isinstance(value, str) else value
        known = {field.name for field in self._signature.fields}
        if self._raw_schema is not None:
            known |= set(self._properties)
        for name in names:
            if name not in known:
                raise ToolDefinitionError(
                    f"tool {self.name}: effects name `{name}`, which is not one of its parameters"
                )
        return names

    def _check_shape(self) -> None:
        self._check_names()
        if self.kind == "custom" and len(self._signature.fields) != 1:
            raise ToolDefinitionError(
                f"tool {self.name}: a freeform tool takes exactly one parameter, the text"
            )

    def _check_names(self) -> None:
        """Refuse a parameter that the tool's own schema can never fill."""
        schema, fields = self._raw_schema, self._signature.fields
        if not schema or not self._properties or not _COMPOSED.isdisjoint(schema):
            return
        if len(fields) == 1 and fields[0].name not in self._properties:
            return  # it takes all arguments as a dict
        for field in fields:
            if field.default is field.empty and field.name not in self._properties:
                raise ToolDefinitionError(
                    f"tool {self.name}: parameter `{field.name}` is not in its schema, which has "
                    f"{', '.join(sorted(self._properties))} (the context is annotated as Context)"
                )

    def _typical(self) -> Effects:
        parts = [self._declared] if isinstance(self._declared, Effects) else []
        if self._places:
            parts.append(self._places.typical())
        if not parts or callable(self._declared):
            parts.append(Effects.none() if self._mutating is False else Effects.unknown())
        return self._finished(parts)


_COMPOSED = frozenset(("$ref", "allOf", "anyOf", "oneOf", "patternProperties"))
"""Keywords by which a schema may have more properties than it lists."""


def _risk(value: Risk | str | None, name: str) -> Risk | None:
    if value is None or isinstance(value, Risk):
        return value
    try:
        return Risk[value.upper()]
    except KeyError:
        levels = ", ".join(r.label for r in Risk)
        raise ToolDefinitionError(
            f"tool {name}: risk must be one of {levels}, not {value!r}"
        ) from None


class _Signature:
    """The parameters of a function, split into model fields and the context."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        local_names: Mapping[str, Any],
        *,
        hinted: bool = True,
    ) -> None:
        """`hinted`: the schema comes from the type hints, so every parameter has one."""
        self.tool = name
        self._hinted = hinted
        self.context: str | None = None
        self.deps: Any = Any
        self.fields: list[inspect.Parameter] = []
        self.defaults: dict[str, Any] = {}
        self._spreads = False
        try:
            hints = typing.get_type_hints(function, localns=dict(local_names), include_extras=True)
            parameters = inspect.signature(function).parameters.values()
        except (NameError, TypeError, ValueError) as error:
            raise ToolDefinitionError(
                f"tool {name}: cannot read its type hints: {error}. "
                "Names used in hints must be importable when the tool is defined."
            ) from None
        for parameter in parameters:
            self._add(parameter.replace(annotation=hints.get(parameter.name, parameter.empty)))

    def _add(self, parameter: inspect.Parameter) -> None:
        if parameter.kind is parameter.VAR_KEYWORD:
            self._spreads = True
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise ToolDefinitionError(
                f"tool {self.tool}: parameter `{parameter.name}` cannot be given by name; "
                "models name every argument"
            )
        elif Context in (parameter.annotation, typing.get_origin(parameter.annotation)):
            self.context = parameter.name
            self.deps = next(iter(typing.get_args(parameter.annotation)), Any)
        elif parameter.annotation is parameter.empty and self._hinted:
            raise ToolDefinitionError(
                f"tool {self.tool}: parameter `{parameter.name}` has no type hint, "
                "so there is no schema for it"
            )
        else:
            self.fields.append(parameter)
            if parameter.default is not parameter.empty:
                self.defaults[parameter.name] = parameter.default

    def spread(self, args: Mapping[str, Any], properties: Collection[str]) -> dict[str, Any]:
        """A raw-schema tool's arguments, as the function wants them."""
        if self._spreads:
            return dict(args)
        if len(self.fields) == 1 and self.fields[0].name not in properties:
            return {self.fields[0].name: dict(args)}
        known = {field.name for field in self.fields}
        return {key: value for key, value in args.items() if key in known}

    def model(self, docs: Callable[[], dict[str, str]]) -> type[BaseModel]:
        """A pydantic model of the fields; unknown ones are kept apart so they can be named."""
        from pydantic import ConfigDict, create_model
        from pydantic.errors import PydanticUserError
        from pydantic.fields import FieldInfo

        described = docs()
        fields: dict[str, Any] = {}
        for parameter in self.fields:
            default = ... if parameter.default is parameter.empty else parameter.default
            text = described.get(parameter.name)
            if text and not isinstance(default, FieldInfo):
                fields[parameter.name] = (_described(parameter.annotation, text), default)
            else:
                fields[parameter.name] = (parameter.annotation, default)
        try:
            return create_model(
                self.tool, __config__=ConfigDict(extra="allow", protected_namespaces=()), **fields
            )
        except (PydanticUserError, TypeError, NameError) as error:
            raise ToolDefinitionError(self.without_schema(error)) from None

    @property
    def is_plain(self) -> bool:
        """Whether all types are ones that always have a schema; looks without pydantic."""
        return all(_is_plain(field.annotation) for field in self.fields)

    def without_schema(self, error: Exception) -> str:
        """The message for types that have no schema, with the first such parameter."""
        from pydantic import TypeAdapter

        for field in self.fields:
            try:
                TypeAdapter(field.annotation).json_schema()
            except Exception as problem:
                shown = inspect.formatannotation(field.annotation)
                return (
                    f"tool {self.tool}: parameter `{field.name}`: there is no schema for the type "
                    f"{shown}; use plain types, a dataclass or a pydantic model, or give "
                    f"parameters=, a JSON Schema ({_first_line(problem)})"
                )
        return f"tool {self.tool}: no schema for it: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


_PLAIN = frozenset((str, int, float, bool, list, dict, Path, Any, None, type(None)))
_PLAIN_AROUND = frozenset((list, dict, typing.Union, types.UnionType))


def _is_plain(annotation: Any) -> bool:
    origin = typing.get_origin(annotation)
    if origin is None:
        try:
            return annotation in _PLAIN
        except TypeError:  # not hashable
            return False
    if origin is Literal:
        return True
    return origin in _PLAIN_AROUND and all(map(_is_plain, typing.get_args(annotation)))


def _described(annotation: Any, text: str) -> Any:
    from pydantic import Field

    if typing.get_origin(annotation) is typing.Annotated:
        # Field(description=…) wins over the docstring because it comes last.
        first, *rest = typing.get_args(annotation)
        return typing.Annotated[(first, Field(description=text), *rest)]
    return typing.Annotated[annotation, Field(description=text)]


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The descriptions of the tool and of its parameters; the parser is loaded where needed."""
    markers = ("Args:", "Arguments:", "Parameters", ":param", "@param")
    if not any(marker in text for marker in markers):
        return text.strip(), {}
    import docstring_parser

    parsed = docstring_parser.parse(text)
    parts = [p for p in (parsed.short_description, parsed.long_description) if p]
    texts = {p.arg_name: " ".join((p.description or "").split()) for p in parsed.params}
    return "\n\n".join(parts), {name: text for name, text in texts.items() if text}


async def _pieces(
    generator: AsyncGenerator[Any, None] | Generator[Any, None, None], ctx: Context
) -> AsyncIterator[Any]:
    """The pieces one by one; the generator's own clean-up has run when this one is closed."""
    if isinstance(generator, AsyncGenerator):
        async with aclosing(generator):
            async for piece in generator:
                yield piece
        return
    end = object()
    try:
        while (piece := await ctx.in_thread(next, generator, end)) is not end:
            yield piece
    except Abandoned:
        raise  # its thread is still inside: it cannot be closed
    except BaseException:
        await ctx.in_thread(generator.close)
        raise


def caller_locals() -> Mapping[str, Any]:
    """The local names where `@tool` was used, for hints that are not module-level."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        "toolrest.gate."
    ):
        frame = frame.f_back
    return frame.f_locals


def _icon(typical: Effects) -> Icon:
    """The icon of a call in editors, by its effects."""
    if typical.runs:
        return "execute"
    if typical.writes:
        return "edit"
    if typical.connects:
        return "fetch"
    return "read" if typical.reads else "other"
