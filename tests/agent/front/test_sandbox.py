"""Commands of the program's own in the sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.clock import Clock

from toolrest import Sandbox, ToolrestError

pytestmark = pytest.mark.needs("sandbox")


async def test_a_command_writes_its_folder_and_nothing_else(tmp_path: Path) -> None:
    work, other = tmp_path / "work", Path("/etc/toolrest-nope")
    work.mkdir()
    async with Sandbox(work) as box:
        done = await box.run(
            ["sh", "-c", f"echo out; echo err >&2; echo x > made; echo x > {other}"]
        )
        assert (done.exit_code, done.stdout) != (0, "")
        assert done.stderr.startswith("err\n")
        assert done.backend in ("bubblewrap", "landlock")
        assert (work / "made").read_text() == "x\n"
        assert not other.exists()
        assert done.blocked is not None
        assert "require_escalated" not in done.blocked
        again = await box.run("cat made")
    assert (again.exit_code, again.stdout, again.blocked) == (0, "x\n", None)


async def test_a_line_of_a_shell_a_folder_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789abcdef")
    async with Sandbox(tmp_path) as box:
        done = await box.run(
            "pwd; echo $A; echo key=$SOME_API_KEY", cwd="inner", env={"A": "given"}
        )
    assert done.stdout == f"{tmp_path}/inner\ngiven\nkey=\n"


async def test_the_time_limit_ends_a_command_and_output_comes_as_it_is_written(
    tmp_path: Path, clock: Clock
) -> None:
    pieces: list[str] = []
    passes = clock.once("begun", 900)

    def heard(stream: str, text: str) -> None:
        pieces.append(f"{stream}: {text}")
        passes(text)

    async with Sandbox(tmp_path, mode="read-only") as box:
        done = await box.run(
            "echo begun; exec sleep 60",
            timeout=900,
            on_output=heard,
        )
    assert (done.exit_code, done.timed_out) == (124, True)
    assert "stdout: begun" in "".join(pieces)


async def test_what_cannot_run_is_an_error(tmp_path: Path) -> None:
    async with Sandbox(tmp_path) as box:
        with pytest.raises(ToolrestError, match="no program nope-nope"):
            await box.run(["nope-nope"])
    with pytest.raises(TypeError, match=r"network=\['pypi.org'\]"):
        Sandbox(tmp_path, network="pypi.org")


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    async with Sandbox(tmp_path) as box:
        done = await box.run("sleep 300 > /dev/null 2>&1 & echo begun")
        assert done.stdout == "begun\n"
        home = box._home.path
        assert os.path.isdir(home)
    assert not os.path.exists(home)
