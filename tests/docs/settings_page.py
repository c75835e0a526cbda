"""The page of all settings with type and default, made from their tables."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from tests.docs.api_page import escape

from toolrest.config.schema.settings import Settings
from toolrest.config.schema.table import Table

HEAD = """\
# Every setting

<!-- Written by TOOLREST_WRITE_DOCS=1 pytest tests/docs: change the source, not this page. -->

Names, types and defaults; [settings](../configuration.md) says what they do. `toolrest config show
--all` prints your own values, and where each came from. Without a default in the table a setting is
unset, or empty. One default depends on the place: in a folder that you have not trusted, the
command line starts with `sandbox_mode = "read-only"`.
"""
PLAIN = {bool: "`true` or `false`", int: "a whole number", float: "a number", str: "a text"}


def kind_in_words(kind: Any) -> str:
    """A type as a reader of the page would say it."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return kind_in_words(inner[0])
    if origin is Literal:
        return ", ".join(f'`"{value}"`' for value in inner)
    if origin is tuple:
        return f"a list: {kind_in_words(inner[0])}"
    if origin is dict:
        return f"a table: {kind_in_words(inner[1])} for each name"
    if inner:  # a union
        members = [each for each in inner if each is not type(None)]
        return " or ".join(kind_in_words(each) for each in members)
    if isinstance(kind, type) and issubclass(kind, Table):
        return "a table: " + ", ".join(f"`{name}`" for name in kind.fields())
    return PLAIN.get(kind, "any value")


def default_in_words(table: type[Table], name: str) -> str:
    """A default as it would be written in a file."""
    value = getattr(table, name, None)
    if value in (None, (), {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`".replace("'", '"')
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def inner_table(kind: Any) -> tuple[type[Table], str] | None:
    """The table behind a field, and what follows its name in a heading."""
    if isinstance(kind, type) and issubclass(kind, Table):
        return kind, ""
    if get_origin(kind) is dict and (found := inner_table(get_args(kind)[1])):
        return found[0], f".NAME{found[1]}"
    if get_origin(kind) is Annotated:
        return inner_table(get_args(kind)[0])
    options = [each for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) not in (dict, tuple, Literal) and len(options) == 1:
        return inner_table(options[0])
    return None


def tables(table: type[Table], path: str) -> Iterator[tuple[str, type[Table], dict[str, Any]]]:
    """A table and those inside: the path, and the fields that are no tables."""
    found = {name: inner_table(kind) for name, kind in table.fields().items()}
    yield path, table, {n: k for n, k in table.fields().items() if found[n] is None}
    for name, inner in found.items():
        if inner is not None:
            yield from tables(inner[0], f"{path}.{name}{inner[1]}".lstrip("."))


def page() -> str:
    """The whole page."""
    parts = [HEAD.rstrip()]
    for path, table, fields in tables(Settings, ""):
        doc = "" if table is Settings else inspect.cleandoc(table.__doc__ or "")
        if not fields and not doc:
            continue
        parts += [f"## {f'[{path}]' if path else 'At the top of the file'}", doc]
        rows = [
            f"| `{name}` | {escape(kind_in_words(kind))} | {default_in_words(table, name)} |"
            for name, kind in fields.items()
        ]
        if rows:
            parts.append("\n".join(["| key | value | default |", "|---|---|---|", *rows]))
    return "\n\n".join(each for each in parts if each) + "\n"
