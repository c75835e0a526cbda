from __future__ import annotations

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.gate.tool.wire_names import NameMap, RawName, is_legal, wire_name


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("read_file", "read_file"),
        ("container.exec", "container_exec"),
        ("a b/c", "a_b_c"),
        ("grüße", "gr__e"),
        ("", "_"),
        ("x" * 64, "x" * 64),
        (("files", "read"), "mcp__files__read"),
        (("my server", "do.it"), "mcp__my_server__do_it"),
    ],
)
def test_wire_names(raw: RawName, expected: str) -> None:
    assert wire_name(raw) == expected


def test_long_names_keep_24_characters_and_a_sha1() -> None:
    raw = ("server", "a-very-long-tool-name-" * 4)
    full = "mcp__server__" + raw[1]
    digest = hashlib.sha1(full.encode()).hexdigest()
    assert wire_name(raw) == full[:24] + digest
    assert len(wire_name(raw)) == 64


def test_an_own_name_cannot_be_taken_away() -> None:
    names = NameMap([("a", "b"), "mcp__a__b", "mcp a.b", "mcp_a_b"])
    assert names.wire("mcp__a__b") == "mcp__a__b"
    assert names.wire("mcp_a_b") == "mcp_a_b"
    assert names.wire(("a", "b")).startswith("mcp__a__b_")
    assert names.wire("mcp a.b").startswith("mcp_a_b_")


def test_servers_and_tools_that_read_the_same_stay_apart() -> None:
    first, second = ("a__b", "c"), ("a", "b__c")
    names = NameMap([first, second])
    assert names.wire(first) != names.wire(second)
    assert names.resolve(names.wire(first)) == first
    assert names.resolve(names.wire(second)) == second
    assert names.resolve("mcp__a__b__c") is None
    assert names.resolve("a/b__c") == second


def test_a_forged_suffix_does_not_help() -> None:
    clash: list[RawName] = ["a.b", "a b"]
    for _ in range(5):
        forged = [wire for _, wire in NameMap(clash)]
        clash = list({*clash, *forged})
    names = NameMap(clash)
    assert len({wire for _, wire in names}) == len(names) == len(clash)
    assert all(names.wire(raw) == raw for raw in clash if is_legal(str(raw)))


def test_spellings() -> None:
    names = NameMap(["shell", "x.y", ("fs", "read"), ("a/b", "c"), ("a", "b/c"), ("o", "p/q")])
    assert names.resolve("shell") == "shell"
    assert names.resolve("x.y") == "x.y"
    assert names.resolve("x_y") == "x.y"
    assert names.resolve("mcp__fs__read") == ("fs", "read")
    assert names.resolve("fs/read") == ("fs", "read")
    assert names.resolve("read", "mcp__fs") == ("fs", "read")
    assert names.resolve("shell", "functions") == "shell"
    assert names.resolve("o/p/q") == ("o", "p/q")
    assert names.resolve("a/b/c") is None
    assert names.resolve("read") is None
    assert names.resolve("read", "mcp__other") is None
    assert names.resolve("") is None


parts = st.text(alphabet="ab_-. /é\ud800", max_size=4) | st.text(max_size=80)
raws = st.lists(parts | st.tuples(parts, parts), max_size=12)


@given(raws, st.randoms(use_true_random=False))
def test_names_are_legal_unique_reversible_and_order_free(
    names: list[RawName], rng: random.Random
) -> None:
    mapping = NameMap(names)
    wires = [mapping.wire(raw) for raw in names]
    assert all(map(is_legal, wires))
    assert len(set(wires)) == len(set(names)) == len(mapping)
    assert [mapping.resolve(wire) for wire in wires] == names
    assert all(mapping.wire(raw) == raw for raw in names if isinstance(raw, str) and is_legal(raw))
    shuffled = list(names)
    rng.shuffle(shuffled)
    assert [NameMap(shuffled).wire(raw) for raw in names] == wires
