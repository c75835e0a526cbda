"""The command line in an environment without extras: all there, or one line that helps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

from toolrest.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"[A-Za-z0-9._-]+")


def core() -> dict[str, Distribution]:
    """The distributions that a core install brings, toolrest itself aside."""
    found: dict[str, Distribution] = {}
    waiting = ["toolrest"]
    while waiting:
        for line in distribution(waiting.pop()).requires or ():
            match = NAME.match(line)
            if match is None or "extra ==" in line or match[0] in found:
                continue
            try:
                found[match[0]] = distribution(match[0])
            except PackageNotFoundError:
                continue  # for another platform
            waiting.append(match[0])
    return found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a venv that has the core packages and this tree."""
    base = tmp_path_factory.mktemp("core")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", base / "venv"], check=True)
    packages = base / "packages"
    packages.mkdir()
    for each in core().values():
        for file in each.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (packages / top).exists():
                (packages / top).symlink_to(str(each.locate_file(top)))
    (site,) = (base / "venv" / "lib").glob("python*/site-packages")
    (site / "core.pth").write_text(f"{ROOT / 'src'}\n{packages}\n")
    return base / "venv" / "bin" / "python"


def run(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-P", "-m", "toolrest", *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )


def test_no_extra_is_there(python: Path, tmp_path: Path) -> None:
    for package in ("mcp", "acp", "PIL", "prompt_toolkit", "html_to_markdown"):
        done = subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False)
        assert done.returncode == 1, package


HELPS = """
import sys
from click.testing import CliRunner
from toolrest.cli.app import app
for name in sys.argv[1:]:
    done = CliRunner().invoke(app, (name, "--help"), catch_exceptions=False)
    print(name, done.exit_code, done.stderr, done.stdout.partition(" ")[0])
"""


def test_every_command_starts_without_extras(python: Path, tmp_path: Path) -> None:
    names = sorted(COMMANDS)
    done = subprocess.run(
        [python, "-P", "-c", HELPS, *names], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{name} 0  Usage:" for name in names]


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("mcp", "serve"), "mcp"),
        (("mcp", "serve", "--http", "127.0.0.1:0"), "mcp"),
        (("acp",), "acp"),
    ],
)
def test_what_needs_an_extra_says_how_to_get_it(
    python: Path, tmp_path: Path, words: tuple[str, ...], extra: str
) -> None:
    done = run(python, tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"toolrest: this needs more packages: pip install 'toolrest[{extra}]'\n"


@pytest.mark.slow
def test_everyday_commands_work_without_extras(python: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    done = run(python, tmp_path, "call", "read_file", '{"file_path": "a.txt"}')
    assert (done.returncode, done.stdout) == (0, "L1: hello\n")
    assert run(python, tmp_path, "tools").returncode == 0
    assert run(python, tmp_path, "mcp", "list").returncode == 0
