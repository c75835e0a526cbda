"""Code in colours: all of it is shown, whatever its language, and none takes long."""

from __future__ import annotations

from time import thread_time

import pytest

from toolrest.timeline.highlight import highlighted
from toolrest.timeline.message import MessageRows
from toolrest.timeline.wrap import plain_text

LANGUAGES = (
    "python pycon pytb bash console powershell javascript tsx json yaml toml ini html css c cpp "
    "csharp java kotlin go rust ruby php sql diff dockerfile make markdown latex text output"
).split()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_line_is_shown(language: str) -> None:
    """Failed before: the last line of a terminal session was not there."""
    lines = ["$ ls -l", "", "  a.txt = 'x'", ">>> 1 +\\", "", "<b>é</b>", "the end"]
    assert [plain_text(row) for row in highlighted(lines, language)] == lines
    assert plain_text(highlighted(["the end"], language)[-1]) == "the end"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "piece"),
    [("amdgpu", "a"), ("ng2", "("), ("python", " \n"), ("java", "a "), ("c", " \n")],
)
def test_a_slow_lexer_does_not_stop_the_chat(language: str, piece: str) -> None:
    """Failed before: more than three seconds for each frame, some without an end."""
    began = thread_time()
    rows = MessageRows(80).advance(f"```{language}\n{piece * (19_000 // len(piece))}\n```")
    assert thread_time() - began < 2
    assert rows


def test_colours_begin_with_the_code_and_end_where_it_is_too_long() -> None:
    lines = ["x = 'text'", "y" * 5000, "x = 'text'"]
    first, *others = highlighted(lines, "python")
    assert ("green", "'text'") in first
    assert others == [[("", line)] for line in lines[1:]]
