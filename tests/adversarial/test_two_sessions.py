"""Two sessions in one workspace: the end of one opens nothing for the other's command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolrest import Toolrest

WAIT = "while [ ! -e {} ]; do sleep 0.05; done; "


async def started(rest: Toolrest, line: str) -> int:
    arguments = {"cmd": line, "login": False, "yield_time_ms": 250}
    output = await rest.call("exec_command", arguments)
    found = re.search(r"session ID (\d+)", output.text)
    assert found, output.text
    return int(found[1])


async def ended(rest: Toolrest, session: int) -> str:
    while True:
        output = await rest.call("write_stdin", {"session_id": session, "yield_time_ms": 5000})
        if "Process exited" in output.text:
            return output.text


@pytest.mark.slow
@pytest.mark.needs("namespaces")
async def test_a_session_that_ends_does_not_unprotect_names_for_another(tmp_path: Path) -> None:
    """Homes of their own used to mean records of their own: one took the other's placeholders."""
    plant = "mkdir -p .vscode; echo evil > .vscode/tasks.json; echo rc=$?"
    async with Toolrest(tmp_path) as second:
        async with Toolrest(tmp_path) as first:
            one = await started(first, WAIT.format("go1"))
            two = await started(second, WAIT.format("go2") + plant)
            (tmp_path / "go1").touch()
            await ended(first, one)
        (tmp_path / "go2").touch()
        text = await ended(second, two)
    assert "Read-only file system" in text
    assert "rc=0" not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["go1", "go2"]
