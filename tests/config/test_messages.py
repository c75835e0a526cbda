"""What is said about every setting and every kind of value, as it has always been said.

In `config_messages.json` a `?` is a value's place, `@` the key, `%` what came, and `=` alone means
that the value was taken as it is. Whatever is not listed under `else` has the group's usual answer.
"""

from __future__ import annotations

import json
import os
import random
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from toolrest.config.keys import find, nest, parse_key, toml_text
from toolrest.config.layer_check import Layer, LayerSource, check_layer
from toolrest.errors import ConfigError

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "config_messages.json").read_text()
)
PLACE = LayerSource("user", "FILE", "/folder", "/home/me")
FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
LONG, HUGE = "x" * 4097, "9" * 400


def read(text: str) -> dict[str, Any]:
    return tomllib.loads(text.replace("LONG", LONG).replace("HUGE", HUGE))


def said_about(table: dict[str, Any]) -> list[str] | Layer:
    try:
        return check_layer(table, PLACE)
    except ConfigError as error:
        lines = str(error).replace("FILE: ", "").splitlines()
        return sorted(re.sub(r"(unknown key [^;]+);.*", r"\1", line) for line in lines)


def came(value: Any) -> str:
    if isinstance(value, str):
        return "the text " + toml_text(short(value))
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a table"
    return toml_text(value)[:40] if isinstance(value, int | float) else "a date"


def short(value: Any) -> Any:
    return value[:40] + "…" if isinstance(value, str) and len(value) > 40 else value


def answer(dotted: str, written: str) -> str:
    """In the words of the file: what a value of a key comes to, or what is wrong with it."""
    template = RECORDED["templates"].get(dotted)
    said = said_about(read((template or f"{dotted} = ?").replace("?", written)))
    value = read(f"value = {written}")["value"]
    if isinstance(said, Layer):
        whole = nest(said.values)
        taken = toml_text(whole if template else find(whole, parse_key(dotted)))
        return "=" if taken == toml_text(value) else f"= {taken.replace(LONG, 'LONG')}"
    end = re.compile(rf"got {re.escape(came(value))}$")
    chosen = f"no {dotted} {short(value)!r};"
    said = [line.replace(chosen, "no @ %;") for line in said]
    lines = [end.sub("got %", line.replace(dotted, "@")) for line in said]
    return "\n".join(sorted(lines))


@pytest.mark.parametrize("group", RECORDED["groups"], ids=lambda group: group["keys"][0])
def test_every_answer_is_as_recorded(group: dict[str, Any]) -> None:
    expected = dict.fromkeys(RECORDED["values"], group["usual"])
    expected |= {value: said for said, values in group["else"].items() for value in values}
    # The keys of a group are of one type, so that two of them can stand for all.
    count = len(group["keys"]) if FULL else min(2, len(group["keys"]))
    for dotted in random.Random(1).sample(group["keys"], count):
        assert {value: answer(dotted, value) for value in expected} == expected, dotted


@pytest.mark.parametrize(("text", "lines"), RECORDED["documents"])
def test_all_that_is_wrong_is_said_at_once(text: str, lines: list[str]) -> None:
    said = said_about(tomllib.loads(text))
    assert ([] if isinstance(said, Layer) else said) == lines
