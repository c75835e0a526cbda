"""A yes is for the files that were shown, wherever their names lead by the time it is given."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import Context, Toolrest, tool
from toolrest.gate.approval.request import ApprovalRequest
from toolrest.items import FunctionCall
from toolrest.patch.files.policy_files import PolicyFiles
from toolrest.policy.paths.policy import PathPolicy

UPDATE = "*** Update File: d/a.txt\n@@\n-x\n+evil\n"
WRITES: list[tuple[str, dict[str, Any]]] = [
    ("write_file", {"path": "d/a.txt", "content": "evil"}),
    ("edit_file", {"path": "d/a.txt", "old_string": "x", "new_string": "evil"}),
    ("apply_patch", {"input": f"*** Begin Patch\n{UPDATE}*** End Patch"}),
    ("apply_patch", {"input": "*** Begin Patch\n*** Add File: d/b.txt\n+evil\n*** End Patch"}),
    ("put", {"path": "d/a.txt"}),
    ("exec_command", {"cmd": f"apply_patch <<'EOF'\n*** Begin Patch\n{UPDATE}*** End Patch\nEOF"}),
]


@tool(writes="path")
async def put(path: Path, ctx: Context) -> str:
    """A tool of the user's own."""
    await ctx.write_text(path, "evil")
    return "done"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A workspace with `d/a.txt`, and a folder beside it with another `a.txt`."""
    workspace, elsewhere = tmp_path / "workspace", tmp_path / "elsewhere"
    for folder in (workspace / "d", workspace / "other", elsewhere):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("x\n")
    return workspace, elsewhere


def swapping(workspace: Path, target: Path, *, file: bool) -> Callable[[ApprovalRequest], str]:
    """Says yes, after a program of the model's has put a link in the place of what was shown."""

    def ask(_request: ApprovalRequest) -> str:
        name = workspace / "d" / "a.txt" if file else workspace / "d"
        name.rename(workspace / "moved")
        os.symlink(target / "a.txt" if file else target, name)
        return "approved"

    return ask


@pytest.mark.parametrize(("name", "arguments"), WRITES)
async def test_a_folder_swapped_while_asking_is_not_written_through(
    name: str, arguments: dict[str, Any], folders: tuple[Path, Path]
) -> None:
    workspace, _ = folders
    other = workspace / "other"
    ask = swapping(workspace, other, file=False)
    options: dict[str, Any] = {"approval_policy": "untrusted", "tools": [put]}
    async with Toolrest(workspace, on_ask=ask, **options) as rest:
        output = await rest.call(name, arguments)
    assert output.failed
    assert "replaced meanwhile" in output.text
    assert [path.name for path in other.iterdir()] == ["a.txt"]
    assert (other / "a.txt").read_text() == "x\n"


async def test_a_file_swapped_while_asking_is_not_written_through(
    folders: tuple[Path, Path],
) -> None:
    workspace, _ = folders
    ask = swapping(workspace, workspace / "other", file=True)
    async with Toolrest(workspace, approval_policy="untrusted", on_ask=ask, tools=["all"]) as rest:
        output = await rest.call(*WRITES[0])
    assert output.failed
    assert (workspace / "other" / "a.txt").read_text() == "x\n"


@pytest.mark.parametrize("file", [False, True])
async def test_a_yes_to_one_file_outside_is_none_to_another(
    file: bool, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    workspace, elsewhere = folders
    new = tmp_path / "shown.txt"
    patch = f"*** Begin Patch\n{UPDATE}*** Add File: {new}\n+hello\n*** End Patch"
    ask = swapping(workspace, elsewhere, file=file)
    async with Toolrest(workspace, on_ask=ask, tools=["all"]) as rest:
        output = await rest.call("apply_patch", {"input": patch})
    assert output.failed
    assert (elsewhere / "a.txt").read_text() == "x\n"
    assert not new.exists()  # all or nothing


@pytest.mark.needs("sandbox")
async def test_a_call_before_it_in_the_same_turn_cannot_redirect_it(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    workspace, elsewhere = folders
    shown: list[tuple[str, ...]] = []

    def ask(request: ApprovalRequest) -> str:
        shown.append(request.keys)
        return "approved"

    patch = f"*** Begin Patch\n{UPDATE}*** Add File: {tmp_path}/n.txt\n+hello\n*** End Patch"
    async with Toolrest(workspace, on_ask=ask, tools=["all"]) as rest, rest.turn() as turn:
        swap = {"cmd": f"mv d moved && ln -s {elsewhere} d"}
        first = turn.start(FunctionCall("1", "exec_command", swap))
        second = turn.start(FunctionCall("2", "apply_patch", {"input": patch}))
        swapped, patched = await first.output(), await second.output()
    assert not swapped.failed, swapped.text
    assert os.readlink(workspace / "d") == str(elsewhere)
    assert shown
    assert not any("elsewhere" in key for keys in shown for key in keys)
    assert patched.failed
    assert (elsewhere / "a.txt").read_text() == "x\n"


async def test_links_that_stay_what_they_were_are_written_and_removed(
    folders: tuple[Path, Path],
) -> None:
    workspace, _ = folders
    os.symlink("other", workspace / "link")
    os.symlink("d/a.txt", workspace / "name")
    async with Toolrest(
        workspace, approval_policy="untrusted", on_ask="allow", tools=["all"]
    ) as rest:
        deep = await rest.call("write_file", {"path": "link/new/deep/b.txt", "content": "b"})
        gone = "*** Begin Patch\n*** Delete File: name\n*** End Patch"
        removed = await rest.call("apply_patch", {"input": gone})
    assert not deep.failed, deep.text
    assert (workspace / "other" / "new" / "deep" / "b.txt").read_text() == "b"
    assert not removed.failed, removed.text
    assert not (workspace / "name").is_symlink()
    assert (workspace / "d" / "a.txt").read_text() == "x\n"


def test_the_engine_itself_writes_nowhere_else(folders: tuple[Path, Path]) -> None:
    workspace, _ = folders
    policy = PathPolicy(str(workspace))
    files = PolicyFiles(policy, frozenset({f"{workspace}/d/a.txt", f"{workspace}/new/b.txt"}))
    with files:
        files.overwrite(f"{workspace}/d/a.txt", b"fine")
        files.mkdir(f"{workspace}/new")
        files.create(f"{workspace}/new/.toolrest-0.tmp", b"", None)
        for place in ("other/a.txt", "d/b.txt", "other/.toolrest-0.tmp", "d/a.txt/x", "ne"):
            with pytest.raises(PermissionError, match="replaced meanwhile"):
                files.create(f"{workspace}/{place}", b"evil", None)
