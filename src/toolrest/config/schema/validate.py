"""Validation of values against the declared types of settings; reports all problems at once.

It knows the types that settings use and no others: texts, numbers, switches, literals, lists,
tables, and `Annotated` with limits and functions. Nothing is coerced: an int is good where a float
belongs, and a list becomes a tuple, that is all.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from toolrest.config.schema.table import ProblemKind, SettingProblem, Table, TableError
from toolrest.config.schema.types import Length, Range

Path: TypeAlias = tuple[str | int, ...]
T = TypeVar("T", bound=Table)
_OTHER: Any = object()
"""Returned by a scalar's check for a value of another type."""


def check_table(kind: type[T], raw: Any) -> T:
    """The checked table; TableError, with all its problems, when it is invalid.

    No value's check looks at another value, so a part of a table can be checked like a whole.
    """
    checking = _Checking()
    table: T = checking.table(kind, raw, ())
    if checking.problems:
        raise TableError(checking.problems)
    return table


def _switch(value: Any) -> Any:
    return value if isinstance(value, bool) else _OTHER


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else _OTHER


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _OTHER
    try:
        return float(value)
    except OverflowError:
        return _OTHER


def _text(value: Any) -> Any:
    # An enum's member is a str too, but prints as something else.
    return str.__str__(value) if isinstance(value, str) else _OTHER


_SCALARS: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    bool: ("true or false", _switch),
    int: ("a whole number", _whole),
    float: ("a number", _number),
    str: ("a text in quotes", _text),
}


class _Checking:
    """One validation. What a check returns counts only where it found no problem."""

    def __init__(self) -> None:
        self.problems: list[SettingProblem] = []
        self._by_origin: dict[Any, Callable[[Any, Any, Path], Any]] = {
            Annotated: self._annotated,
            Literal: self._literal,
            Union: self._union,
            UnionType: self._union,
            tuple: self._list,
            dict: self._names,
        }

    def value(self, kind: Any, value: Any, path: Path) -> Any:
        if kind is Any:
            return value
        if origin := get_origin(kind):
            return self._by_origin[origin](kind, value, path)
        if kind not in _SCALARS:
            return self.table(kind, value, path)
        expected, check = _SCALARS[kind]
        found = check(value)
        return self._mismatch(path, value, expected) if found is _OTHER else found

    def table(self, kind: type[T], raw: Any, path: Path) -> Any:
        """A table's fields in the order in which they were written."""
        if isinstance(raw, kind):
            return raw
        if not isinstance(raw, dict):
            return self._mismatch(path, raw, "a table")
        known, before = kind.__annotations__, len(self.problems)
        values = {
            name: self.value(kind.kind_of(name), value, (*path, name))
            for name, value in raw.items()
            if name in known
        }
        for name in known:
            if name not in raw and not hasattr(kind, name):
                self._add("missing", (*path, name))
        for name in raw:
            if name not in known:
                self._add("unknown", (*path, str(name)), raw[name])
        return kind(**values) if len(self.problems) == before else None

    def _annotated(self, kind: Any, value: Any, path: Path) -> Any:
        inner, *more = get_args(kind)
        found, before = value, len(self.problems)
        for item in more:
            if not isinstance(item, Range | Length):
                try:
                    found = item(found)
                except ValueError as error:
                    return self._add("refused", path, value, str(error))
        found = self.value(inner, found, path)
        if len(self.problems) > before:
            return None
        for item in more:
            if isinstance(item, Range | Length) and (expected := item.unmet(found)):
                return self._mismatch(path, value, expected)
        return found

    def _literal(self, kind: Any, value: Any, path: Path) -> Any:
        literals = get_args(kind)
        if isinstance(value, str) and value in literals:
            return literals[literals.index(value)]
        *others, last = map(repr, literals)
        expected = f"{', '.join(others)} or {last}" if others else last
        return self._mismatch(path, value, f"one of {expected}")

    def _union(self, kind: Any, value: Any, path: Path) -> Any:
        members = [member for member in get_args(kind) if member is not type(None)]
        if value is None and len(members) < len(get_args(kind)):
            return None
        if len(members) == 1:
            return self.value(members[0], value, path)
        tries = [_Checking() for _ in members]
        for member, one in zip(members, tries, strict=True):
            found = one.value(member, value, path)
            if not one.problems:
                return found
        # What got as far as the inside of a list was meant to be that list.
        inside = [each for one in tries for each in one.problems if len(each.path) > len(path)]
        if inside:
            self.problems += inside
            return None
        return self._mismatch(path, value, " or ".join(one.problems[0].text for one in tries))

    def _list(self, kind: Any, value: Any, path: Path) -> Any:
        if not isinstance(value, list | tuple):
            return self._mismatch(path, value, "a list")
        inner = get_args(kind)[0]
        return tuple(self.value(inner, item, (*path, i)) for i, item in enumerate(value))

    def _names(self, kind: Any, value: Any, path: Path) -> Any:
        """A table whose keys the user chooses."""
        if not isinstance(value, dict):
            return self._mismatch(path, value, "a table")
        inner = get_args(kind)[1]
        for name in value:
            if not isinstance(name, str):
                self._mismatch(path, name, "names that are texts")
        return {name: self.value(inner, item, (*path, name)) for name, item in value.items()}

    def _mismatch(self, path: Path, value: Any, expected: str) -> None:
        self._add("mismatch", path, value, expected)

    def _add(self, kind: ProblemKind, path: Path, value: Any = None, text: str = "") -> None:
        self.problems.append(SettingProblem(kind, path, value, text))
