"""`read_roots` narrows commands as it narrows the file tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolrest import Toolrest


@pytest.fixture
def places(user_home: str) -> tuple[Path, Path]:
    """A workspace and a file beside it, neither of them in a folder that commands need."""
    base = Path(user_home, "read_roots")
    work, other = base / "work", base / "other"
    for folder in (work, other):
        folder.mkdir(parents=True, exist_ok=True)
    (work / "mine.txt").write_text("mine\n")
    (other / "secret.txt").write_text("of others\n")
    return work, other / "secret.txt"


@pytest.mark.parametrize("mode", ["read-only", "workspace-write", "danger-full-access"])
async def test_a_command_that_names_a_file_outside_read_roots_is_denied(
    places: tuple[Path, Path], mode: str
) -> None:
    work, secret = places
    settings = {"read_roots": [str(work)], "sandbox_mode": mode, "approval_policy": "never"}
    async with Toolrest(work, settings=settings) as rest:
        for tool, arguments in (
            ("exec_command", {"cmd": f"cat {secret}", "login": False}),
            ("shell", {"command": ["head", "-1", str(secret)]}),
            ("shell_command", {"command": f"wc -l < {secret}", "login": False}),
            ("read_file", {"file_path": str(secret)}),
        ):
            output = await rest.call(tool, arguments)
            assert output.failure is not None, tool
            assert output.failure.kind == "policy_denied", tool
            assert "outside read_roots" in output.text, tool


@pytest.mark.needs("sandbox")
async def test_what_a_program_opens_is_narrowed_by_the_sandbox(places: tuple[Path, Path]) -> None:
    work, secret = places
    async with Toolrest(work, settings={"read_roots": [str(work)]}) as rest:
        for path, text in ((work / "mine.txt", "mine"), (secret, "of others")):
            program = f"import sys; print(open({json.dumps(str(path))}).read())"
            output = await rest.call("shell", {"command": ["python3", "-c", program]})
            shown = json.loads(output.text.splitlines()[0])["output"]
            assert (text in shown) is (path != secret), output.text
