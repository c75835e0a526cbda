from __future__ import annotations

import json
from pathlib import Path

from toolrest import Toolrest, tool

RUNS: list[str] = []


@tool(writes="path")
async def put(path: Path) -> str:
    """Write nothing, but say that it would."""
    RUNS.append(str(path))
    return "written"


def item(name: str, arguments: dict[str, object], repaired: list[str]) -> dict[str, object]:
    text = json.dumps(arguments)
    call = {"type": "function_call", "name": name, "arguments": text, "call_id": "c"}
    return {**call, "repaired": repaired}


async def test_a_reader_runs_and_its_output_says_what_was_put_right(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    async with Toolrest(tmp_path, tools=["files"]) as rest:
        call = item("read_file", {"file_path": str(tmp_path / "a.txt")}, ["a comma was dropped"])
        (output,) = await rest.answer(call)
    assert "hello" in output["output"]
    assert "[toolrest] the arguments were repaired: a comma was dropped" in output["output"]


async def test_what_changes_things_needs_exact_arguments(tmp_path: Path) -> None:
    RUNS.clear()
    async with Toolrest(tmp_path, tools=[put], approval_policy="never") as rest:
        arguments: dict[str, object] = {"path": "x.txt"}
        (refused,) = await rest.answer(item("put", arguments, ["`path` was in quotes"]))
        assert RUNS == []
        assert refused["output"].startswith("failed to parse function arguments: ")
        assert "`path` was in quotes" in refused["output"]
        assert '{"path": "x.txt"}' in refused["output"]
        (exact,) = await rest.answer(item("put", arguments, []))
        assert exact["output"] == "written"
    assert len(RUNS) == 1
