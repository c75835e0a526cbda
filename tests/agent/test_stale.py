"""A file that changed since the model read it is not written over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolrest import ToolOutput, Toolrest
from toolrest.gate.approval.request import ApprovalRequest

PATCH = "*** Begin Patch\n*** Update File: a\n@@\n-{}\n+{}\n*** End Patch"


async def patch(rest: Toolrest, old: str, new: str) -> ToolOutput:
    return await rest.call("apply_patch", {"input": PATCH.format(old, new)})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_text("one\ntwo\n")
    return path


async def test_a_change_by_somebody_else_is_not_written_over(file: Path) -> None:
    async with Toolrest(file.parent) as rest:
        await rest.call("read_file", {"file_path": str(file)})
        file.write_text("one\ntwo\nby a person\n")
        output = await patch(rest, "one", "1")
        assert output.text.startswith(f"stale_file: {file}")
        assert output.failure is not None
        assert file.read_text() == "one\ntwo\nby a person\n"
        await rest.call("read_file", {"file_path": str(file)})
        assert (await patch(rest, "one", "1")).success
    assert file.read_text() == "1\ntwo\nby a person\n"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"file_path": "a", "content": "x"}),
        ("edit_file", {"file_path": "a", "old_string": "one", "new_string": "x"}),
        ("exec_command", {"cmd": f"apply_patch <<'E'\n{PATCH.format('one', 'x')}\nE"}),
    ],
)
async def test_every_way_to_edit_is_held_to_it(
    file: Path, tool: str, arguments: dict[str, str]
) -> None:
    async with Toolrest(file.parent) as rest:
        await rest.call("read_file", {"file_path": str(file)})
        file.write_text("one\nother\n")
        output = await rest.call(tool, arguments)
        assert "stale_file" in output.text
    assert file.read_text() == "one\nother\n"


async def test_our_own_writes_and_a_mere_touch_are_not_stale(file: Path) -> None:
    async with Toolrest(file.parent) as rest:
        await rest.call("read_file", {"file_path": str(file)})
        assert (await patch(rest, "one", "1")).success
        assert (await patch(rest, "1", "eins")).success
        os.utime(file, (1, 1))
        assert (await patch(rest, "eins", "one")).success
    assert file.read_text() == "one\ntwo\n"


async def test_another_session_is_somebody_else(file: Path) -> None:
    async with Toolrest(file.parent) as one, Toolrest(file.parent) as other:
        await one.call("read_file", {"file_path": str(file)})
        assert (await patch(other, "one", "other's")).success
        assert "stale_file" in (await patch(one, "two", "2")).text


async def test_what_was_not_read_is_not_judged(file: Path) -> None:
    async with Toolrest(file.parent) as rest:
        file.write_text("one\nnew\n")
        assert (await patch(rest, "one", "1")).success


async def test_a_change_while_somebody_thinks_about_it(file: Path) -> None:
    def slow_yes(request: ApprovalRequest) -> bool:
        file.write_text("one\nchanged meanwhile\n")
        return True

    async with Toolrest(file.parent, approval_policy="untrusted", on_ask=slow_yes) as rest:
        await rest.call("read_file", {"file_path": str(file)})
        assert "stale_file" in (await patch(rest, "one", "1")).text
    assert file.read_text() == "one\nchanged meanwhile\n"


async def test_a_fifth_read_shows_what_changed_outside(file: Path) -> None:
    """The loop watch used to refuse it with the words "use the earlier result"."""
    async with Toolrest(file.parent) as rest:
        for _ in range(4):
            await rest.call("read_file", {"file_path": str(file)})
        file.write_text("new\n")
        output = await rest.call("read_file", {"file_path": str(file)})
    assert output.success
    assert "new" in output.text
    assert not output.notes
