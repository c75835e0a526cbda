"""No program of ours or the user's that runs outside takes a tool's code. Each failed before."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from tests.adversarial.conftest import Range

from toolrest import Toolrest
from toolrest.config.loader import default_config
from toolrest.errors import ConfigError
from toolrest.own_code import child_environment
from toolrest.testing import Call


def hooked(range_: Range, *argv: str) -> dict[str, Any]:
    return {"hooks.PreToolUse": [{"command": list(argv)}]}


@pytest.mark.parametrize("how", ["variable", "module", "code"])
async def test_a_hook_imports_nothing_from_the_workspace_failed_before(
    range_: Range, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    range_.code("json.py")
    range_.code("tokenize.py")
    script = range_.outside.parent / "hook.py"
    script.write_text("import json\n")
    if how == "variable":
        monkeypatch.setenv("PYTHONPATH", str(range_.workspace))
    argv = {
        "variable": (str(script),),
        "module": ("-m", "tokenize", "-h"),
        "code": ("-c", "import json"),
    }
    settings = hooked(range_, sys.executable, *argv[how])
    async with Toolrest(range_.workspace, settings=settings) as rest:
        await rest.call("list_dir", {"dir_path": "."})
    range_.unharmed()


@pytest.mark.parametrize("argv", [("npx", "x"), ("uv", "run", "x"), ("make",), ("node", ".")])
def test_a_hook_that_takes_its_code_from_the_workspace_is_refused_failed_before(
    range_: Range, argv: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match="runs files of the workspace"):
        Toolrest(range_.workspace, settings=hooked(range_, *argv))


async def test_notify_imports_nothing_from_the_workspace_failed_before(range_: Range) -> None:
    range_.code("json.py")
    told = range_.home / "told"
    code = f"import json; open({str(told)!r}, 'w').close()"
    given = {"notify": [sys.executable, "-c", code], "tool_security.audit_log_enabled": False}
    config = default_config(given, workspace=range_.workspace)
    from toolrest.agent.open_session import open_session
    from toolrest.testing import ScriptedModel

    async with open_session(config, ScriptedModel(["done"])) as session:
        await session.run("go")
    while not told.exists():
        os.sched_yield()
    range_.unharmed()


async def test_the_helper_loads_no_library_of_the_workspace_failed_before(
    range_: Range, monkeypatch: pytest.MonkeyPatch, any_sandbox: None
) -> None:
    """A file that is no library where the helper's own would be: it could not even start."""
    for name in ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"):
        range_.file(name, "no library")
    command = {"cmd": "echo it runs", "login": False}
    monkeypatch.setenv("LD_LIBRARY_PATH", str(range_.workspace))
    settings = {"shell_environment_policy__exclude": ["LD_LIBRARY_PATH"]}
    (text,) = await range_.calls(Call("exec_command", command), **settings)
    assert "it runs" in text


def test_variables_with_a_tools_code_are_left_out_failed_before(range_: Range) -> None:
    work = range_.workspace
    given = {
        "PYTHONPATH": f"/usr/lib:{work}/lib:relative:",
        "LD_PRELOAD": f"{work}/evil.so",
        "BASH_ENV": f"{work}/rc",
        "HOME": str(work),
    }
    kept = child_environment(given, [str(work)])
    assert kept == {"PYTHONPATH": "/usr/lib", "HOME": str(work)}
