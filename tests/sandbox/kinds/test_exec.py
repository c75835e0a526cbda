"""`toolrest exec` with each kind of sandbox, against the scripted server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.machine import REPOSITORY, solid_ground
from tests.sandbox.kinds.kinds import furnish

from toolrest.cli.run.demo_task import PROMPT, SECRET, script, write_project
from toolrest.testing.server import ScriptedServer

PLAIN = (sys.executable, str(REPOSITORY / "tests/plain_container.py"), "--")
"""Without user namespaces a session takes Landlock by itself."""


def test_exec(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """`toolrest exec` repairs the demo's project"""
    with (
        tempfile.TemporaryDirectory(dir=solid_ground()) as folder,
        ScriptedServer(script(), models=("gpt-5.5",)) as server,
    ):
        project = write_project(folder)
        words = [*(PLAIN if kind == "landlock" else ()), sys.executable, "-m", "toolrest", "exec"]
        for key, value in flat({**settings, **server.settings()}):
            words += ["-c", f"{key}={json.dumps(value)}"]
        words += ["-C", project, "-s", "workspace-write", "--skip-git-repo-check", "--json", PROMPT]
        home = str(tmp_path / "home")
        furnish(kind, tmp_path / "home")
        env = {**os.environ, "TOOLREST_HOME": home, "HOME": folder, "SHOP_API_KEY": SECRET}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=170)
        assert done.returncode == 0, done.stderr + done.stdout[-2000:]
        assert SECRET not in done.stdout
        text = Path(project, "cart.py").read_text()
        assert "total += price * count" in text
        events = [json.loads(line) for line in done.stdout.splitlines()]
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        ran = [item for item in items if item["type"] == "command_execution"]
        tests = [item["exit_code"] for item in ran if "unittest" in item["command"]]
        assert tests == [1, 0], ran


def flat(settings: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted keys."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
