"""One handler for every form, told apart by how it begins or what it is called."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import lark
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.patch.codex_grammar import GRAMMAR, parse
from toolrest.patch.errors import ParseError, PatchError
from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.request import FORMS, read
from toolrest.patch.run import carry_out

CODEX = "*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n*** End Patch"
PLAIN = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
GIT = f"diff --git a/f b/f\n{PLAIN}"
EDIT = {"file_path": "f", "old_string": "a", "new_string": "b"}


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (CODEX, "codex"),
        (f"\n  {CODEX}\n", "codex"),
        (f"<<'EOF'\n{CODEX}\nEOF", "codex"),
        (PLAIN, "unified"),
        (GIT, "unified"),
        (f"\n{GIT}", "unified"),
        ({"input": CODEX}, "codex"),
        ({"patch": CODEX, "confirm": True}, "codex"),
        ({"input": GIT}, "unified"),
        ({"patch": PLAIN}, "unified"),
        (EDIT, "edit"),
        ({"path": "f", "edits": [{"oldText": "a", "newText": "b"}]}, "edit"),
    ],
)
def test_every_form_does_the_same(tmp_path: Path, value: Any, form: str) -> None:
    (tmp_path / "f").write_text("a\n")
    request = read(value)
    assert request.form == form
    assert request.paths(str(tmp_path)) == [str(tmp_path / "f")]
    with OsFiles() as files:
        checked = request.check(files, str(tmp_path))
        (record,) = checked.records
        assert (record.before, record.after) == (b"a\n", b"b\n")
        planned = checked.plan
        assert planned is not None
        assert planned.holds(files)
        outcome = carry_out(planned, files)
    assert outcome.stdout == "Success. Updated the following files:\nM f\n"
    assert (tmp_path / "f").read_text() == "b\n"


@pytest.mark.parametrize(
    "value", ["", "hello", "```\ncode\n```", {}, {"input": 5}, {"other": "x"}, {"input": "hello"}]
)
def test_what_fits_no_form_is_told_all_of_them(value: Any) -> None:
    with pytest.raises(PatchError) as caught:
        read(value)
    assert caught.value.notes == list(FORMS)
    said = " ".join(caught.value.notes)
    for mark in ("*** Begin Patch", "diff --git ", "--- ", "old_string", "edits"):
        assert mark in said


def test_a_text_is_refused_in_the_documented_words() -> None:
    with pytest.raises(ParseError) as caught:
        read("hello")
    first = "The first line of the patch must be '*** Begin Patch'"
    assert caught.value.verdict == f"invalid patch: {first}"


def test_a_broken_patch_is_not_told_about_other_forms() -> None:
    with pytest.raises(ParseError) as caught:
        read("*** Begin Patch\noops\n*** End Patch")
    assert caught.value.notes == []


def test_contradictions_are_refused() -> None:
    for value in ({"input": CODEX, **EDIT}, {"input": CODEX, "patch": GIT}):
        with pytest.raises(PatchError):
            read(value)
    assert read({"input": CODEX, "patch": CODEX}).form == "codex"


def test_every_path_of_a_patch() -> None:
    moved = "*** Update File: a\n*** Move to: b\n@@\n-x\n+y\n"
    text = f"*** Begin Patch\n{moved}*** Delete File: ../c\n*** Add File: b\n+x\n*** End Patch"
    assert read(text).paths("/w") == ["/w/a", "/w/b", "/c"]
    rename = "diff --git a/old b/new\nrename from old\nrename to new\n"
    assert read(rename).paths("/w") == ["/w/old", "/w/new"]


# The grammar that a model's server enforces

name = st.text("ab /.", min_size=1, max_size=5).map(str.strip).filter(bool)
rest = st.text("ab +-@*", max_size=4)
added = st.lists(rest.map("+{}\n".format), min_size=1, max_size=3).map("".join)
add = st.builds("*** Add File: {}\n{}".format, name, added)
delete = name.map("*** Delete File: {}\n".format)
lines = st.lists(
    st.builds("{}{}\n".format, st.sampled_from(" +-"), rest), min_size=1, max_size=4
).map("".join)
chunk = st.builds("{}{}".format, st.sampled_from(["@@\n", "@@ x\n", "@@ f() {\n"]), lines)
update = st.builds(
    "*** Update File: {}\n{}{}{}".format,
    name,
    st.just("") | name.map("*** Move to: {}\n".format),
    st.lists(chunk, min_size=1, max_size=3).map("".join),
    st.sampled_from(["", "*** End of File\n"]),
)
patches = st.builds(
    "*** Begin Patch\n{}*** End Patch{}".format,
    st.lists(add | delete | update, min_size=1, max_size=4).map("".join),
    st.sampled_from(["", "\n"]),
)


@pytest.mark.slow
@pytest.mark.parametrize("parser", ["lalr", "earley"])
@given(text=patches)
def test_what_the_grammar_lets_through_can_be_parsed(parser: Any, text: str) -> None:
    parser_of(parser).parse(text)
    parse(text)


@cache
def parser_of(kind: Any) -> lark.Lark:
    return lark.Lark(GRAMMAR, parser=kind)


@pytest.mark.parametrize(
    ("body", "accepted"),
    [
        ("", False),
        ("*** Add File: a\n", False),
        ("*** Add File: a\n+\n", True),
        ("*** Add File: \n+x\n", False),
        ("*** Update File: a\n", True),
        ("*** Update File: a\n*** Move to: b\n", True),
        ("*** Update File: a\n@@\n@@ x\n", True),
        ("*** Update File: a\n*** End of File\n", False),
        ("*** Update File: a\n-x\n*** End of File\n+y\n", False),
        ("*** Update File: a\nx\n", False),
        ("*** Update File: a\n@@x\n", False),
        ("*** Update File: a\n+x\r\n", True),
        ("*** Delete File: a\n\n", False),
        ("*** Rename File: a\n", False),
        ("oops\n", False),
    ],
)
def test_the_language_of_the_grammar(body: str, accepted: bool) -> None:
    text = f"*** Begin Patch\n{body}*** End Patch\n"
    try:
        parser_of("lalr").parse(text)
    except lark.exceptions.LarkError:
        assert not accepted
    else:
        assert accepted
