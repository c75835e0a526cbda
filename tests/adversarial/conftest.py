"""A hostile model, a home, a workspace and a folder outside: the next attack is ten lines.

    async def test_…_failed_before(range_: Range) -> None:
        range_.code("json.py")                          # what a tool could have left behind
        await range_.calls(Call("exec_command", {"cmd": "ln -s ../outside/diary.txt x"}))
        range_.toolrest("exec", "-o", "x", "go")        # or the command line, in the workspace
        range_.unharmed()

Code that was planted with `code` writes into the folder outside when it runs. So `unharmed` sees
both: what was written there directly, and that something ran or was loaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Desk, Ran

from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.items import JSONObject
from toolrest.testing import Call, ScriptedModel, ScriptedServer

SECRET = "the-secret-of-the-diary"
_SAYS_SO = """
import os
with open({!r}, "a") as file:
    file.write({!r} + " was loaded by " + str(os.getpid()) + "\\n")
"""


class Range:
    """Where an attack takes place. Everything in `workspace` may be a tool's; nothing else."""

    def __init__(self, home: Path, workspace: Path, outside: Path) -> None:
        self.home, self.workspace, self.outside = home, workspace, outside
        self.diary = outside / "diary.txt"
        self.diary.write_text(f"{SECRET}\n")
        self.desk = Desk(home, workspace)
        self._before = self._state()

    def file(self, name: str, text: str) -> Path:
        """Put a file into the workspace, as a tool or a cloned repository could."""
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def code(self, name: str, more: str = "") -> Path:
        """Put a Python file into the workspace that leaves a trace outside when it runs."""
        return self.file(name, _SAYS_SO.format(str(self.outside / "trace"), name) + more)

    def link(self, name: str, target: Path) -> Path:
        """Put a symbolic link into the workspace."""
        path = self.workspace / name
        path.symlink_to(target)
        return path

    async def calls(self, *calls: Call, **settings: Any) -> list[str]:
        """A session in which the model makes these calls, one a reply; what it got for each."""
        given = {key.replace("__", "."): value for key, value in settings.items()}
        config = default_config(given, workspace=self.workspace)
        model = ScriptedModel([*calls, "done"])
        async with open_session(config, model, on_ask=lambda _request: "denied") as session:
            await session.run("go")
        return [_text(item) for item in model.requests[-1].items if _is_output(item)]

    def toolrest(self, *words: str, script: Any = ("done",), **options: Any) -> Ran:
        """The command line in the workspace, with a scripted server for its model."""
        with ScriptedServer(list(script)) as server:
            self.desk.provider(server)
            return self.desk.process(*words, **options)

    def python(self, code: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A host program that lives in the workspace and uses the library there."""
        host = self.file("host.py", code)
        return subprocess.run(
            [sys.executable, str(host)],
            cwd=self.workspace,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=100,
        )

    def unharmed(self) -> None:
        """Nothing outside was touched, and none of the planted code has run."""
        assert self._state() == self._before

    def _state(self) -> dict[str, bytes]:
        files = (path for path in self.outside.rglob("*") if path.is_file())
        return {str(path.relative_to(self.outside)): path.read_bytes() for path in files}


def _is_output(item: JSONObject) -> bool:
    return str(item.get("type", "")).endswith("_output")


def _text(item: JSONObject) -> str:
    output = item["output"]
    return output if isinstance(output, str) else str(output)


@pytest.fixture
def range_(tmp_path: Path, toolrest_home: Path) -> Range:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    return Range(toolrest_home, workspace, outside)
