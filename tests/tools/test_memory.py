"""`get_memory` and `save_memory`: kept between sessions, shown when written, bounded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest import ApprovalRequest, Toolrest
from toolrest.events import Event, MemorySaved
from toolrest.items import ToolOutput
from toolrest.tools.memory import MOST_FILE_BYTES, entries, matching


async def call(work: Path, name: str, arguments: dict[str, Any], **options: Any) -> ToolOutput:
    async with Toolrest(work, home=os.environ["TOOLREST_HOME"], **options) as rest:
        return await rest.call(name, arguments)


async def save(work: Path, text: str, **options: Any) -> ToolOutput:
    return await call(work, "save_memory", {"text": text}, **options)


async def recall(work: Path, **arguments: Any) -> Any:
    return json.loads((await call(work, "get_memory", arguments)).text)


def files(home: Path) -> list[Path]:
    return sorted((home / "memory").rglob("*.md"))


async def test_a_note_is_there_in_the_next_session(work: Path, toolrest_home: Path) -> None:
    assert await recall(work) == {"memories": []}
    assert (await save(work, "tests run with make check")).text == "Saved to the project memory."
    assert (await save(work, "second\nwith two lines")).success
    (memory,) = (await recall(work))["memories"]
    assert memory["memory_id"] == "project"
    lines = memory["memory_summary"].split("\n")
    assert lines[0].endswith(") tests run with make check")
    assert lines[1].endswith(") second")
    assert lines[2] == "  with two lines"
    assert await recall(work, memory_id="project") == memory
    (file,) = files(toolrest_home)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


async def test_projects_do_not_share(work: Path) -> None:
    (work / "a" / "x").mkdir(parents=True)
    (work / "b" / "x").mkdir(parents=True)
    await save(work / "a" / "x", "mine")
    assert await recall(work / "b" / "x") == {"memories": []}
    assert len((await recall(work / "a" / "x"))["memories"]) == 1


async def test_a_query_picks_entries(work: Path) -> None:
    for text in ("Deploys go through staging", "the linter is ruff", "Staging is at port 8080"):
        await save(work, text)
    found = (await recall(work, query="STAGING"))["memories"][0]["memory_summary"]
    assert "Deploys" in found
    assert "port 8080" in found
    assert "ruff" not in found
    assert (await recall(work, query="staging 8080", memory_id="project"))[
        "memory_summary"
    ].endswith("Staging is at port 8080")


async def test_an_unknown_or_empty_memory(work: Path) -> None:
    for name in ("nope", "global", "project"):
        output = await call(work, "get_memory", {"memory_id": name})
        assert output.text == f"memory not found for memory_id={name}"
        assert output.failure is not None


async def test_the_user_is_shown_what_is_written(work: Path) -> None:
    seen: list[Event] = []
    async with Toolrest(work, home=os.environ["TOOLREST_HOME"]) as rest:
        rest.subscribe(seen.append)
        await rest.call("save_memory", {"text": "a note"})
        again = await rest.call("save_memory", {"text": "a note", "more": 1})
    (event,) = [event for event in seen if isinstance(event, MemorySaved)]
    assert (event.scope, event.text) == ("project", "a note")
    assert again.text == "Already in the project memory."


async def test_notes_for_all_projects_are_asked_about(work: Path, toolrest_home: Path) -> None:
    asked: list[ApprovalRequest] = []
    note = {"text": "always use tabs", "scope": "global"}

    def answer(request: ApprovalRequest) -> bool:
        asked.append(request)
        return len(asked) > 1

    async with Toolrest(work, on_ask=answer, home=toolrest_home) as rest:
        assert (await rest.call("save_memory", note)).failure is not None
        assert not files(toolrest_home)
        assert (await rest.call("save_memory", note)).success
    assert "always use tabs" in asked[0].reason
    assert [file.name for file in files(toolrest_home)] == ["global.md"]
    assert (await recall(work, memory_id="global"))["memory_summary"].endswith("always use tabs")
    denied = await call(work, "save_memory", {**note, "text": "x"}, approval_policy="never")
    assert denied.failure is not None
    assert denied.failure.kind == "policy_denied"


async def test_strict_modes_ask_for_project_notes_too(work: Path, toolrest_home: Path) -> None:
    for mode in ("strict", "untrusted", "auto"):
        assert (await save(work, "x", approval_policy=mode)).failure is not None
    assert not files(toolrest_home)


async def test_limits_and_odd_texts(work: Path, toolrest_home: Path) -> None:
    for text, words in ((" \n ", "text must not be empty"), ("x" * 5000, "a note has at most")):
        output = await save(work, text)
        assert output.failure is not None
        assert output.text.startswith(words)
    await save(work, "bell \x07 and \x1b[31m red \u2028 end")
    (file,) = files(toolrest_home)
    text = file.read_text()
    assert not any(character in text for character in "\x07\x1b\u2028")
    file.write_text("x" * (MOST_FILE_BYTES - 5))
    output = await save(work, "one more")
    assert "the memory is full" in output.text
    assert str(file) in output.text
    assert file.stat().st_size == MOST_FILE_BYTES - 5


async def test_a_hand_edited_file_is_fine(work: Path, toolrest_home: Path) -> None:
    await save(work, "first")
    (file,) = files(toolrest_home)
    file.write_text("# Mine\n\nA paragraph\nof two lines.\n\n* star item without an end")
    await save(work, "second")
    assert file.read_text().split("\n")[-2].endswith(") second")
    found = (await recall(work, query="paragraph"))["memories"][0]["memory_summary"]
    assert found == "A paragraph\nof two lines."


async def test_a_planted_link_is_not_followed(
    work: Path, toolrest_home: Path, tmp_path: Path
) -> None:
    await save(work, "first")
    (file,) = files(toolrest_home)
    file.unlink()
    (tmp_path / "victim").write_text("untouched")
    file.symlink_to(tmp_path / "victim")
    assert (await save(work, "second")).failure is not None
    assert (tmp_path / "victim").read_text() == "untouched"
    assert await recall(work) == {"memories": []}


async def test_secrets_are_not_written(
    work: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2-hunter2-hunter2")
    await save(work, "the key is hunter2-hunter2-hunter2")
    assert "hunter2" not in files(toolrest_home)[0].read_text()


async def test_other_tools_cannot_reach_it(work: Path, toolrest_home: Path) -> None:
    await save(work, "private")
    (file,) = files(toolrest_home)
    async with Toolrest(work, home=toolrest_home) as rest:
        for name, arguments in (
            ("read_file", {"file_path": str(file)}),
            ("grep_files", {"pattern": "private", "path": str(file)}),
            ("write_file", {"path": str(file), "content": "x"}),
        ):
            assert (await rest.call(name, arguments)).failure is not None


SWITCHES = ("setting", "TOOLREST_ENABLE_MEMORY_TOOL", "MEMO_ENABLE_MEMORY_TOOL")


@pytest.mark.parametrize("how", SWITCHES)
def test_switched_off(work: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how != "setting":
        monkeypatch.setenv(how, "0")
    rest = Toolrest(work, settings={"tools.include_memory_tool": False} if how == "setting" else {})
    assert not {tool.name for tool in rest.tools} & {"get_memory", "save_memory"}
    with pytest.raises(KeyError):
        rest.supports_parallel("get_memory")


def test_get_is_parallel(work: Path) -> None:
    assert Toolrest(work).supports_parallel("get_memory")
    assert not Toolrest(work).supports_parallel("save_memory")


@given(st.text("ab\n -*#", max_size=60), st.text("ab ", max_size=4))
def test_entries_lose_nothing(text: str, query: str) -> None:
    def words(value: str) -> list[str]:
        return [line for line in value.split("\n") if line.strip()]

    assert words("\n".join(entries(text))) == words(text)
    assert set(words(matching(text, query))) <= set(words(text))
