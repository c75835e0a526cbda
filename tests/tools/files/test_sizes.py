"""`tool_security.max_file_access_size`: it binds whatever reads, writes and searches files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolrest import ApprovalRequest, Toolrest
from toolrest.events import TurnDiff

LIMIT = 1000
SETTINGS: dict[str, Any] = {
    "tool_security.max_file_access_size": LIMIT,
    "checkpoints.max_file_size": LIMIT,
}
LONG = "x" * 600


def codex(*lines: str) -> dict[str, str]:
    return {"input": "\n".join(["*** Begin Patch", *lines, "*** End Patch"])}


WRITES = {
    "add": ("apply_patch", codex("*** Add File: new.txt", f"+{LONG}", f"+{LONG}")),
    "update": ("apply_patch", codex("*** Update File: old.txt", " one", f"+{LONG}", f"+{LONG}")),
    "diff": (
        "apply_patch",
        {"patch": f"--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+{LONG}\n+{LONG}\n"},
    ),
    "edit": (
        "edit_file",
        {"file_path": "old.txt", "old_string": "one", "new_string": LONG + LONG},
    ),
    "write": ("write_file", {"file_path": "new.txt", "content": LONG + LONG}),
}


@pytest.mark.parametrize("which", WRITES)
async def test_nothing_larger_is_written_and_nobody_is_asked_about_it(
    tmp_path: Path, which: str
) -> None:
    (tmp_path / "old.txt").write_text("one\n")
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    settings = {**SETTINGS, "tools.enabled": ["*", "write_file", "edit_file"]}
    async with Toolrest(
        tmp_path, settings={**settings, "approvals.paths": {".": "ask"}}, on_ask=approve
    ) as rest:
        output = await rest.call(*WRITES[which])
    assert output.failed
    assert "tool_security.max_file_access_size is 1,000" in output.text
    assert not asked
    assert [entry.name for entry in tmp_path.iterdir()] == ["old.txt"]
    assert (tmp_path / "old.txt").read_text() == "one\n"


async def test_a_large_file_is_deleted_unread(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_text(LONG * 3)
    asked: list[ApprovalRequest] = []
    diffs: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    settings = {**SETTINGS, "approvals.paths": {".": "ask"}}
    async with Toolrest(tmp_path, settings=settings, on_ask=approve) as rest:
        rest.subscribe(lambda e: diffs.append(e.unified_diff) if isinstance(e, TurnDiff) else None)
        output = await rest.call("apply_patch", codex("*** Delete File: big.log"))
    assert output.success, output.text
    assert "D big.log" in output.text
    assert not list(tmp_path.iterdir())
    (request,) = asked
    assert f"Undo does not keep {tmp_path}/big.log." in request.notes
    assert "(1,800 bytes, too large to be shown)" in (request.diff or "")
    assert "deleted file mode" in diffs[-1]


async def test_a_large_file_is_there_again_where_the_patch_fails(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_text(LONG * 3)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").touch()
    patch = codex("*** Delete File: big.log", "*** Add File: kept", "+x")
    async with Toolrest(tmp_path, settings=SETTINGS) as rest:
        output = await rest.call("apply_patch", patch)
    assert output.failed
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["big.log", "kept"]
    assert (tmp_path / "big.log").read_text() == LONG * 3


@pytest.mark.parametrize("mode", ["files", "content", "count"])
async def test_a_search_names_what_it_passed_over(tmp_path: Path, mode: str) -> None:
    (tmp_path / "small.txt").write_text("needle")
    (tmp_path / "big.log").write_text("needle" + LONG * 3)
    (tmp_path / "other.bin").write_text("needle" + LONG * 3)
    async with Toolrest(tmp_path, settings=SETTINGS) as rest:
        one = await rest.call("grep_files", {"pattern": "needle", "output_mode": mode})
        named = "[toolrest] not searched, over tool_security.max_file_access_size (1,000 bytes): "
        assert "small.txt" in one.text
        assert f"{named}big.log, other.bin" in one.text
        chosen = {"pattern": "needle", "output_mode": mode, "include": "*.log"}
        two = await rest.call("grep_files", chosen)
        assert two.text.startswith("No matches found.")
        assert two.text.endswith(f"{named}big.log")
        own = await rest.call("grep_files", {"pattern": "needle", "path": "big.log"})
        assert own.text.endswith(f"{named}big.log")
        none = await rest.call("grep_files", {"pattern": "absent", "include": "*.txt"})
        assert none.text == "No matches found."


async def test_globs_find_large_files(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_text(LONG * 3)
    async with Toolrest(tmp_path, settings=SETTINGS) as rest:
        found = await rest.call("glob_files", {"pattern": "*.log"})
    assert found.text == f"{tmp_path}/big.log"
