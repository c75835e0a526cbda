"""A tool made from a typed Python function: schema from the signature, words from the docstring."""

from __future__ import annotations

import inspect
import os
import sys
import typing
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from toolrest.errors import ToolDefinitionError
from toolrest.gate import arguments
from toolrest.gate.context import Context
from toolrest.gate.nulls import fill_nulls
from toolrest.gate.tool import Grammar, Tool
from toolrest.items import JSONObject
from toolrest.policy.effects import Effects, Risk

if TYPE_CHECKING:
    from pydantic import BaseModel


class FunctionTool(Tool):
    """What `@tool` returns. Calling it calls the function itself, as before."""

    def __init__(
        self,
        function: Callable[..., Any],
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
    ) -> None:
        self.function = function
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
        self._raw_schema = parameters
        self._signature = _Signature(function, self.name, caller_locals())
        self._is_async = inspect.iscoroutinefunction(function)
        self._generates = inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(
            function
        )
        self._check_shape()
        self._paths = _Paths(
            self._names(reads), self._names(writes), self._names(connects), self.name
        )
        self._declared = effects
        self._exclusive = None if parallel is None else not parallel
        self.typical = self._typical(mutating)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly, without the gate."""
        return self.function(*args, **kwargs)

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
        if self._raw_schema is None:
            return super().parameters
        from toolrest.gate.schema import normalise

        return normalise(self._raw_schema, tool=self.name)

    def decode(self, raw: str | Mapping[str, Any]) -> arguments.Decoded:
        """Typed arguments, or the dict itself when the tool brought a raw schema."""
        if self._raw_schema is None:
            return super().decode(raw)
        value = fill_nulls(self._raw_schema, arguments.parse_object(raw))
        problems = list(self._validator.iter_errors(value))
        if problems:
            fields = tuple(_dotted(p.instance_path) for p in problems)
            raise arguments.invalid(
                [f"`{f}`: {p.message}" for f, p in zip(fields, problems, strict=True)], fields
            )
        return arguments.Decoded(value)

    @cached_property
    def _validator(self) -> Any:
        import jsonschema_rs

        try:
            return jsonschema_rs.validator_for(self._raw_schema or True)
        except (ValueError, TypeError) as error:
            raise ToolDefinitionError(f"{self.name}: bad JSON Schema: {error}") from None

    def effects(self, args: Any, ctx: Context) -> Effects:
        """What this call touches, from what the author declared."""
        if callable(self._declared):
            effects = self._declared(**self._kwargs(args))
            if not isinstance(effects, Effects):
                raise TypeError(f"effects of {self.name} returned {type(effects).__name__}")
        elif self._paths:
            effects = self._paths.of(self._kwargs(args), ctx)
        else:
            return self.typical
        return effects if self._exclusive is None else effects.with_exclusive(self._exclusive)

    async def run(self, args: Any, ctx: Context) -> Any:
        """Call the function: sync ones in a thread, generators piece by piece."""
        kwargs = self._kwargs(args)
        if self._signature.context is not None:
            kwargs[self._signature.context] = ctx
        if self._is_async:
            return await self.function(**kwargs)
        if self._generates:
            return _pieces(self.function(**kwargs), ctx)
        return await ctx.in_thread(lambda: self.function(**kwargs))

    def _kwargs(self, args: Any) -> dict[str, Any]:
        if self.kind == "custom":
            return {self._signature.fields[0].name: args}
        if self._raw_schema is not None:
            return self._signature.spread(args)
        return {name: getattr(args, name) for name in self._field_names}

    @cached_property
    def _field_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self._signature.fields)

    def _names(self, value: str | tuple[str, ...]) -> tuple[str, ...]:
        names = (value,) if isinstance(value, str) else value
        known = {field.name for field in self._signature.fields}
        if self._raw_schema is not None:
            known |= set(self._raw_schema.get("properties", {}))
        for name in names:
            if name not in known:
                raise ToolDefinitionError(
                    f"tool {self.name}: effects name `{name}`, which is not one of its parameters"
                )
        return names

    def _check_shape(self) -> None:
        if self.kind == "custom" and len(self._signature.fields) != 1:
            raise ToolDefinitionError(
                f"tool {self.name}: a freeform tool takes exactly one parameter, the text"
            )

    def _typical(self, mutating: bool | None) -> Effects:
        if isinstance(self._declared, Effects):
            effects = self._declared
        elif self._paths:
            effects = self._paths.typical()
        elif mutating is False:
            effects = Effects.none()
        else:
            effects = Effects.unknown()
        return effects if self._exclusive is None else effects.with_exclusive(self._exclusive)


class _Paths:
    """Effects read off the parameters that hold paths and URLs."""

    def __init__(
        self,
        reads: tuple[str, ...],
        writes: tuple[str, ...],
        connects: tuple[str, ...],
        tool: str,
    ) -> None:
        self.reads = reads
        self.writes = writes
        self.connects = connects
        self.tool = tool

    def __bool__(self) -> bool:
        return bool(self.reads or self.writes or self.connects)

    def of(self, values: Mapping[str, Any], ctx: Context) -> Effects:
        def paths(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(
                ctx.files.canonical(os.fspath(item))
                for name in names
                for item in _many(values.get(name))
            )

        hosts = tuple(_host(str(v)) for name in self.connects for v in _many(values.get(name)))
        return Effects(reads=paths(self.reads), writes=paths(self.writes), connects=hosts)

    def typical(self) -> Effects:
        return Effects(
            reads=tuple(f"<{n}>" for n in self.reads),
            writes=tuple(f"<{n}>" for n in self.writes),
            connects=tuple(f"<{n}>" for n in self.connects),
        )


def _many(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | set) else [value]


def _host(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url if "//" in url else f"//{url}")
    return parts.hostname or url


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
        self, function: Callable[..., Any], name: str, local_names: Mapping[str, Any]
    ) -> None:
        self.tool = name
        self.context: str | None = None
        self.fields: list[inspect.Parameter] = []
        self._spreads = False
        try:
            hints = typing.get_type_hints(function, localns=dict(local_names), include_extras=True)
            parameters = inspect.signature(function).parameters.values()
        except (NameError, TypeError, ValueError) as error:
            raise ToolDefinitionError(
                f"tool {name}: its type hints cannot be read: {error}. "
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
        elif parameter.annotation is Context:
            self.context = parameter.name
        elif parameter.annotation is parameter.empty:
            raise ToolDefinitionError(
                f"tool {self.tool}: parameter `{parameter.name}` has no type hint, "
                "so there is no schema for it"
            )
        else:
            self.fields.append(parameter)

    def spread(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """A raw-schema tool's arguments, as the function wants them."""
        if self._spreads:
            return dict(args)
        if len(self.fields) == 1 and self.fields[0].name not in args:
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
            words = described.get(parameter.name)
            if words and not isinstance(default, FieldInfo):
                fields[parameter.name] = (_described(parameter.annotation, words), default)
            else:
                fields[parameter.name] = (parameter.annotation, default)
        try:
            return create_model(
                self.tool, __config__=ConfigDict(extra="allow", protected_namespaces=()), **fields
            )
        except (PydanticUserError, TypeError, NameError) as error:
            raise ToolDefinitionError(f"tool {self.tool}: no schema for it: {error}") from None


def _described(annotation: Any, words: str) -> Any:
    from pydantic import Field

    if typing.get_origin(annotation) is typing.Annotated:
        # Words given with Field(description=…) win over the docstring's: they come last.
        first, *rest = typing.get_args(annotation)
        return typing.Annotated[(first, Field(description=words), *rest)]
    return typing.Annotated[annotation, Field(description=words)]


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description and the parameters' words; the parser is loaded only where it is needed."""
    markers = ("Args:", "Arguments:", "Parameters", ":param", "@param")
    if not any(marker in text for marker in markers):
        return text.strip(), {}
    import docstring_parser

    parsed = docstring_parser.parse(text)
    parts = [p for p in (parsed.short_description, parsed.long_description) if p]
    words = {p.arg_name: " ".join((p.description or "").split()) for p in parsed.params}
    return "\n\n".join(parts), {name: said for name, said in words.items() if said}


async def _pieces(
    generator: AsyncIterator[Any] | Iterator[Any], ctx: Context
) -> AsyncIterator[Any]:
    if isinstance(generator, AsyncIterator):
        async for piece in generator:
            yield piece
        return
    end = object()
    while (piece := await ctx.in_thread(next, generator, end)) is not end:
        yield piece


def _dotted(path: list[Any]) -> str:
    return ".".join(str(part) for part in path) or "arguments"


def caller_locals() -> Mapping[str, Any]:
    """Names local to where `@tool` was used, for hints that are not module-level."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        "toolrest.gate."
    ):
        frame = frame.f_back
    return frame.f_locals
