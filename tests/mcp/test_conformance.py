"""The client in MCP's conformance suite: each scenario that applies to it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.real.conformance import CLIENT, CONFORMANCE, VERSIONS

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
PROGRAM = Path(__file__).parent / "data" / "conformance_client.py"
Npm = Callable[..., Path]


async def run(*argv: str, folder: Path, node: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={
            "PATH": f"{Path(node).parent}:/usr/bin:/bin",
            "HOME": str(folder),
            "TOOLREST_HOME": str(folder / "home"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_client(npm: Npm, node: str, tmp_path: Path, version: str) -> None:
    suite = npm(VERSIONS[version]) / "node_modules" / CONFORMANCE / "dist" / "index.js"
    _, listed = await run(node, str(suite), "list", folder=tmp_path, node=node)
    scenarios = re.findall(r"^  - (\S+)", _client_part(listed), re.MULTILINE)
    assert len(scenarios) > 20
    assert set(CLIENT[version]) <= set(scenarios)
    command = shlex.join((sys.executable, str(PROGRAM)))
    failed: list[str] = []
    for number, scenario in enumerate(scenarios):
        if scenario in CLIENT[version]:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        line = (node, str(suite), "client", "--command", command, "--scenario", scenario)
        code, out = await run(*line, folder=folder, node=node)
        if code:
            failed.append(f"{scenario}: {out[-1500:]}")
    assert not failed, "\n\n".join(failed)


def _client_part(listed: str) -> str:
    after = listed.partition("Client scenarios")[2]
    return after.partition("Authorization server scenarios")[0]
