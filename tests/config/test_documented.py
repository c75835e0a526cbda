"""Every setting and every switch is in the manual, and the manual names no other switches."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolrest.config.layers import OLD_PREFIX, PREFIX, VARIABLES
from toolrest.config.schema.settings import Settings
from toolrest.config.schema.table import Table

MANUAL = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()


def tables_in(annotation: Any) -> Iterator[type[Table]]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from tables_in(inner)


def keys(model: type[Table], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, kind in model.fields().items():
        inner = list(tables_in(kind))
        if not inner:
            yield (*above, name)
        for table in inner:
            yield from keys(table, (*above, name))


def lines_about(*words: str) -> list[str]:
    """Lines of tables that have all of these words in code."""
    found = []
    for line in MANUAL.splitlines():
        code = " ".join(re.findall(r"`([^`]*)`", line)) if line.startswith("|") else ""
        if all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", code) for word in words):
            found.append(line)
    return found


def test_every_key_is_in_the_manual() -> None:
    known = list(keys(Settings))
    assert len(known) > 150
    missing = [".".join(key) for key in known if not lines_about(*{key[0], key[-1]})]
    assert missing == []


def test_every_switch_is_in_the_manual_under_both_names() -> None:
    for variable in VARIABLES:
        key = ".".join(variable.key)
        assert lines_about(PREFIX + variable.name, OLD_PREFIX + variable.name, key)
    switches = {prefix + v.name for v in VARIABLES for prefix in (PREFIX, OLD_PREFIX)}
    named = set(re.findall(r"\b(?:TOOLREST|MEMO)_[A-Z_]+\b", MANUAL))
    of_batches = {"TOOLREST_USERS_HOME", "TOOLREST_PACE_DIR", "TOOLREST_PARENT"}
    assert named - switches == {"TOOLREST_HOME", "TOOLREST_LOG", *of_batches}
