"""`toolrest` as a person runs it, with a scripted server for its model."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.forked import TOOLREST, toolrest

from toolrest.testing.server import ScriptedServer

SCHEMA = Path(__file__).parents[2] / "docs" / "exec-events.schema.json"


@dataclass
class Ran:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its JSON lines, each of them held against the published schema."""
        validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))
        found = [json.loads(line) for line in self.out.splitlines()]
        for line in found:
            validator.validate(line)
        assert found[0]["type"] in ("thread.started", "error")  # or no session began
        assert "thread.started" not in [line["type"] for line in found[1:]]
        assert found[-1]["type"] == "result"
        assert [line["type"] for line in found].count("result") == 1
        assert found[-1]["exit_code"] == self.code
        return found

    @property
    def result(self) -> dict[str, Any]:
        return self.lines[-1]

    def items(self, kind: str, what: str = "completed") -> list[dict[str, Any]]:
        """The items of a kind."""
        lines = [line for line in self.lines if line["type"] == f"item.{what}"]
        return [line["item"] for line in lines if line["item"]["type"] == kind]


class Desk:
    """A home, a workspace and the command."""

    def __init__(self, home: Path, workspace: Path) -> None:
        self.home, self.workspace = home, workspace

    def provider(self, server: ScriptedServer, wire: str = "responses", **more: Any) -> None:
        """Make this server the model of every command."""
        rows = {"name": "scripted", "base_url": server.url, "wire_api": wire, **more}
        body = "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items())
        (self.home / "config.toml").write_text(
            f'model = "gpt-5.5"\nmodel_provider = "scripted"\n[model_providers.scripted]\n{body}'
        )

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        env = {**os.environ, **options.pop("env", {})}
        return subprocess.Popen(
            [TOOLREST, *arguments],
            cwd=self.workspace,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            **options,
        )

    def run(self, *arguments: str, said: str | None = None, **options: Any) -> Ran:
        """Run a command to its end."""
        done = toolrest(*arguments, cwd=self.workspace, said=said, **options)
        return Ran(done.returncode, done.stdout, done.stderr)

    def process(self, *arguments: str, said: str | None = None, **options: Any) -> Ran:
        """Run a command to its end in a process that is started anew."""
        stdin = subprocess.DEVNULL if said is None else subprocess.PIPE
        with self.start(*arguments, stdin=stdin, **options) as process:
            out, err = process.communicate(said, timeout=100)
        return Ran(process.returncode, out, err)


@pytest.fixture
def desk(tmp_path: Path, toolrest_home: Path) -> Desk:
    workspace = tmp_path / "project"
    workspace.mkdir()
    return Desk(toolrest_home, workspace)


Serve = Callable[..., ScriptedServer]


@pytest.fixture
def serve(desk: Desk) -> Any:
    """Starts a scripted server and makes it the desk's model."""
    servers: list[ScriptedServer] = []

    def start(script: Any, wire: str = "responses", **more: Any) -> ScriptedServer:
        server = ScriptedServer(script)
        server.__enter__()
        servers.append(server)
        desk.provider(server, wire, **more)
        return server

    start.servers = servers  # type: ignore[attr-defined]
    yield start
    for server in servers:
        server.__exit__()
