"""Unified diffs as patches: what git writes, what models write, and what is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from toolrest.patch.errors import ParseError, PatchError
from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.forms import unified
from toolrest.patch.forms.unified_plan import patched, plan_diff
from toolrest.patch.run import PatchOutcome, carry_out
from toolrest.patch.text.diff import unified_diff

Tree: TypeAlias = dict[str, Any]

word = st.sampled_from(["a", "b", "", " ", "}", "- x", "-- y", "++ z", "@@ -1 +1 @@", "é", "a\r"])
text = st.lists(word, max_size=12).map(lambda w: "\n".join(w)) | st.lists(word, max_size=12).map(
    lambda w: "".join(f"{x}\n" for x in w)
)


def apply(cwd: Path, diff: str) -> PatchOutcome:
    with OsFiles() as files:
        try:
            planned = plan_diff(unified.parse(diff), files, str(cwd))
        except PatchError as error:
            return PatchOutcome(None, error, error.notes)
        return carry_out(planned, files)


def git(cwd: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
        cwd=cwd,
        check=True,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": "/", "GIT_CONFIG_NOSYSTEM": "1"},
    )
    return done.stdout.decode()


# What was written by a machine


@given(old=text, new=text, context=st.integers(0, 4))
@example(old="a\r\na\r", new="a\r\n", context=0)
def test_our_own_diffs_apply(old: str, new: str, context: int) -> None:
    body = unified_diff(old, new, context, universal=False)
    # A diff that shows no CR leaves the endings of new lines to the file.
    if body and ("\r" not in old or "\r" in body):
        (diff,) = unified.parse(f"--- a/f\n+++ b/f\n{body}")
        assert patched(old.encode(), diff.hunks, "f").decode() == new


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(old=text, new=text, context=st.integers(0, 4))
def test_gits_diffs_apply(tmp_path: Path, old: str, new: str, context: int) -> None:
    (tmp_path / "old").write_text(old, newline="")
    (tmp_path / "new").write_text(new, newline="")
    done = subprocess.run(
        ["git", "diff", "--no-index", f"-U{context}", "old", "new"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    if b"@@" in done.stdout and ("\r" not in old or b"\r" in done.stdout):
        (diff,) = unified.parse(done.stdout.decode())
        assert (diff.old, diff.new) == ("old", "new")
        assert patched(old.encode(), diff.hunks, "f").decode() == new


def test_everything_git_can_say(folder: Path, snapshot: Callable[[Path], Tree]) -> None:
    repository = folder / "r"
    repository.mkdir()
    git(repository, "init", "-q")
    names = ["plain.txt", "gone.txt", "old name.txt", "run.sh", 'odd "\t\\é.txt']
    for name in names:
        (repository / name).write_text("".join(f"{name} {i}\n" for i in range(30)))
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "one")
    target = folder / "t"
    git(folder, "clone", "-q", "r", "t")

    (repository / "plain.txt").write_text("".join(f"plain.txt {i}\n" for i in range(3, 33)))
    (repository / "gone.txt").unlink()
    (repository / "dir").mkdir()
    (repository / "old name.txt").rename(repository / "dir/new name.txt")
    (repository / "dir/new name.txt").write_text("".join(f"old name.txt {i}\n" for i in range(29)))
    (repository / "run.sh").chmod(0o755)
    (repository / 'odd "\t\\é.txt').write_text("no newline")
    (repository / "dir/new.sh").write_text("#!/bin/sh\n")
    (repository / "dir/new.sh").chmod(0o755)
    (repository / "dir/new empty").write_text("")
    git(repository, "add", "-A")
    diff = git(repository, "diff", "--cached", "-M")

    outcome = apply(target, diff)
    assert outcome.stderr == ""
    for root in (repository, target):
        subprocess.run(["rm", "-rf", str(root / ".git")], check=True)
    assert snapshot(target) == snapshot(repository)
    assert outcome.stdout.splitlines()[1:] == [
        "A dir/new empty",
        "A dir/new.sh",
        "M dir/new name.txt",
        'M odd "\t\\é.txt',
        "M plain.txt",
        "M run.sh",
        "D gone.txt",
    ]


# What was written by a model

BASE = "".join(f"line {i}\n" for i in range(1, 21))


@pytest.mark.parametrize(
    "header",
    [
        "@@ -9,3 +9,3 @@",
        "@@ -9,3 +9,3 @@ def f():",
        "@@ -1,3 +1,3 @@",
        "@@ -900,3 +900,3 @@",
        "@@ -9,7 +9,9 @@",
        "@@ -9,1 +9 @@",
        "@@ -0,0 +1,3 @@",
        "@@",
        "@@ @@",
        "@@ ... @@",
        "@@ def f():",
        "@@ -99999999999,3 +1,3 @@",
    ],
)
def test_numbers_are_only_a_hint(tmp_path: Path, header: str) -> None:
    (tmp_path / "f").write_text(BASE)
    outcome = apply(tmp_path, f"--- a/f\n+++ b/f\n{header}\n line 9\n-line 10\n+TEN\n line 11\n")
    assert outcome.stdout == "Success. Updated the following files:\nM f\n"
    assert (tmp_path / "f").read_text() == BASE.replace("line 10\n", "TEN\n")


def test_the_nearest_of_several_places_is_taken(tmp_path: Path) -> None:
    lines = ["x\n", "same\n"] * 10
    for number in (2, 9, 14, 20):
        (tmp_path / "f").write_text("".join(lines))
        apply(tmp_path, f"--- a/f\n+++ b/f\n@@ -{number} +{number} @@\n-same\n+new\n")
        wanted = lines.copy()
        wanted[number // 2 * 2 - 1] = "new\n"
        assert (tmp_path / "f").read_text().count("new") == 1
        if number % 2 == 0:
            assert (tmp_path / "f").read_text() == "".join(wanted)


def test_later_hunks_follow_the_shift_of_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("new\n" * 5 + "x\n" * 30)
    # Made against a file without the five new lines.
    diff = "--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@\n x\n+y\n x\n@@ -11,2 +12,3 @@\n x\n+z\n x\n"
    assert apply(tmp_path, diff).exit_code == 0
    lines = (tmp_path / "f").read_text().split()
    assert (lines.index("y"), lines.index("z")) == (6, 17)


def test_lines_that_look_like_headers(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("-- a\n++ b\nx\n")
    diff = "--- f\n+++ f\n@@ -1,3 +1,2 @@\n--- a\n-++ b\n+++ c\n x\n"
    assert apply(tmp_path, diff).exit_code == 0
    assert (tmp_path / "f").read_text() == "++ c\nx\n"


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_the_files_endings_are_kept(tmp_path: Path, ending: str) -> None:
    (tmp_path / "f").write_bytes(f"a{ending}b{ending}c".encode())
    diff = "--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B2\n c\n"
    for sent in (diff, diff.replace("\n", "\r\n")):
        (tmp_path / "f").write_bytes(f"a{ending}b{ending}c".encode())
        assert apply(tmp_path, sent).exit_code == 0
        wanted = f"a{ending}B{ending}B2{ending}c"
        assert (tmp_path / "f").read_bytes() == wanted.encode()


def test_a_diff_that_changes_endings(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\nb\n")
    assert apply(tmp_path, "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+a\r\n b\n").exit_code == 0
    assert (tmp_path / "f").read_bytes() == b"a\r\nb\n"


@pytest.mark.parametrize(
    ("before", "hunk", "after"),
    [
        ("a\nb", "-b\n\\ No newline at end of file\n+b\n", "a\nb\n"),
        ("a\nb\n", "-b\n+b\n\\ No newline at end of file\n", "a\nb"),
        ("a\nb", "-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n", "a\nc"),
        ("a\nb", "-a\n+A\n b\n\\ No newline at end of file\n", "A\nb"),
        ("a\nb", " b\n+c\n", "a\nb\nc\n"),
        ("a\nb", "-a\n+A\n", "A\nb"),
        ("a", "-a\n", ""),
        ("", "+a\n", "a\n"),
        ("", "+a\n\\ No newline at end of file\n", "a"),
    ],
)
def test_the_end_of_the_file(tmp_path: Path, before: str, hunk: str, after: str) -> None:
    (tmp_path / "f").write_text(before)
    old = sum(line[:1] in " -" for line in hunk.splitlines())
    new = sum(line[:1] in " +" for line in hunk.splitlines())
    start = 1 if old else 0
    outcome = apply(tmp_path, f"--- a/f\n+++ b/f\n@@ -{start},{old} +1,{new} @@\n{hunk}")
    assert outcome.stderr == ""
    assert (tmp_path / "f").read_text() == after


def test_names_of_plain_diffs(tmp_path: Path) -> None:
    hunk = "@@ -1 +1 @@\n-x\n+y\n"
    for old, new, real in [
        ("f.orig\t2024-01-01 10:00:00", "f\t2024-01-02 10:00:00", "f"),
        ("f", "f.new", "f"),
        ("a/f", "b/f", "f"),
        ("sub/f", "sub/f", "sub/f"),
        ("./f", "./f", "f"),
        ("i/f", "w/f", "f"),
        (str(tmp_path / "f"), str(tmp_path / "f"), "f"),
    ]:
        (tmp_path / "sub").mkdir(exist_ok=True)
        (tmp_path / real).write_text("x\n")
        outcome = apply(tmp_path, f"--- {old}\n+++ {new}\n{hunk}")
        assert outcome.stderr == ""
        assert (tmp_path / real).read_text() == "y\n"
        (tmp_path / real).unlink()


def test_several_files_all_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\n")
    (tmp_path / "g").write_text("x\n")
    one = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n"
    bad = "--- a/g\n+++ b/g\n@@ -1 +1 @@\n-nope\n+y\n"
    outcome = apply(tmp_path, one + bad)
    assert outcome.stderr == f"Failed to find expected lines in {tmp_path}/g:\nnope\n"
    assert (tmp_path / "f").read_text() == "x\n"


# What is refused


@pytest.mark.parametrize(
    ("diff", "stderr"),
    [
        ("--- a/no\n+++ b/no\n@@ -1 +1 @@\n-x\n+y\n", "File not found: $/no"),
        ("--- a/no\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "File not found: $/no"),
        (
            "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+y\n",
            "File already exists: $/f",
        ),
        (
            "diff --git a/f b/g\nrename from f\nrename to g\n",
            "File already exists: $/g",
        ),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "Failed to delete file $/f"),
        ("--- a/d\n+++ b/d\n@@ -1 +1 @@\n-x\n+y\n", "Failed to read file to update $/d: path"),
        ("--- a/bin\n+++ b/bin\n@@ -1 +1 @@\n-x\n+y\n", "Failed to read file to update $/bin: inv"),
        ("--- a/f\n+++ b/f\n@@ -9,0 +9 @@\n+y\n", "Failed to find the place of hunk 1 in $/f"),
        ("--- a/f\n+++ b/f\n@@\n+y\n", "Failed to find the place of hunk 1 in $/f"),
        ("--- a/x\0\n+++ b/x\0\n@@ -1 +1 @@\n-x\n+y\n", "'x\0' is invalid on 'linux'"),
    ],
)
def test_what_cannot_be_applied(tmp_path: Path, diff: str, stderr: str) -> None:
    (tmp_path / "f").write_text("x\nmore\n")
    (tmp_path / "g").write_text("g\n")
    (tmp_path / "d").mkdir()
    (tmp_path / "bin").write_bytes(b"\xff\n")
    outcome = apply(tmp_path, diff)
    assert outcome.exit_code == 1
    assert outcome.stderr.startswith(stderr.replace("$", str(tmp_path)))
    assert (tmp_path / "f").read_text() == "x\nmore\n"


@pytest.mark.parametrize(
    ("diff", "line", "words"),
    [
        ("", None, "names no file"),
        ("--- a/f\n+++ b/f\n", 1, "no hunks"),
        ("@@ -1 +1 @@\n-x\n+y\n", 1, "before any file name"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-x\n", 1, "both"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\nno mark\n", 3, "without lines"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n```\n", 6, "unexpected line"),
        ("diff --git a/f b/f\nGIT binary patch\nliteral 0\n", 2, "binary"),
        ("diff --git a/f b/f\nindex 1..2\nBinary files a/f and b/f differ\n", 3, "binary"),
        ("diff --git a/l b/l\nnew file mode 120000\n", 2, "120000"),
        ("diff --git a/s b/s\ndeleted file mode 160000\n", 2, "160000"),
        ("--- a/\ud800\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n", None, "surrogate"),
    ],
)
def test_what_is_no_diff(diff: str, line: int | None, words: str) -> None:
    with pytest.raises(ParseError, match=words) as caught:
        unified.parse(diff)
    assert caught.value.line == line


PIECES = r"""diff --git a/f b/f
--- a/f
+++ b/f
--- /dev/null
+++ /dev/null
--- "a/\303\244\"
+++ "b/x\
@@ -1,2 +1,2 @@
@@
 x
-x
+y

\ No newline at end of file
rename from f
rename to g
copy from f
copy to h
old mode 100644
new mode 100755
new file mode 100755
deleted file mode 100644
index 1..2
-- """
pieces = st.sampled_from([*PIECES.split("\n"), "\r"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pieces | st.text(max_size=6), max_size=12))
def test_only_its_own_errors(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "f").write_text("x\nx\n")
    for extra in ("g", "h"):
        (tmp_path / extra).unlink(missing_ok=True)
    with OsFiles() as files:
        try:
            plan_diff(unified.parse("\n".join(lines)), files, str(tmp_path))
        except PatchError as error:
            assert error.message  # noqa: PT017


TWO = "def a():\n    x = 1\n    return x\n\n\ndef b():\n    x = 1\n    return x\n"
BODY = "     x = 1\n-    return x\n+    return -x\n"


@pytest.mark.parametrize(
    "head", ["@@ def b():", "@@ def b", "@@ @@ def b():", "@@ -?,? +?,? @@ def b():"]
)
def test_the_heading_says_which_of_several_places(tmp_path: Path, head: str) -> None:
    """Failed before: the first of them was changed, and nothing said so."""
    (tmp_path / "f").write_text(TWO)
    assert apply(tmp_path, f"--- a/f\n+++ b/f\n{head}\n{BODY}").exit_code == 0
    assert (tmp_path / "f").read_text() == TWO[:-9] + "return -x\n"


@pytest.mark.parametrize("head", ["@@", "@@ ... @@", "@@ @@", "@@ def c():", "@@ def"])
def test_several_places_and_nothing_that_says_which(tmp_path: Path, head: str) -> None:
    (tmp_path / "f").write_text(TWO)
    outcome = apply(tmp_path, f"--- a/f\n+++ b/f\n{head}\n{BODY}")
    assert outcome.exit_code == 1
    assert "its lines occur 2 times, at lines 2, 7" in outcome.notes[0]
    assert (tmp_path / "f").read_text() == TWO


def test_without_numbers_the_only_place_is_right(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(TWO.replace("x = 1", "y = 2", 1))
    assert apply(tmp_path, f"--- a/f\n+++ b/f\n@@\n{BODY}").exit_code == 0
