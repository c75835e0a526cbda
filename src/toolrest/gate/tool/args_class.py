"""The argument classes of built-in tools: fields noted at import, a pydantic model at first call.

Importing pydantic and making its classes is a third of a session's start, and what is offered to
a model needs neither: the schemas are ready. So a tool's `Args` only notes its fields, and
`model_of` makes the model when there is something to check. The model has `Args` as a base, so its
methods are there and its instances are `Args`.

`prepared.json` holds the schemas by the arguments they belong to, with a fingerprint of the
fields; for arguments that have changed since, the schema is made anew. It also has what a session
must know of each tool before its module is loaded (`tools/catalog.py`).
`WRITE_SCHEMAS=1 pytest tests/tools/test_prepared.py` writes the file again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import types
from functools import cache
from threading import RLock
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeGuard,
    TypeVar,
    dataclass_transform,
)

from toolrest.items import JSONObject

if TYPE_CHECKING:
    from pydantic import BaseModel


ArgsClass: TypeAlias = "type[BaseModel] | type[Parameters]"
Extra: TypeAlias = Literal["allow", "ignore", "forbid"]

P = TypeVar("P", bound="Parameters")

_REQUIRED: Any = ...
_MAKING = RLock()


class Parameter(NamedTuple):
    """One field: its default, its description, other keys it may come under, bounds."""

    default: Any
    description: str
    also: tuple[str, ...]
    bounds: dict[str, float]


class Noted(NamedTuple):
    """A noted field: its module, its annotation, and the rest."""

    module: str
    annotation: str
    parameter: Parameter


def param(
    *, default: Any = _REQUIRED, description: str, also: tuple[str, ...] = (), **bounds: float
) -> Any:
    """A field of `Parameters`; `bounds` are pydantic's (`ge`, `le`, `min_length`, …)."""
    return Parameter(default, description, also, bounds)


@dataclass_transform(kw_only_default=True, field_specifiers=(param,))
class Parameters:
    """Base of `Args` classes whose pydantic model is made when the first call comes.

    `extra` is for fields that are not declared: "allow" keeps them apart, so that they can be
    named to the model or read with `extra_of`.
    """

    __extra__: ClassVar[Extra] = "allow"
    __noted__: ClassVar[dict[str, Noted]] = {}

    def __init_subclass__(cls, *, extra: Extra | None = None) -> None:
        own = [name for name, value in vars(cls).items() if isinstance(value, Parameter)]
        if own:
            module, hints = cls.__module__, cls.__annotations__
            noted = {name: Noted(module, hints[name], vars(cls)[name]) for name in own}
            cls.__noted__ = {**cls.__noted__, **noted}
            for name in own:  # pydantic would warn of a field that hides what a base has.
                delattr(cls, name)
        if extra is not None:
            cls.__extra__ = extra

    def __init__(self, **values: Any) -> None:
        raise TypeError(f"{type(self).__qualname__} only notes its fields; use make()")


def is_noted(args: ArgsClass) -> TypeGuard[type[Parameters]]:
    """Whether these are `Parameters`, with or without a model yet."""
    return issubclass(args, Parameters)


def model_of(args: ArgsClass) -> type[BaseModel]:
    """The pydantic model of an `Args` class, made at the first call."""
    if not is_noted(args):
        return args  # type: ignore[return-value]  # not one of ours, so pydantic's own
    made: type[BaseModel] | None = args.__dict__.get("__model__")
    if made is None:
        with _MAKING:  # the preloading thread may be making it just now
            made = args.__dict__.get("__model__")
            if made is None:
                made = _make(args)
                args.__model__ = made  # type: ignore[attr-defined]
    return made


def inner_classes(args: type[Parameters]) -> dict[str, type[Parameters]]:
    """Parameters classes that the fields use, by their names in the annotations."""
    texts: dict[str, str] = {}
    for module, annotation, _ in args.__noted__.values():
        texts[module] = f"{texts.get(module, '')} {annotation}"
    return {
        name: value
        for module, text in texts.items()
        for name, value in vars(sys.modules[module]).items()
        if isinstance(value, type) and name in text and issubclass(value, Parameters)
    }


def _make(args: type[Parameters]) -> type[BaseModel]:
    from pydantic import AliasChoices, BaseModel, Field

    inner = {name: model_of(value) for name, value in inner_classes(args).items()}
    space: dict[str, Any] = {
        "__module__": args.__module__,
        "__qualname__": args.__qualname__,
        "__doc__": args.__doc__,
        "__annotations__": {},
        "__init__": BaseModel.__init__,
        "model_config": {"extra": args.__extra__, "defer_build": True},
    }
    for name, noted in args.__noted__.items():
        known = {**vars(sys.modules[noted.module]), **inner}
        space["__annotations__"][name] = eval(noted.annotation, known)  # noqa: S307 - our own text
        default, description, also, bounds = noted.parameter
        more: dict[str, Any] = dict(bounds)
        if also:
            more["validation_alias"] = AliasChoices(name, *also)
            more["serialization_alias"] = name
        space[name] = Field(default=default, description=description, **more)
    made: type[BaseModel] = types.new_class(
        args.__name__, (args, BaseModel), exec_body=lambda body: body.update(space)
    )
    return made


def make(args: type[P], **values: Any) -> P:
    """Arguments made from values, checked like those of a call."""
    made: Any = model_of(args)(**values)
    return made  # type: ignore[no-any-return]


def extra_of(args: Parameters) -> JSONObject:
    """The given fields that are not declared."""
    return getattr(args, "__pydantic_extra__", None) or {}


def given_in(args: Parameters) -> set[str]:
    """The names of the given fields."""
    given: set[str] = args.model_fields_set  # type: ignore[attr-defined]
    return given


def as_json(args: Parameters, *, without_nulls: bool = False) -> JSONObject:
    """The fields as a JSON object."""
    values: JSONObject = args.model_dump(exclude_none=without_nulls)  # type: ignore[attr-defined]
    return values


FILE = os.path.join(os.path.dirname(__file__), "prepared.json")


def schema_of(args: ArgsClass, tool: str = "tool") -> JSONObject:
    """The JSON Schema of a tool's arguments, in the form that wires take."""
    ready = prepared(args) if is_noted(args) else None
    return ready or made_schema(args, tool)


def made_schema(args: ArgsClass, tool: str = "tool") -> JSONObject:
    """The JSON Schema, made from the arguments as they are now."""
    from toolrest.gate.schema.for_wire import normalise

    schema: JSONObject = normalise(model_of(args).model_json_schema(by_alias=True), tool=tool)
    schema["additionalProperties"] = False
    return schema


def prepared(args: type[Parameters]) -> JSONObject | None:
    """The schema in `prepared.json`; None when it has none for these fields."""
    row = read_prepared()["schemas"].get(name_of(args))
    if row is None or row.get("of") != fingerprint(args):
        return None
    schema: JSONObject = row["schema"]
    return schema


def name_of(args: type[Parameters]) -> str:
    """The key of arguments in `prepared.json`."""
    return f"{args.__module__}.{args.__qualname__}"


def fingerprint(args: type[Parameters]) -> str:
    """A hash over every noted field, and over those of classes inside.

    What a name in an annotation stands for is not looked up; a test compares the schemas.
    """
    seen: dict[str, str] = {}
    _describe(args, seen)
    text = "\n".join(f"{name}: {fields}" for name, fields in sorted(seen.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _describe(args: type[Parameters], seen: dict[str, str]) -> None:
    if name_of(args) not in seen:
        seen[name_of(args)] = f"{args.__doc__} {args.__extra__} {args.__noted__}"
        for inner in inner_classes(args).values():
            _describe(inner, seen)


@cache
def read_prepared() -> dict[str, dict[str, Any]]:
    """The content of `prepared.json`: `tools` by name, `schemas` by the name of the arguments."""
    with open(FILE, encoding="utf-8") as file:
        found: dict[str, dict[str, Any]] = json.load(file)
    return found
