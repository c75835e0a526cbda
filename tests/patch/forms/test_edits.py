"""String edits: one target, nothing expanded, the file's own endings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.patch.errors import EditError, PatchError
from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.files.paths import resolve
from toolrest.patch.forms.string_edits import Edit, EditPlan, edited, from_arguments, plan_edits
from toolrest.patch.run import carry_out
from toolrest.patch.text.diagnose import notes

TARGET = resolve("/w", "f")


def edit(path: Path, legacy: str | None = None, **arguments: Any) -> EditPlan:
    request = from_arguments({"file_path": path.name, **arguments})
    with OsFiles() as files:
        planned = plan_edits(request, files, str(path.parent), legacy)
        if planned.plan is not None:
            assert carry_out(planned.plan, files).exit_code == 0
    return planned


def test_one_edit(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a\nb\nc\n")
    path.chmod(0o755)
    planned = edit(path, old_string="b\n", new_string="B\nB\n")
    assert planned.replacements == 1
    assert planned.plan is not None
    assert planned.plan.modified == ["f"]
    assert path.read_text() == "a\nB\nB\nc\n"
    assert path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("new", ["$&", "$$", "$`", "\\1", "\\g<0>", "%s", "{0}", "`id`", "$(id)"])
def test_nothing_is_expanded(tmp_path: Path, new: str) -> None:
    path = tmp_path / "f"
    path.write_text("a b c")
    edit(path, old_string="b", new_string=new)
    assert path.read_text() == f"a {new} c"
    edit(path, edits=[{"oldText": new, "newText": f"{new}{new}"}])
    assert path.read_text() == f"a {new}{new} c"


def test_edits_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    """Failed before: it was tried, and a few edits in a row took all the memory there is."""
    path = tmp_path / "f"
    path.write_text("ab" * 1000)
    doubling = {"old_string": "a", "new_string": "a" * 512, "replace_all": True}
    with pytest.raises(EditError, match=r"^the file would be [\d,]+ characters long at edit 2,"):
        edit(path, edits=[doubling] * 40)
    path.write_text("a" * 1_100_000)
    with pytest.raises(EditError, match="occurs more than 1,000,000 times"):
        edit(path, old_string="a", new_string="", replace_all=True)
    assert path.stat().st_size == 1_100_000


def test_edits_build_on_each_other_and_are_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a b c")
    chain = [{"old_string": "a", "new_string": "x"}, {"old_string": "x b", "new_string": "y"}]
    assert edit(path, edits=chain).replacements == 2
    assert path.read_text() == "y c"
    with pytest.raises(EditError, match=r"^target text not found at edit 2\.$"):
        edit(path, edits=[{"old_string": "y", "new_string": "z"}, *chain])
    assert path.read_text() == "y c"


@pytest.mark.parametrize(
    ("text", "old", "count", "lines"),
    [
        ("x\nx\nx\n", "x", 3, "1, 2, 3"),
        ("aXa\r\nXa", "Xa", 2, "1, 2"),
        ("aaa", "aa", 2, "1, 1"),
        ("x\ny\r\nx\r\ny\n", "x\ny", 2, "1, 3"),
        ("é\n" * 9, "é", 9, "1, 2, 3, 4, 5, …"),
    ],
)
def test_what_is_not_unique_is_refused(
    tmp_path: Path, text: str, old: str, count: int, lines: str
) -> None:
    path = tmp_path / "f"
    path.write_text(text, newline="")
    with pytest.raises(EditError) as caught:
        edit(path, old_string=old, new_string="z")
    assert f"occurs {count} times, at lines {lines}" in caught.value.message
    assert path.read_bytes() == text.encode()


def test_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("aXaXaaa")
    assert edit(path, old_string="a", new_string="", replace_all=True).replacements == 5
    assert path.read_text() == "XX"
    path.write_text("aaaaa")
    assert edit(path, old_string="aa", new_string="b", replace_all=True).replacements == 2
    assert path.read_text() == "bba"


def test_white_space_alone_is_a_target(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a\n\t\nb")
    edit(path, old_string="\n\t\n", new_string="\n")
    assert path.read_text() == "a\nb"


def test_no_change(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a")
    assert edit(path, old_string="a", new_string="a") == EditPlan(None, 1)


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_endings_of_the_file_are_kept(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "f"
    before = f"a{ending}b{ending}c{ending}d"
    path.write_bytes(before.encode())
    edit(path, old_string="b\nc", new_string="B\nB2\nC")
    assert path.read_bytes() == f"a{ending}B{ending}B2{ending}C{ending}d".encode()
    edit(path, old_string="a", new_string="a\na")
    assert path.read_bytes().startswith(f"a{ending}a{ending}B".encode())


def test_mixed_endings(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a\r\nb\nc\nd\r\n")
    edit(path, old_string="b\nc", new_string="B\nC\nC")
    assert path.read_bytes() == b"a\r\nB\nC\nC\nd\r\n"
    edit(path, old_string="a\nB", new_string="a\nB")
    assert path.read_bytes() == b"a\r\nB\nC\nC\nd\r\n"


def test_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes("é\nb\n".encode("utf-16"))
    edit(path, old_string="b", new_string="ü")
    assert path.read_bytes() == "é\nü\n".encode("utf-16")
    path.write_bytes(b"\xe9\nb\n")
    edit(path, "latin-1", old_string="b", new_string="ü")
    assert path.read_bytes() == b"\xe9\n\xfc\n"
    with pytest.raises(PatchError, match="invalid utf-8"):
        edit(path, old_string="b", new_string="ü")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"old_string": "a", "new_string": "b"}, "^file_path is missing"),
        ({"file_path": 7, "old_string": "a", "new_string": "b"}, "^file_path must be a str"),
        ({"file_path": "f"}, "^Provide old_string/new_string"),
        ({"file_path": "f", "edits": []}, "^Provide old_string/new_string"),
        ({"file_path": "f", "edits": "x"}, "^Provide old_string/new_string"),
        ({"file_path": "f", "edits": ["x"]}, r"^edits\[0\] must be an object"),
        ({"file_path": "f", "edits": [{"old_string": "x"}]}, r"^edits\[0\].new_string is missing"),
        ({"file_path": "f", "old_string": "", "new_string": "x"}, "^old_string cannot be empty"),
        ({"file_path": "f", "old_string": 1, "new_string": "x"}, "^old_string must be a str"),
        ({"file_path": "f", "new_string": "x"}, "^old_string is missing"),
        (
            {"file_path": "f", "old_string": "a", "new_string": "b", "edits": [{}]},
            "^Use either edits or old_string/new_string",
        ),
        (
            {"file_path": "f", "old_string": "a", "new_string": "b", "replace_all": "yes"},
            "^replace_all must be a bool",
        ),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(EditError, match=words):
        from_arguments(arguments)


def test_files_that_cannot_be_edited(tmp_path: Path) -> None:
    with pytest.raises(EditError, match=f"^file does not exist: {tmp_path}/no$"):
        edit(tmp_path / "no", old_string="a", new_string="b")
    with pytest.raises(PatchError, match="is not a file"):
        edit(tmp_path, old_string="a", new_string="b")


def test_a_target_that_is_nearly_there_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("def f():\n    return 1\n\ndef g():\n    return 2\n")
    with pytest.raises(EditError) as caught:
        edit(path, old_string="def g():\n    return 3\n", new_string="x")
    said = "\n".join(notes(caught.value))
    assert "lines 4-5" in said
    assert "first difference at line 5: expected '    return 3', found '    return 2'" in said


pieces = st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), max_size=30).map("".join)


@given(
    text=pieces | pieces.map(lambda text: text.replace("\r\n", "\n").replace("\n", "\r")),
    old=st.text("ab\n", min_size=1, max_size=3),
    new=st.text("abc\n", max_size=3),
)
def test_against_plain_replacement(text: str, old: str, new: str) -> None:
    flat = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        after, count = edited(text, [Edit(old, new, replace_all=True)], TARGET)
    except EditError:
        assert old not in flat
        return
    assert count == flat.count(old)
    assert after.replace("\r\n", "\n").replace("\r", "\n") == flat.replace(old, new)
    if "\r" not in text:
        assert after == text.replace(old, new)


def test_hostile_targets_take_bounded_time() -> None:
    def attempts() -> None:
        text = "a" * 1_000_000
        for old in ("a", "a" * 500_000 + "b", "aa"):
            with pytest.raises(EditError):
                edited(text, [Edit(old, "b\n")], TARGET)
        edited("a\r\n" * 200_000, [Edit("a", "b\nc", replace_all=True)], TARGET)

    assert_effort(attempts, below=700)
