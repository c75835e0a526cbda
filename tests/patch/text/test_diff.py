"""Diffs that we write: against the recordings, and applied again by us and by git."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.patch import codex_grammar as grammar
from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.forms import unified
from toolrest.patch.forms.unified_plan import patched
from toolrest.patch.plan import Record, plan
from toolrest.patch.report.changes import Change, changes
from toolrest.patch.report.turn_diff import TurnDiffTracker
from toolrest.patch.run import carry_out
from toolrest.patch.text.diff import edits, unified_diff

Case: TypeAlias = dict[str, Any]

# Recorded with a hunk header that counts one line too few; the lines themselves are ours.
MISCOUNTED = {"small02", "small38"}


def test_recorded_diffs(diff_case: Case) -> None:
    diff = unified_diff(diff_case["old"], diff_case["new"], 1)
    if diff_case["name"] not in MISCOUNTED:
        assert diff == diff_case["diff"]
        return
    assert diff.splitlines()[1:] == diff_case["diff"].splitlines()[1:]
    (parsed,) = unified.parse(f"--- a/f\n+++ b/f\n{diff}")
    assert patched(diff_case["old"].encode(), parsed.hunks, "f").decode() == diff_case["new"]


letters = st.lists(st.sampled_from("abcd"), max_size=14)


@given(letters, letters)
def test_an_edit_script_is_shortest_and_right(old: list[str], new: list[str]) -> None:
    script = edits(old, new)
    out, at, cost = [], 0, 0
    for edit in script:
        assert edit.start >= at
        out += old[at : edit.start] + new[edit.begin : edit.end]
        at = edit.stop
        cost += edit.stop - edit.start + edit.end - edit.begin
    assert out + old[at:] == new
    assert cost == len(old) + len(new) - 2 * _common(old, new)


def _common(a: list[str], b: list[str]) -> int:
    """The length of the longest common subsequence, by the book."""
    row = [0] * (len(b) + 1)
    for x in a:
        previous = 0
        for j, y in enumerate(b, start=1):
            previous, row[j] = row[j], previous + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def test_large_texts_are_cut_at_unique_lines() -> None:
    old = [f"line {i}\n" for i in range(20_000)]
    new = [line for i, line in enumerate(old) if i % 500]
    new[7000:7000] = ["new\n"] * 3
    diff = unified_diff("".join(old), "".join(new))
    assert diff.count("@@ -") == 41
    (parsed,) = unified.parse(f"--- a/f\n+++ b/f\n{diff}")
    assert patched("".join(old).encode(), parsed.hunks, "f").decode() == "".join(new)


def test_hopelessly_different_texts_take_bounded_time() -> None:
    old, new = ("".join(f"{c}{i * i % 7}\n" for i in range(60_000)) for c in "ab")
    assert_effort(lambda: unified_diff(old, new), below=700)
    diff = unified_diff(old, new)
    (parsed,) = unified.parse(f"--- a/f\n+++ b/f\n{diff}")
    assert patched(old.encode(), parsed.hunks, "f").decode() == new


# Change lists


def test_change_lists() -> None:
    listed = changes(
        [
            Record("/w/b", b"old\n", b"new\n", "/w/c"),
            Record("/w/a", None, b"text\n"),
            Record("/w/d", "é\n".encode("utf-16"), None),
        ]
    )
    assert listed == [
        Change("/w/a", "add", "text\n"),
        Change("/w/b", "update", "@@ -1 +1 @@\n-old\n+new\n", "/w/c"),
        Change("/w/d", "delete", "é\n"),
    ]
    assert [change.to_event() for change in listed] == [
        {"type": "add", "content": "text\n"},
        {"type": "update", "unified_diff": "@@ -1 +1 @@\n-old\n+new\n", "move_path": "/w/c"},
        {"type": "delete", "content": "é\n"},
    ]


# The diff of a turn


class Turn:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.diff = TurnDiffTracker(str(root))

    def patch(self, body: str) -> str:
        with OsFiles() as files:
            text = f"*** Begin Patch\n{body}*** End Patch"
            planned = plan(grammar.parse(text), files, str(self.root))
            self.diff.watch(planned, files)
            assert carry_out(planned, files).exit_code == 0
            return self.diff.text(files)


def test_a_turn_of_several_patches(folder: Path) -> None:
    (folder / "a").write_text("1\n2\n3\n")
    (folder / "gone").write_text("x\n")
    (folder / "old").write_text("x\ny\n")
    (folder / "old").chmod(0o755)
    turn = Turn(folder)
    turn.patch("*** Update File: a\n@@\n-2\n+two\n*** Add File: new\n+n\n")
    turn.patch("*** Update File: a\n@@\n-3\n+three\n*** Delete File: gone\n")
    text = turn.patch("*** Update File: old\n*** Move to: moved\n@@\n-x\n+X\n")
    none = "0" * 40
    assert text == (
        "diff --git a/a b/a\n"
        f"index {blob('1.2.3.')}..{blob('1.two.three.')}\n"
        "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n-3\n+two\n+three\n"
        "diff --git a/gone b/gone\n"
        "deleted file mode 100644\n"
        f"index {blob('x.')}..{none}\n"
        "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/old b/moved\n"
        "rename from old\nrename to moved\n"
        f"index {blob('x.y.')}..{blob('X.y.')}\n"
        "--- a/old\n+++ b/moved\n@@ -1,2 +1,2 @@\n-x\n+X\n y\n"
        "diff --git a/new b/new\n"
        "new file mode 100644\n"
        f"index {none}..{blob('n.')}\n"
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n"
    )


def blob(dotted: str) -> str:
    """Git's name of a content, with a dot for every newline."""
    data = dotted.replace(".", "\n").encode()
    command = ["git", "hash-object", "--stdin"]
    return subprocess.run(command, input=data, check=True, capture_output=True).stdout.decode()[:40]


def test_a_turn_that_takes_everything_back(folder: Path) -> None:
    (folder / "a").write_text("1\n")
    turn = Turn(folder)
    assert turn.patch("*** Update File: a\n@@\n-1\n+2\n*** Add File: b\n+b\n")
    assert turn.patch("*** Update File: a\n@@\n-2\n+1\n*** Delete File: b\n") == ""


def test_a_pure_rename_is_no_difference(folder: Path) -> None:
    (folder / "a").write_text("1\n")
    assert Turn(folder).patch("*** Update File: a\n*** Move to: b\n@@\n 1\n") == ""


def test_binary_files_are_only_named(folder: Path) -> None:
    (folder / "a").write_bytes(b"\xff\xfe\x00")
    text = Turn(folder).patch("*** Add File: a\n+x\n")
    assert text.endswith("Binary files a/a and b/a differ\n")


content = st.lists(st.sampled_from(["a", "b", "", "x\r", "é"]), max_size=8).map("\n".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(
    old=st.dictionaries(st.sampled_from(["f", "d/g", "sp ace", 'q"\té']), content, max_size=4),
    new=st.dictionaries(st.sampled_from(["f", "d/g", "sp ace", "n/ew"]), content, max_size=4),
)
def test_git_applies_the_turn_diff(
    tmp_path_factory: pytest.TempPathFactory, old: dict[str, str], new: dict[str, str]
) -> None:
    live, copy = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("copy")
    for root in (live, copy):
        for name, text in old.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text, newline="")
    body = "".join(
        f"*** Add File: {name}\n" + "".join(f"+{line}\n" for line in text.split("\n"))
        for name, text in new.items()
    )
    body += "".join(
        f"*** Delete File: {name}\n" for name in old if name not in new and "\t" not in name
    )
    if not body:
        return
    diff = Turn(live).patch(body)
    if diff:
        subprocess.run(
            ["git", "apply", "-"], cwd=copy, input=diff.encode(), check=True, capture_output=True
        )
    contents = [
        {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
        for root in (live, copy)
    ]
    assert contents[0] == contents[1]
