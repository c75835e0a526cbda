"""The tree of exceptions that `errors.py` draws is the tree that the rooms define."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import Counter
from pathlib import Path

import pytest

import toolrest
from toolrest import errors

SOURCE = Path(toolrest.__file__).parent
DRAWN = re.compile(r"^    ((?:[│ ]   )*(?:[├└]── )?)(\w+) +(?:\((\S+)\) )?\S", re.MULTILINE)


def drawn() -> set[tuple[str, str, str]]:
    """Class, base and file of every line of the drawing."""
    found: set[tuple[str, str, str]] = set()
    above: list[str] = []
    tree = (errors.__doc__ or "").split("\n\n")[1]
    for indent, name, file in DRAWN.findall(tree):
        depth = len(indent) // 4
        above[depth:] = [name]
        found.add((name, above[depth - 1] if depth else "Exception", file or "errors.py"))
    assert len(found) == len(tree.splitlines())
    return found


def defined() -> set[tuple[str, str, str]]:
    """The same of every class, after importing all modules."""
    for module in pkgutil.walk_packages(toolrest.__path__, "toolrest."):
        if not module.name.endswith("__main__"):
            _import(module.name)
    found: set[tuple[str, str, str]] = set()
    todo: list[type[BaseException]] = [errors.ToolrestError]
    for made in todo:
        todo += made.__subclasses__()
        package, *parts = made.__module__.split(".")
        if package == "toolrest":  # tests make some, too
            file = "/".join(parts) + ".py"
            found |= {(made.__name__, base.__name__, file) for base in made.__bases__}
    return found


ELSEWHERE = {"agents", "inspect_ai", "langchain_core", "pydantic_ai", "ray"}
"""Packages of extras that our own environment lacks."""


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in ELSEWHERE:
            raise


def test_the_drawing_is_the_tree() -> None:
    assert drawn() == defined()


@pytest.mark.slow
def test_the_name_of_an_error_means_nothing_else() -> None:
    trees = [ast.parse(file.read_text()) for file in SOURCE.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = Counter(node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef))
    assert {name: names[name] for name, _, _ in drawn() if names[name] != 1} == {}
