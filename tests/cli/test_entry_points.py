"""Tools that an installed package brings by the entry point group `toolrest.tools` (M-14)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLREST = str(Path(sys.executable).parent / "toolrest")

MODULE = """
from pathlib import Path
from toolrest import Context, tool

@tool(reads="path")
async def count_lines(path: Path, ctx: Context) -> str:
    "Count the lines of a text file."
    return str(len((await ctx.read_text(path)).splitlines()))
"""
POINTS = """[toolrest.tools]
count_lines = acme_tools:count_lines
broken = acme_tools:nothing_there
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder in which a package with tools is installed."""
    folder = tmp_path / "site"
    info = folder / "acme_tools-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "acme_tools.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    return folder


def toolrest(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    workspace = site.parent / "work"
    workspace.mkdir(exist_ok=True)
    (workspace / "three.txt").write_text("1\n2\n3\n")
    return subprocess.run(
        [TOOLREST, *arguments],
        cwd=workspace,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site)},
    )


@pytest.mark.slow
def test_a_packages_tool_is_listed_and_works(site: Path) -> None:
    listed = toolrest(site, "tools", "--json")
    assert listed.returncode == 0
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert rows["count_lines"]["risk"] == "read"
    assert rows["count_lines"]["description"] == "Count the lines of a text file."
    called = toolrest(site, "call", "count_lines", '{"path": "three.txt"}')
    assert (called.returncode, called.stdout) == (0, "3\n")


def test_one_that_cannot_be_loaded_is_named_and_leaves_the_rest_alone(site: Path) -> None:
    done = toolrest(site, "tools")
    assert done.returncode == 0
    assert "count_lines" in done.stdout
    assert "read_file" in done.stdout
    assert "entry point broken (acme_tools:nothing_there) is left out" in done.stderr


def test_a_tool_that_is_switched_off_stays_off(site: Path) -> None:
    done = toolrest(site, "call", "-c", 'tools.disabled=["count_*"]', "count_lines", "{}")
    assert done.returncode == 1
    assert "unsupported call: count_lines" in done.stdout + done.stderr
