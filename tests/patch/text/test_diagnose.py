"""A hunk that does not match: the place that was meant, and the first line that differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.clock import assert_effort

from toolrest.patch import codex_grammar as grammar
from toolrest.patch.errors import MatchError, PatchError
from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.plan import plan
from toolrest.patch.text.diagnose import diagnose, missing_of, notes
from toolrest.patch.text.rebuild import rewrite

Case: TypeAlias = dict[str, Any]
Tree: TypeAlias = dict[str, Any]

CODE = "import os\n\ndef f(x):\n    y = x + 1\n    return y\n\ndef g(x):\n    return f(x)\n"


def failed(text: str, body: str) -> MatchError:
    (update,) = grammar.parse(
        f"*** Begin Patch\n*** Update File: f\n{body}\n*** End Patch"
    ).operations
    with pytest.raises(MatchError) as caught:
        rewrite(text, update.chunks, "/w/f")  # type: ignore[union-attr]
    return caught.value


def test_the_first_line_that_differs() -> None:
    error = failed(CODE, "@@\n def f(x):\n     y = x + 1\n-    return Y\n+    return z")
    assert notes(error) == [
        "hunk 1 of /w/f (line 3 of the patch): the nearest candidate is lines 3-5, "
        "where 2 of 3 agree",
        "first difference at line 5: expected '    return Y', found '    return y'",
    ]
    found = diagnose(error.missing)
    assert (found.hunk, found.first, found.last, found.line) == (1, 3, 5, 5)
    assert (found.expected, found.found) == ("    return Y", "    return y")


def test_when_it_is_already_applied() -> None:
    error = failed(CODE, "@@\n def g(x):\n-    return x\n+    return f(x)")
    assert "already applied: the new lines are in the file at line 7" in notes(error)


def test_a_lone_brace_is_no_proof_of_anything() -> None:
    error = failed("{\n}\n", "@@\n-x\n }")
    assert diagnose(error.missing).applied is None


def test_hunks_out_of_order() -> None:
    error = failed(CODE, "@@\n def g(x):\n-    return f(x)\n+    pass\n@@\n-import os\n+import re")
    assert "hunk 2" in notes(error)[0]
    assert any("above the hunk before" in note and "line 1," in note for note in notes(error))


def test_a_context_that_is_not_there() -> None:
    error = failed(CODE, "@@ def f(y):\n-    y = x + 1\n+    y = x")
    said = notes(error)
    assert "line 3" in said[0]
    assert said[1] == "first difference at line 3: expected 'def f(y):', found 'def f(x):'"


def test_beyond_the_end_of_the_file() -> None:
    error = failed("a\nb\n", "@@\n a\n b\n-c\n+d")
    assert notes(error)[1] == "first difference at line 3: expected 'c', the file has ended"


def test_nothing_alike() -> None:
    for text in ("", "something else\n"):
        (note,) = notes(failed(text, "@@\n-nowhere to be found\n+x"))
        assert "nothing in the file resembles these lines" in note


def test_redacted_text_never_matches() -> None:
    error = failed("KEY=abcdefgh\n", "@@\n-KEY=[redacted:KEY]\n+KEY=")
    assert any(note.startswith("redacted text never matches") for note in notes(error))


def test_long_lines_are_cut() -> None:
    error = failed("x" * 5000 + "\n", "@@\n-" + "y" * 5000 + "\n+z")
    assert all(len(note) < 500 for note in notes(error))


def test_the_file_is_identified(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    patch = grammar.parse("*** Begin Patch\n*** Update File: f\n@@\n-b\n+c\n*** End Patch")
    with OsFiles() as files, pytest.raises(MatchError) as caught:
        plan(patch, files, str(tmp_path))
    found = diagnose(caught.value.missing).to_json()
    assert found["path"] == f"{tmp_path}/f"
    assert found["sha256"] == "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7"


def test_every_recorded_mismatch_names_the_line(
    recorded: Case, folder: Path, build: Callable[[Path, Tree], None]
) -> None:
    build(folder, recorded["input"])
    patch = grammar.parse(recorded["patch"].replace("$ROOT", str(folder)))
    with OsFiles() as files, pytest.raises(PatchError) as caught:
        plan(patch, files, str(folder / recorded.get("cwd", ".")))
    missing = missing_of(caught.value)
    assert missing is not None
    said = notes(caught.value)
    assert said[0].startswith(f"hunk {missing.hunk} of {missing.label} (line {missing.line}")
    assert all("\n" not in note for note in said)
    found = diagnose(missing)
    wanted = [missing.context] if missing.context is not None else missing.old
    if found.expected is not None:
        assert found.expected in wanted
        assert any(repr(found.expected)[:150] in note for note in said)
    else:
        # Either nothing is alike, or the lines are there, but not where they may be.
        assert found.first is None or found.agreeing == found.total


def test_a_large_file_is_diagnosed_in_bounded_time() -> None:
    lines = [f"line {i} of {i % 13}\n" for i in range(50_000)] + ["}\n"] * 50_000
    body = "\n".join(f"-line {i} of {i % 13}" for i in range(40_000, 45_000))
    error = failed("".join(lines), f"@@\n{body}\n-not there\n+x")
    assert_effort(lambda: diagnose(error.missing), below=350)
    found = diagnose(error.missing)
    assert (found.first, found.line) == (40_001, 45_001)
