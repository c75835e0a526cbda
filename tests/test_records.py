"""Our dataclasses do what the standard library's do; they only do it later."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest import records as lazy_dataclass

MODULES: tuple[Any, Any] = (dataclasses, lazy_dataclass)
DEFAULTS = st.none() | st.integers(0, 3) | st.text(max_size=2) | st.just((1, "a"))
Maker = Callable[[Any], Any]
Shape = list[tuple[str, dict[str, Any]]]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Fields by name, with the arguments that `field` gets; the required ones first."""
    fields: Shape = []
    for number in range(draw(st.integers(0, 5))):
        options: dict[str, Any] = {}
        kind = draw(st.sampled_from(["required", "default", "factory", "unset"]))
        if kind == "default":
            options["default"] = draw(DEFAULTS)
        elif kind == "factory":
            options["default_factory"] = draw(st.sampled_from([list, dict]))
        if kind != "required":
            options["init"] = kind != "unset" and draw(st.booleans())
        options["repr"] = kind != "unset" and draw(st.booleans())
        options["compare"] = kind != "unset" and draw(st.booleans())
        fields.append((f"f{number}", options))
    return sorted(fields, key=lambda each: len(each[1]) > 2)


def both(shape: Shape, *, frozen: bool, slots: bool, eq: bool) -> list[Any]:
    made = []
    for module in MODULES:
        space: dict[str, Any] = {
            "__module__": __name__,
            "__qualname__": "Made",
            "__annotations__": {"kind": "ClassVar[str]"} | {name: "Any" for name, _ in shape},
            "kind": "k",
        }
        space |= {name: module.field(**options) for name, options in shape}
        made.append(module.dataclass(frozen=frozen, slots=slots, eq=eq)(type("Made", (), space)))
    return made


def outcome(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:
        return type(error)


def refused(do: Callable[[], Any]) -> bool:
    """The standard library's stumbles (TypeError) over names that are no fields of a frozen one."""
    return isinstance(outcome(do), type)


def same_hash(one: object, other: object) -> bool:
    """Of two that live at once: what goes by identity could else have the same place."""
    return hash(one) == hash(other)


@given(
    shapes(),
    st.lists(DEFAULTS, max_size=5),
    st.dictionaries(st.sampled_from(["f0", "f1", "f2", "f3", "other"]), DEFAULTS, max_size=3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_the_same_as_the_standard_library(
    shape: Shape, args: list[Any], kwargs: dict[str, Any], frozen: bool, slots: bool, eq: bool
) -> None:
    classes = both(shape, frozen=frozen, slots=slots, eq=eq)
    probes: list[Maker] = [
        lambda cls: repr(cls(*args, **kwargs)),
        lambda cls: cls(*args, **kwargs) == cls(*args, **kwargs),
        lambda cls: same_hash(cls(*args, **kwargs), cls(*args, **kwargs)),
        lambda cls: cls.__hash__ is None,
        lambda cls: cls(*args, **kwargs) == object(),
        lambda cls: dataclasses.asdict(cls(*args, **kwargs)),
        lambda cls: repr(dataclasses.replace(cls(*args, **kwargs), f0=7)),
        lambda cls: repr(copy.copy(cls(*args, **kwargs))),
        lambda cls: repr(copy.deepcopy(cls(*args, **kwargs))),
        lambda cls: refused(lambda: setattr(cls(*args, **kwargs), "f0", 1)),
        lambda cls: refused(lambda: setattr(cls(*args, **kwargs), "elsewhere", 1)),
        lambda cls: refused(lambda: delattr(cls(*args, **kwargs), "f0")),
        lambda cls: [(f.name, f.init, f.default) for f in dataclasses.fields(cls)],
        lambda cls: (cls.__match_args__, cls.kind, cls.__qualname__, hasattr(cls, "f1")),
        lambda cls: getattr(cls, "__slots__", None),
    ]
    for number, probe in enumerate(probes):
        theirs, ours = (outcome(partial(probe, cls)) for cls in classes)
        assert ours == theirs, number


@given(shapes(), st.lists(DEFAULTS, max_size=5), st.booleans())
def test_our_replace_is_theirs(shape: Shape, args: list[Any], frozen: bool) -> None:
    theirs, ours = both(shape, frozen=frozen, slots=True, eq=True)
    expected = outcome(lambda: repr(dataclasses.replace(theirs(*args), f1=9)))
    assert outcome(lambda: repr(lazy_dataclass.replace(ours(*args), f1=9))) == expected


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Point:
    """A place."""

    origin: ClassVar[str] = "0"
    x: int
    y: int = 2
    names: list[str] = lazy_dataclass.field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x")


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Named(Point):
    """A place with a name."""

    name: str = "n"


def test_a_frozen_one_can_be_pickled_hashed_matched_and_inherited() -> None:
    one = Named(1, name="here")
    assert pickle.loads(pickle.dumps(one)) == one
    assert (one.y, one.origin, vars(Named)["__slots__"]) == (2, "0", ("name",))
    assert {one: 1}[Named(1, 2, ["other"], "here")] == 1
    assert Point(1) != Named(1)
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)
    with pytest.raises(ValueError, match="x"):
        Point(-1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 5  # type: ignore[misc]
    assert Point(1).names is not Point(1).names


def test_what_cannot_work_is_refused_when_it_is_written() -> None:
    mutable: Shape = [("a", {"default": []})]
    unordered: Shape = [("a", {"default": 1}), ("b", {})]
    for shape in (mutable, unordered):
        for module in MODULES:
            space = {"__annotations__": {name: "Any" for name, _ in shape}}
            space |= {name: module.field(**options) for name, options in shape if options}
            with pytest.raises((ValueError, TypeError)):
                module.dataclass()(type("Made", (), space))
    with pytest.raises(ValueError, match="both"):
        lazy_dataclass.field(default=1, default_factory=list)  # type: ignore[call-overload]


def test_nothing_is_written_at_import() -> None:
    code = (
        "import sys, toolrest.gate.call.walk, toolrest.wire.apis.responses\n"
        "import toolrest.tools.shell.exec_command\n"
        "from toolrest.gate.tool.tool import Question\n"
        "print(Question.__init__.__code__.co_filename.endswith('records.py'))\n"
        "Question()\n"
        "print(Question.__init__.__code__.co_filename)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n<string>\n"
