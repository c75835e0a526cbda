"""read_file's indentation mode: the documented vector, and a model written apart from the code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.gate.tool.args_class import make
from toolrest.items import ToolOutput
from toolrest.policy.paths.policy import PathPolicy
from toolrest.tools.files.read_file import Indentation, Job, ReadFile, plan

Call = Callable[..., Awaitable[ToolOutput]]

SAMPLE = """\
# top note
import os

# loads things
# twice
def load(path):
    data = []

    for row in open(path):
        if row:
            data.append(row)
    return data

def save(x):
    return x
"""


def numbers(output: ToolOutput) -> list[int]:
    lines = [line for line in output.text.split("\n") if not line.startswith("[toolrest] ")]
    return [int(line.split(":")[0][1:]) for line in lines if line]


def read(path: Path, **arguments: Any) -> str:
    """The lines without the gate, for property tests."""
    files = PathPolicy("/", homes=[], toolrest_home=f"{path}-home")
    arguments |= {"file_path": str(path), "mode": "indentation"}
    job = Job(files, str(path), plan(make(ReadFile.Args, **arguments)))
    return job.finish(job.open()[0]).text


@pytest.mark.parametrize(
    ("options", "limit", "first", "last"),
    [
        ({"max_levels": 1}, None, 10, 11),
        ({"max_levels": 2}, None, 9, 12),
        ({"max_levels": 2, "include_siblings": True}, None, 7, 12),
        ({"max_levels": 3}, None, 4, 15),
        ({"max_levels": 0}, None, 4, 15),
        ({}, None, 4, 15),
        ({"max_levels": 3, "include_header": False}, None, 6, 15),
        ({"max_levels": 3, "max_lines": 4}, None, 9, 12),
        ({"max_levels": 3}, 3, 10, 12),
        ({"max_levels": 3, "max_lines": 1}, None, 11, 11),
    ],
)
async def test_the_documented_vector(
    call: Call, work: Path, options: dict[str, Any], limit: int | None, first: int, last: int
) -> None:
    (work / "v.py").write_text(SAMPLE)
    arguments: dict[str, Any] = {"indentation": {"anchor_line": 11} | options}
    if limit is not None:
        arguments["limit"] = limit
    output = await call("read_file", file_path="v.py", mode="indentation", **arguments)
    assert numbers(output) == list(range(first, last + 1))
    assert output.text.startswith(f"L{first}: {SAMPLE.splitlines()[first - 1]}")


async def test_the_offset_is_the_anchor_when_none_is_given(call: Call, work: Path) -> None:
    (work / "v.py").write_text(SAMPLE)
    for options in (None, {"anchor_line": None, "max_lines": None}, {}):
        output = await call(
            "read_file", file_path="v.py", mode="indentation", offset=15, indentation=options
        )
        assert 15 in numbers(output)


async def test_slice_mode_ignores_the_options_of_the_other(call: Call, work: Path) -> None:
    (work / "v.py").write_text(SAMPLE)
    output = await call("read_file", file_path="v.py", indentation={"anchor_line": 0}, limit=1)
    assert numbers(output) == [1]


@pytest.mark.parametrize(
    ("text", "anchor", "expected"),
    [
        ("\n", 1, [1]),  # one line is never trimmed
        ("\n\n\n", 2, []),  # nothing but blank lines leaves nothing
        ("a\n\n\n", 1, [1]),
        ("\n\na\n", 3, [3]),
        ("\u3000\na\n", 2, [2]),
        ("\x1c\na\n", 2, [1, 2]),  # a separator is not white space
    ],
)
def test_blank_ends_are_trimmed(
    tmp_path: Path, text: str, anchor: int, expected: list[int]
) -> None:
    file = tmp_path / "f"
    file.write_text(text)
    shown = read(file, indentation=make(Indentation, anchor_line=anchor))
    assert [int(line.split(":")[0][1:]) for line in shown.split("\n") if line] == expected


WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def naive_block(
    lines: list[str], anchor: int, levels: int, siblings: bool, header: bool, n: int
) -> list[int]:
    """The six steps of tools.md toolrest11.1, one after the other, on a list of texts."""
    effective: list[int] = []
    for line in lines:
        if line.strip(WHITE) == "":
            effective.append(effective[-1] if effective else 0)
            continue
        width = 0
        for char in line:
            if char not in " \t":
                break
            width += 1 if char == " " else 4
        effective.append(width)
    floor = 0 if levels == 0 else max(0, effective[anchor] - 4 * levels)
    n = min(n, len(lines))
    if n == 1:
        return [anchor]
    taken = [anchor]
    above, below = anchor - 1, anchor + 1
    above_met = below_met = 0
    while len(taken) < n:
        before = len(taken)
        if above >= 0:
            comment = lines[above].strip(WHITE).startswith(("#", "//", "--"))
            at_floor = effective[above] == floor and not siblings
            if effective[above] < floor or (
                at_floor and above_met > 0 and not (header and comment)
            ):
                above = -1
            else:
                above_met += at_floor
                taken.insert(0, above)
                above -= 1
                if len(taken) == n:
                    break
        if below < len(lines):
            at_floor = effective[below] == floor and not siblings
            if effective[below] < floor or (at_floor and below_met > 0):
                below = len(lines)
            else:
                below_met += at_floor
                taken.append(below)
                below += 1
        if len(taken) == before:
            break
    while taken and lines[taken[0]].strip(WHITE) == "":
        del taken[0]
    while taken and lines[taken[-1]].strip(WHITE) == "":
        del taken[-1]
    return taken


code_line = st.builds(
    lambda lead, body: lead + body,
    st.sampled_from(["", "", "    ", "\t", "        ", "  ", "\t  ", " \t ", "\u3000"]),
    st.sampled_from(["x", "# c", "// c", "-- c", "", "", "def f():", "é", "-", "/"]),
)


@given(
    lines=st.lists(code_line, min_size=1, max_size=30),
    place=st.integers(0, 29),
    levels=st.integers(0, 4),
    siblings=st.booleans(),
    header=st.booleans(),
    limit=st.integers(1, 35),
    guard=st.none() | st.integers(1, 35),
)
def test_blocks_agree_with_the_naive_model(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    place: int,
    levels: int,
    siblings: bool,
    header: bool,
    limit: int,
    guard: int | None,
) -> None:
    file = tmp_path_factory.getbasetemp() / "block"
    file.write_text("\n".join(lines) + "\n", newline="")
    anchor = place % len(lines)
    most = min(limit, guard or limit)
    expected = naive_block(lines, anchor, levels, siblings, header, most)
    options = make(
        Indentation,
        anchor_line=anchor + 1,
        max_levels=levels,
        include_siblings=siblings,
        include_header=header,
        max_lines=guard,
    )
    shown = read(file, limit=limit, indentation=options)
    assert shown == "\n".join(f"L{n + 1}: {lines[n]}" for n in expected)


def test_a_blank_run_inherits_from_far_above_the_window(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("top\n    body\n" + "\n" * 50 + "    more\n")
    shown = read(file, limit=3, indentation=make(Indentation, anchor_line=53, max_levels=1))
    assert shown == "L53:     more"
