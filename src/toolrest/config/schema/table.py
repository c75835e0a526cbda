"""A table of settings: fields with defaults, and the values that were set."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, Self, TypeAlias, dataclass_transform

from toolrest.errors import ConfigError

ProblemKind: TypeAlias = Literal["unknown", "missing", "mismatch", "refused"]


class SettingProblem:
    """One problem of a table: its path, the value, and the message.

    `text` is what was expected for a `mismatch`, and the whole reason for a `refused` value.
    """

    __slots__ = ("kind", "path", "text", "value")

    def __init__(
        self, kind: ProblemKind, path: tuple[str | int, ...], value: Any = None, text: str = ""
    ) -> None:
        self.kind = kind
        self.path = path
        self.value = value
        self.text = text

    def __str__(self) -> str:
        if self.kind == "mismatch":
            return f"expected {self.text}"
        return self.text or f"{self.kind} key"


class TableError(ConfigError):
    """A table that cannot be used, with every problem that it has."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            "\n".join(f"{'.'.join(map(str, each.path))}: {each}" for each in self.problems)
        )


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Table:
    """A TOML table whose keys are all known and whose values are never coerced.

    Fields are declared as in a dataclass and given by name. Defaults stay on the class and
    annotations stay text, so declaring a table costs next to nothing; an instance holds what was
    set. Making one by hand checks no values: that is what `check_table` is for. A table has the
    fields of its own class only.
    """

    def __init__(self, **values: Any) -> None:
        known = type(self).__annotations__
        unknown = [name for name in values if name not in known]
        missing = [n for n in known if n not in values and not hasattr(type(self), n)]
        if unknown or missing:
            raise TypeError(f"{type(self).__name__}: {unknown=} {missing=}")
        vars(self).update(values)

    @classmethod
    def fields(cls) -> dict[str, Any]:
        """Every field and its type."""
        return {name: cls.kind_of(name) for name in cls.__annotations__}

    @classmethod
    def kind_of(cls, name: str) -> Any:
        """The type of one field."""
        return _evaluated(cls.__annotations__[name], cls.__module__)

    def given(self) -> dict[str, Any]:
        """The values that were set, without defaults."""
        return dict(vars(self))

    def as_dict(self, *, set_only: bool = False) -> dict[str, Any]:
        """The table as plain dicts and tuples; with `set_only` without defaults."""
        names = vars(self) if set_only else type(self).__annotations__
        return {name: _plain(getattr(self, name), set_only) for name in names}

    def replace(self, **values: Any) -> Self:
        """A copy in which these are set; they are not checked."""
        return type(self)(**vars(self) | values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} does not change; make a copy with replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} does not change; make a copy with replace()")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in type(self).__annotations__)

    def __repr__(self) -> str:
        # Not their values: addresses, headers and variables may hold keys.
        return f"{type(self).__name__}({', '.join(vars(self))})"


@cache
def _evaluated(annotation: str, module: str) -> Any:
    """The type of an annotation, which is our own text, evaluated in its module."""
    return eval(annotation, vars(sys.modules[module]))  # noqa: S307


def _plain(value: Any, set_only: bool) -> Any:
    if isinstance(value, Table):
        return value.as_dict(set_only=set_only)
    if isinstance(value, dict):
        return {name: _plain(inner, set_only) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_plain(inner, set_only) for inner in value)
    return value
