"""`exec_command` with a shell that is not installed, or that nobody knows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from toolrest import Toolrest

pytestmark = pytest.mark.needs("sandbox")

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+x\n*** End Patch"


def absent(name: str) -> bool:
    """Whether no shell of this name is installed."""
    return shutil.which(name) is None


@pytest.mark.parametrize("name", ["zsh", "/no/such/zsh", "fish"])
async def test_sh_runs_the_line_and_a_note_says_so(tmp_path: Path, name: str) -> None:
    if not absent("zsh"):
        name = "fish"
    async with Toolrest(tmp_path) as rest:
        output = await rest.call("exec_command", {"cmd": "echo $0 hi", "shell": name})
        assert "/bin/sh hi\n" in output.text
        assert f"[toolrest] {name} is not available: /bin/sh ran the line" in output.text
        usual = await rest.call("exec_command", {"cmd": "echo hi", "shell": "sh"})
        assert "is not available" not in usual.text


async def test_the_line_is_judged_as_the_shell_that_runs_it(tmp_path: Path) -> None:
    """zsh would expand a word that begins with `=`; to sh it is one like any other."""
    if not absent("zsh"):
        pytest.skip("zsh is installed")
    rest = Toolrest(tmp_path)
    call = {"cmd": "echo =ls", "shell": "zsh"}
    assert str(rest.explain("exec_command", call).verdict) == "allow"


@pytest.mark.parametrize("name", ["pwsh", "powershell", "cmd", "/opt/none/pwsh.exe"])
async def test_a_line_for_another_kind_of_shell_is_never_handed_to_sh(
    tmp_path: Path, name: str
) -> None:
    call = {"cmd": "touch made; exit 3", "shell": name}
    async with Toolrest(tmp_path) as rest:
        output = await rest.call("exec_command", call)
        assert "Process exited with code 127" in output.text
        assert f"{name}: command not found\n" in output.text
    assert not (tmp_path / "made").exists()
