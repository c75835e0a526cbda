"""`edit_file` and `write_file`: Memo Code's names on the patch engine, through the whole gate."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrest import ApprovalRequest, Toolrest
from toolrest.errors import ConfigError
from toolrest.events import Event, PatchApplyBegin, PatchApplyEnd, ToolCallDecision, TurnDiff
from toolrest.items import ToolOutput

Call = Callable[..., Awaitable[ToolOutput]]

SPELLINGS: tuple[dict[str, Any], ...] = (
    {"path": "a.txt", "edits": [{"oldText": "two", "newText": "2"}]},
    {"file_path": "a.txt", "edits": [{"old_string": "two", "new_string": "2"}]},
    {"file_path": "a.txt", "old_string": "two", "new_string": "2"},
    {"path": "a.txt", "oldText": "two", "newText": "2"},
)


@pytest.mark.parametrize("arguments", SPELLINGS)
async def test_an_edit_comes_back_as_a_diff(
    work: Path, call: Call, arguments: dict[str, Any]
) -> None:
    (work / "a.txt").write_text("one\ntwo\nthree\n")
    output = await call("edit_file", **arguments)
    assert output.text == (
        f"```diff\n--- {work}/a.txt\n+++ {work}/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n```"
    )
    assert (work / "a.txt").read_text() == "one\n2\nthree\n"
    # The same fields make apply_patch the same edit.
    (work / "a.txt").write_text("one\ntwo\nthree\n")
    output = await call("apply_patch", **arguments)
    assert output.text.endswith("Success. Updated the following files:\nM a.txt\n")
    assert (work / "a.txt").read_text() == "one\n2\nthree\n"


@pytest.mark.parametrize("name", ["edit_file", "apply_patch"])
async def test_a_dry_run_writes_nothing_and_asks_nobody(work: Path, name: str) -> None:
    (work / "a.txt").write_text("one\ntwo\n")
    seen: list[Event] = []
    async with Toolrest(work, sandbox_mode="read-only", approval_policy="never") as rest:
        rest.subscribe(seen.append)
        output = await rest.call(name, {**SPELLINGS[0], "dryRun": True})
        assert "-two\n+2\n" in output.text
        real = await rest.call(name, SPELLINGS[0])
        assert real.failure is not None
    assert (work / "a.txt").read_text() == "one\ntwo\n"
    assert not [event for event in seen if isinstance(event, PatchApplyBegin)]


async def test_nothing_in_the_new_text_is_expanded(work: Path, call: Call) -> None:
    (work / "a.txt").write_text("x = OLD\n")
    strange = r"$& $$ $` \1 \g<0> {0} %s"
    await call("edit_file", path="a.txt", edits=[{"oldText": "OLD", "newText": strange}])
    assert (work / "a.txt").read_text() == f"x = {strange}\n"


async def test_mode_and_line_endings_stay(work: Path, call: Call) -> None:
    path = work / "run.sh"
    path.write_bytes(b"#!/bin/sh\r\necho one\r\necho two\r\n")
    path.chmod(0o755)
    edit = {"oldText": "echo one\necho two", "newText": "echo 1\necho 2"}
    await call("edit_file", path="run.sh", edits=[edit])
    assert path.read_bytes() == b"#!/bin/sh\r\necho 1\r\necho 2\r\n"
    assert path.stat().st_mode & 0o777 == 0o755
    await call("write_file", path="run.sh", content="#!/bin/sh\n")
    assert path.read_bytes() == b"#!/bin/sh\n"
    assert path.stat().st_mode & 0o777 == 0o755


async def test_a_fence_in_the_text_does_not_end_the_diff(work: Path, call: Call) -> None:
    (work / "a.md").write_text("```\nold\n```\n")
    output = await call("edit_file", path="a.md", edits=[{"oldText": "old", "newText": "````"}])
    assert output.text.startswith("`````diff\n")
    assert output.text.endswith("\n`````")


async def test_refused_edits_change_nothing(work: Path, call: Call) -> None:
    text = "one\ntwo\ntwo\n"
    (work / "a.txt").write_text(text)
    good = {"oldText": "one", "newText": "1"}
    rows: list[tuple[Any, str]] = [
        ([good, {"oldText": "two", "newText": "2"}], "old_string is not unique at edit 2: it"),
        ([good, {"oldText": "nine", "newText": "9"}], "target text not found at edit 2."),
        ([{"oldText": "", "newText": "9"}], "edits[0].old_string cannot be empty"),
        ([{"oldText": "one"}], "edits[0].new_string is missing"),
        ([], "Provide old_string/new_string"),
        ("two", "Provide old_string/new_string"),
        ([1], "edits[0] must be an object"),
    ]  # fmt: skip
    for edits, words in rows:
        output = await call("edit_file", path="a.txt", edits=edits)
        assert output.text.startswith(f"edit_file failed: {words}"), edits
        assert output.failure is not None
        assert output.failure.kind == "input_invalid"
        assert (work / "a.txt").read_text() == text
    gone = await call("edit_file", path="gone", edits=[good])
    assert gone.text == f"edit_file failed: file does not exist: {work}/gone"


async def test_edits_without_effect(work: Path, call: Call) -> None:
    (work / "a.txt").write_text("one\n")
    same = await call("edit_file", path="a.txt", edits=[{"oldText": "one", "newText": "one"}])
    assert same.text == "No changes made."
    assert (await call("write_file", path="a.txt", content="one\n")).text == "No changes made."


async def test_write_makes_and_replaces(work: Path, call: Call) -> None:
    made = await call("write_file", path="deep/er/a.txt", content="näw\n")
    assert made.text == f"Created {work}/deep/er/a.txt (5 bytes)"
    assert (work / "deep/er/a.txt").read_text() == "näw\n"
    replaced = await call("write_file", file_path="deep/er/a.txt", content="other")
    assert replaced.text == f"Replaced {work}/deep/er/a.txt (5 bytes)"
    assert (work / "deep/er/a.txt").read_text() == "other"
    folder = await call("write_file", path="deep", content="x")
    assert folder.failure is not None
    assert "is not a file" in folder.text


async def test_marks_and_encodings_stay(work: Path, call: Call) -> None:
    (work / "marked").write_bytes("\ufeffold\n".encode())
    (work / "wide").write_bytes("old ü\n".encode("utf-16"))
    (work / "binary").write_bytes(b"\xff\x00\x80")
    for name in ("marked", "wide", "binary"):
        assert (await call("write_file", path=name, content="new ü\n")).success
    assert (work / "marked").read_bytes() == "\ufeffnew ü\n".encode()
    assert (work / "wide").read_bytes() == "new ü\n".encode("utf-16")
    assert (work / "binary").read_bytes() == "new ü\n".encode()


async def test_legacy_encodings_are_named_not_guessed(work: Path) -> None:
    before = "größe = 1\nname = 'é'\n".encode("cp1252")
    edit = {"path": "old.py", "edits": [{"oldText": "größe = 1", "newText": "größe = 2"}]}
    patch = "*** Begin Patch\n*** Update File: old.py\n-größe = 1\n+größe = 2\n*** End Patch"
    for name, arguments in (("edit_file", edit), ("apply_patch", {"input": patch})):
        (work / "old.py").write_bytes(before)
        async with Toolrest(work) as rest:
            output = await rest.call(name, arguments)
            assert "invalid utf-8 sequence" in output.text
            assert (work / "old.py").read_bytes() == before
        seen: list[Event] = []
        async with Toolrest(work, settings={"legacy_encoding": "windows-1252"}) as rest:
            rest.subscribe(seen.append)
            assert rest.settings.legacy_encoding == "cp1252"
            assert (await rest.call(name, arguments)).success
            assert (work / "old.py").read_bytes() == before.replace(b"1", b"2", 1)
            assert "größe = 2" in json.dumps(
                [e.changes for e in seen if isinstance(e, PatchApplyBegin)], ensure_ascii=False
            )
            shown = await rest.call("read_file", {"file_path": "old.py"})
            assert shown.text == "L1: größe = 2\nL2: name = 'é'"
            found = {"pattern": "name", "output_mode": "content"}
            assert "2:name = 'é'" in (await rest.call("grep_files", found)).text
            snowman = {"path": "old.py", "edits": [{"oldText": "= 2", "newText": "= ☃"}]}
            output = await rest.call("edit_file", snowman)
            assert "U+2603 cannot be written in cp1252" in output.text
    for bad in ("klingon", "base64", "hex", 7):
        with pytest.raises(ConfigError, match="legacy_encoding"):
            Toolrest(work, settings={"legacy_encoding": bad})


@settings(max_examples=40)
@given(st.binary(max_size=60), st.text(max_size=40))
def test_writing_whole_files_gives_the_text_back(before: bytes, text: str) -> None:
    from toolrest.patch.forms.whole_file import _like
    from toolrest.patch.text.encoding import decode

    after = _like(before, text, "f", None)
    assert decode(after).text.removeprefix("\ufeff") == text.removeprefix("\ufeff")


# The gate


async def run(
    work: Path, name: str, arguments: dict[str, Any], **options: Any
) -> tuple[ToolOutput, list[Event], list[ApprovalRequest]]:
    seen: list[Event] = []
    asked: list[ApprovalRequest] = []

    def decline(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    async with Toolrest(work, on_ask=decline, **options) as rest:
        rest.subscribe(seen.append)
        return await rest.call(name, arguments), seen, asked


CALLS: dict[str, dict[str, Any]] = {
    "edit_file": {"path": "a.txt", "edits": [{"oldText": "a", "newText": "b"}]},
    "write_file": {"path": "a.txt", "content": "b\n"},
    "apply_patch": {"input": "*** Begin Patch\n*** Update File: a.txt\n-a\n+b\n*** End Patch"},
}


@pytest.mark.parametrize("sandbox", ["read-only", "workspace-write", "danger-full-access"])
@pytest.mark.parametrize("approval", ["untrusted", "on-failure", "on-request", "never", "strict"])
async def test_decided_like_apply_patch(work: Path, sandbox: str, approval: str) -> None:
    told = set()
    for name, arguments in CALLS.items():
        (work / "a.txt").write_text("a\n")
        output, seen, asked = await run(
            work, name, arguments, sandbox_mode=sandbox, approval_policy=approval
        )
        decisions = [e for e in seen if isinstance(e, ToolCallDecision)]
        told.add(
            (
                len(asked),
                tuple((e.verdict, e.rule, e.risk, tuple(e.keys)) for e in decisions),
                output.failure and output.failure.kind,
                (work / "a.txt").read_text(),
            )
        )
    assert len(told) == 1


@pytest.mark.parametrize("name", ["edit_file", "write_file"])
async def test_events_and_the_turn_diff(work: Path, name: str) -> None:
    (work / "a.txt").write_text("a\n")
    _, seen, _ = await run(work, name, CALLS[name])
    (begin,) = [e for e in seen if isinstance(e, PatchApplyBegin)]
    (end,) = [e for e in seen if isinstance(e, PatchApplyEnd)]
    (diff,) = [e for e in seen if isinstance(e, TurnDiff)]
    assert begin.changes[f"{work}/a.txt"]["type"] == "update"
    assert end.success
    assert "diff --git a/a.txt b/a.txt" in diff.unified_diff


async def test_the_approver_sees_the_diff(work: Path) -> None:
    (work / "a.txt").write_text("a\n")
    seen = set()
    for name, arguments in CALLS.items():
        _, _, (asked,) = await run(work, name, arguments, approval_policy="untrusted")
        assert list(asked.changes) == [f"{work}/a.txt"]
        seen.add(asked.diff)
    assert seen == {f"update {work}/a.txt\n@@ -1 +1 @@\n-a\n+b\n"}


async def test_a_no_is_told(work: Path) -> None:
    (work / "a.txt").write_text("a\n")
    for name, words in (("edit_file", "edit rejected"), ("write_file", "write rejected")):
        output, _, asked = await run(work, name, CALLS[name], approval_policy="untrusted")
        assert len(asked) == 1
        assert output.text == f"{words} by user"


@pytest.mark.parametrize("name", ["edit_file", "write_file"])
async def test_links_out_and_hidden_files_are_left_alone(
    work: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("a\n")
    (work / "link.txt").symlink_to(outside)
    (work / ".env").write_text("a\n")
    for path in ("link.txt", ".env", ".git/hooks/pre-commit", ".toolrest/config.toml"):
        output, _, _ = await run(work, name, {**CALLS[name], "path": path})
        assert output.failure is not None
    assert outside.read_text() == "a\n"
    assert (work / ".env").read_text() == "a\n"
    assert not (work / ".git").exists()


async def test_the_size_limit_counts(work: Path) -> None:
    limits = {"tool_security.max_file_access_size": 100}
    (work / "big").write_text("a" * 200)
    async with Toolrest(work, settings=limits) as rest:
        output = await rest.call("write_file", {"path": "new", "content": "x" * 101})
        assert "tool_security.max_file_access_size is 100" in output.text
        for name in CALLS:
            arguments = json.loads(json.dumps(CALLS[name]).replace("a.txt", "big"))
            assert (await rest.call(name, arguments)).failure is not None
    assert sorted(os.listdir(work)) == ["big"]


def test_who_is_offered_what(work: Path) -> None:
    def names(**options: Any) -> set[str]:
        offered = {tool.name for tool in Toolrest(work, tools=["all"], **options).tools}
        return offered & {"apply_patch", "edit_file", "write_file"}

    assert names() == {"apply_patch"}
    assert names(model="claude-sonnet") == {"apply_patch", "write_file"}
    enabled = {"tools.enabled": ["edit_file", "write_file"]}
    assert names(settings=enabled) == {"edit_file", "write_file"}
    disabled = Toolrest(work, settings={"tools.disabled": ["edit_*"]})
    with pytest.raises(KeyError):
        disabled.supports_parallel("edit_file")
