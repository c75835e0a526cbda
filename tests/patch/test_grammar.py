"""Reading patches: what the recordings cannot show."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.patch.codex_grammar import AddFile, DeleteFile, UpdateFile, parse
from toolrest.patch.errors import ParseError

PIECES = [
    "*** Begin Patch",
    "*** End Patch",
    "*** Add File: a",
    "*** Delete File: b",
    "*** Update File: c",
    "*** Move to: d",
    "*** End of File",
    "*** Environment ID: e",
    "<<'EOF'",
    "EOF",
    "@@",
    "@@ x",
    "@@x",
    "+",
    "+x",
    "-x",
    " x",
    "",
    "  ",
    "\t",
    "***",
    "*** ",
    "\\ No newline at end of file",
    "\x1c",
    "\u2028x",
]
line = st.sampled_from(PIECES) | st.text(max_size=8)
patch_like = st.lists(line, max_size=12).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n", "\r\r\n", "\r"]).map(lambda end: end.join(lines))
)


@given(patch_like | st.text())
@example("\ud800")
@example("*** Begin Patch\n*** Add File: \ud800\n*** End Patch")
def test_only_its_own_error(text: str) -> None:
    error = refusal(text)
    if error is not None:
        assert error.message
        assert error.line is None or 1 <= error.line <= text.count("\n") + 1
        assert error.stderr.startswith("Invalid patch")
        assert error.verdict.startswith("invalid ")


@given(st.lists(line, max_size=10))
def test_inside_the_envelope_too(lines: list[str]) -> None:
    error = refusal("\n".join(["*** Begin Patch", *lines, "*** End Patch"]))
    assert error is None or error.line is None or error.line >= 2


def refusal(text: str) -> ParseError | None:
    try:
        patch = parse(text)
    except ParseError as error:
        return error
    assert all(op.chunks for op in patch.operations if isinstance(op, UpdateFile))
    return None


def test_what_a_patch_says() -> None:
    patch = parse(
        "*** Begin Patch\n*** Environment ID: home\n*** Add File: a\n+one\n+\n"
        "*** Delete File: b\n*** Update File: c\n*** Move to: d\n@@ def f():\n x\n-y\n+z\n"
        "*** End of File\n*** End Patch\n"
    )
    assert patch.environment_id == "home"
    add, delete, update = patch.operations
    assert isinstance(add, AddFile)
    assert (add.path, add.text) == ("a", "one\n\n")
    assert isinstance(delete, DeleteFile)
    assert delete.path == "b"
    assert isinstance(update, UpdateFile)
    assert (update.path, update.move_to) == ("c", "d")
    (chunk,) = update.chunks
    assert (chunk.context, chunk.old, chunk.new) == ("def f():", ["x", "y"], ["x", "z"])
    assert chunk.eof
    assert chunk.line == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostile",
    [
        "x" * 1_000_000,
        " " * 1_000_000,
        "\n" * 1_000_000,
        "\r" * 1_000_000,
        "*** " * 250_000,
        "@@\n" * 333_333,
        "@@ \n-a\n" * 125_000,
        "*** Add File: a\n" * 60_000,
        "*** Update File: a\n-\n" * 45_000,
        "*** Update File: a\n" + "+\n" * 500_000,
        "*** Update File: a\n" + "\n" * 900_000,
        "*** Update File: a\n@@" + " " * 900_000 + "x\n-y",
        "*** End Patch\n" * 70_000,
        "<<EOF\n" * 150_000,
    ],
    ids=range(14),
)
def test_a_hostile_megabyte_is_read_in_linear_time(hostile: str) -> None:
    for text in (hostile, f"*** Begin Patch\n{hostile}\n*** End Patch"):
        assert_effort(lambda: refusal(text), below=200)  # noqa: B023
