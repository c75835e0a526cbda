"""Data classes that cost nothing until the first instance is made.

The standard library's decorator writes and compiles up to six functions for every class, at
import: 0.4 ms each, while a session imports a hundred of them and uses a third. Here a class only
notes its fields; `__init__` is written when it is first called, and setting a frozen field goes
straight to its slot. To type checkers these *are* the standard library's, and its `fields`,
`replace` and `asdict` take them. Only what we use is there: no ordering, no keyword-only fields.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace

_NONE: Any = object()


class _Field:
    """One field of a data class."""

    __slots__ = ("compare", "default", "factory", "init", "name", "repr")

    def __init__(self, default: Any, factory: Any, init: bool, shown: bool, compare: bool) -> None:
        self.name = ""
        self.default = default
        self.factory = factory
        self.init = init
        self.repr = shown
        self.compare = compare


if not TYPE_CHECKING:

    def field(
        *,
        default=_NONE,
        default_factory=_NONE,
        init=True,
        repr=True,  # noqa: A002 - the standard library's name
        compare=True,
    ) -> _Field:
        """A field with more than a default, as the standard library's."""
        if default is not _NONE and default_factory is not _NONE:
            raise ValueError("cannot specify both default and default_factory")
        return _Field(default, default_factory, init, repr, compare)

    def dataclass(*, frozen=False, slots=False, eq=True) -> Callable[[type], type]:
        """A class whose annotations are its fields, as the standard library's."""

        def make(cls: type) -> type:
            fields = _fields_of(cls)
            made = _with_slots(cls, fields) if slots else _without_slots(cls, fields)
            _add_methods(made, fields, frozen, eq)
            return made

        return make

    def replace(value, /, **changes):
        """A copy with other values in some fields, as the standard library's."""
        for each in type(value).__lazy_fields__.values():
            if each.init:
                changes.setdefault(each.name, getattr(value, each.name))
            elif each.name in changes:
                raise ValueError(f"field {each.name} is declared with init=False")
        return type(value)(**changes)


class _StandardFields:
    """`__dataclass_fields__`, for the standard library's functions, made when it is asked for."""

    def __get__(self, instance: object, cls: Any) -> dict[str, Any]:
        # Slow to import; few sessions call those functions.
        import dataclasses

        made: dict[str, Any] = {}
        for each in cls.__lazy_fields__.values():
            more: dict[str, Any] = {}
            if each.default is not _NONE:
                more["default"] = each.default
            if each.factory is not _NONE:
                more["default_factory"] = each.factory
            one: Any = dataclasses.field(
                init=each.init, repr=each.repr, compare=each.compare, kw_only=False, **more
            )
            one.name, one._field_type = each.name, dataclasses._FIELD  # type: ignore[attr-defined]
            one.type = cls.__annotations__.get(each.name)
            made[each.name] = one
        return made


_STANDARD_FIELDS = _StandardFields()


def _fields_of(cls: type) -> dict[str, _Field]:
    fields: dict[str, _Field] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= base.__dict__.get("__lazy_fields__", {})
    for name, annotation in cls.__annotations__.items():
        if str(annotation).removeprefix("typing.").startswith("ClassVar"):
            continue
        given = cls.__dict__.get(name, _NONE)
        one = given if isinstance(given, _Field) else _Field(given, _NONE, True, True, True)
        if one.default is not _NONE and type(one.default).__hash__ is None:
            raise ValueError(f"mutable default for field {name}: use default_factory")
        one.name = name
        fields[name] = one
    _check_order(fields)
    return fields


def _check_order(fields: dict[str, _Field]) -> None:
    seen = False
    for one in fields.values():
        if one.init:
            optional = one.default is not _NONE or one.factory is not _NONE
            if seen and not optional:
                raise TypeError(f"non-default argument {one.name!r} follows default argument")
            seen = seen or optional


def _with_slots(cls: type, fields: dict[str, _Field]) -> type:
    """The class made again with slots, which can only be set when a class is made."""
    inherited = {slot for base in cls.__mro__[1:-1] for slot in base.__dict__.get("__slots__", ())}
    own = cls.__annotations__
    space = dict(cls.__dict__)
    for name in fields:
        space.pop(name, None)
    space.pop("__dict__", None)
    space.pop("__weakref__", None)
    space["__slots__"] = tuple(n for n in fields if n in own and n not in inherited)
    space["__qualname__"] = cls.__qualname__
    return type(cls)(cls.__name__, cls.__bases__, space)


def _without_slots(cls: type, fields: dict[str, _Field]) -> type:
    for name, one in fields.items():
        if isinstance(cls.__dict__.get(name), _Field):
            if one.default is _NONE:
                delattr(cls, name)
            else:
                setattr(cls, name, one.default)
    return cls


def _add_methods(cls: type, fields: dict[str, _Field], frozen: bool, eq: bool) -> None:
    compared = [name for name, one in fields.items() if one.compare]
    methods: dict[str, Any] = {
        "__lazy_fields__": fields,
        "__dataclass_fields__": _STANDARD_FIELDS,
        "__match_args__": tuple(name for name, one in fields.items() if one.init),
        "__repr__": _repr,
        "__init__": _first_init(cls, frozen),
    }
    if eq:
        key = _key(compared)
        methods["__eq__"] = _equal(key)
        if frozen:
            methods["__hash__"] = _hashed(key)
        elif "__hash__" not in cls.__dict__ or cls.__dict__["__hash__"] is None:
            cls.__hash__ = None  # type: ignore[assignment]
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _refuse_set, _refuse_delete
        if "__slots__" in cls.__dict__:
            methods["__getstate__"], methods["__setstate__"] = _state, _set_state
    for name, value in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, value)


def _first_init(cls: type, frozen: bool) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if cls.__dict__.get("__init__") is __init__:
            cls.__init__ = _written_init(cls, frozen)  # type: ignore[misc]
        cls.__init__(self, *args, **kwargs)  # type: ignore[misc]

    return __init__


def _written_init(cls: Any, frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"__name__": cls.__module__, "_NONE": _NONE}
    names["_set"] = object.__setattr__
    parameters, lines = ["self"], ["pass"]
    for name, one in cls.__lazy_fields__.items():
        names[f"_default_{name}"], names[f"_make_{name}"] = one.default, one.factory
        value = name
        if one.factory is not _NONE:
            made = f"_make_{name}()"
            value = f"{made} if {name} is _NONE else {name}" if one.init else made
        elif not one.init:
            if one.default is _NONE or "__slots__" not in cls.__dict__:
                continue  # without slots the class itself has the default
            value = f"_default_{name}"
        if one.init:
            default = "_NONE" if one.factory is not _NONE else f"_default_{name}"
            required = one.default is _NONE and one.factory is _NONE
            parameters.append(name if required else f"{name}={default}")
        lines.append(_assignment(cls, name, value, names, frozen))
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n    ".join(lines)
    exec(f"def __init__({', '.join(parameters)}):\n    {body}", names)  # noqa: S102 - own names
    written: Callable[..., None] = names["__init__"]
    written.__qualname__ = f"{cls.__qualname__}.__init__"
    return written


def _assignment(cls: type, name: str, value: str, names: dict[str, Any], frozen: bool) -> str:
    if not frozen:
        return f"self.{name} = {value}"
    slot = getattr(cls, name, None)
    if type(slot).__name__ == "member_descriptor":
        names[f"_set_{name}"] = slot.__set__  # type: ignore[union-attr]
        return f"_set_{name}(self, {value})"
    return f"_set(self, {name!r}, {value})"


def _key(names: list[str]) -> Callable[[Any], Any]:
    if not names:
        return lambda value: ()
    # A single name twice: always a tuple, which compares by identity first.
    return attrgetter(*(names if len(names) > 1 else names * 2))


def _equal(key: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        return key(self) == key(other) if type(other) is type(self) else NotImplemented

    return __eq__


def _hashed(key: Callable[[Any], Any]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(key(self))

    return __hash__


@recursive_repr()
def _repr(self: Any) -> str:
    fields = type(self).__lazy_fields__.values()
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields if one.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_set(self: Any, name: str, value: Any) -> NoReturn:
    # As slow to import as a hundred of our classes, and only needed here.
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in type(self).__lazy_fields__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(type(self).__lazy_fields__, state, strict=True):
        object.__setattr__(self, name, value)
