"""Every command that the README and the page of commands show can be typed as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from toolrest.testing import Call

ROOT = Path(__file__).parents[2]
PAGES = "".join((ROOT / name).read_text() for name in ("README.md", "docs/commands.md"))
# An editor has to be at the other end.
ASKS_FOR_HELP = {"acp": ("--help",)}
# These end with 1 when what they run does: no pytest, no uvx, and the sandbox says no.
MAY_SAY_NO = {"sandbox", "call", "mcp"}


def shown() -> list[list[str]]:
    lines = re.findall(r"^\$ toolrest\b *(.*)$", PAGES, re.MULTILINE)
    return [shlex.split(line.split(" | ")[0], comments=True) for line in lines]


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_every_command_runs(desk: Any, serve: Any, full: bool) -> None:
    serve(["looked", Call("exec_command", {"cmd": "echo x > made"}), "fixed", "one"])
    (desk.workspace / "tasks.jsonl").write_text('{"id": "a", "prompt": "go"}\n')
    (desk.workspace / "README.md").write_text("# Title\n")
    home = desk.workspace / "home"
    (home / "project").mkdir(parents=True)
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    commands = shown()
    assert len(commands) > 20
    for command in commands if full else commands[:10]:
        words = [word.replace("~", str(home), 1) if word[:1] == "~" else word for word in command]
        name = command[0] if command else ""  # `toolrest` alone: help, where there is no terminal
        ran = desk.run(*words, *ASKS_FOR_HELP.get(name, ()), env=env)
        assert "Traceback" not in ran.err, command
        allowed = (0, 1) if name in MAY_SAY_NO else (0,)
        assert ran.code in allowed, (command, ran.err)
