"""Other frameworks with our tools: the real packages, each in a venv of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests import machine

CASES = Path(__file__).parent / "cases"
ROOT = machine.REPOSITORY
EXTRAS = ("inspect-ai", "langchain", "openai-agents", "pydantic-ai")
DOCUMENTED = (ROOT / "docs" / "integrations.md").read_text()


def environment(extra: str, folder: Path) -> Path:
    """The Python of a venv with what the page installs for this extra; kept for later runs."""
    [line] = re.findall(rf'`pip install ("toolrest\[{extra}\]".*?)`', DOCUMENTED)
    _, *others = shlex.split(line)
    venv = folder / extra
    python = venv / "bin" / "python"
    built = venv / "project.json"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = json.dumps([project, others])
    if not built.exists() or built.read_text() != wanted:
        shutil.rmtree(venv, ignore_errors=True)
        home = {**os.environ, "HOME": machine.OWN_HOME}  # where the user's package index is named
        install = [str(python), "-m", "pip", "install", "-q", "-e", f"{ROOT}[{extra}]", *others]
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, env=home)
        subprocess.run(install, check=True, env=home)
        built.write_text(wanted)
    return python


@pytest.mark.long
@pytest.mark.needs("namespaces")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("extra", EXTRAS)
def test_calls_through_a_framework_pass_the_gate(
    extra: str, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Ordinary calls run in the sandbox; dangerous ones wait for the framework's approval."""
    assert pytestconfig.cache is not None
    python = environment(extra, Path(pytestconfig.cache.mkdir("frameworks")))
    case = CASES / f"{extra.replace('-', '_')}_case.py"
    done = subprocess.run(
        [python, case],
        capture_output=True,
        text=True,
        env={**os.environ, "CASES": str(tmp_path), "PYTHONPATH": str(ROOT)},
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = set(re.findall(r"^ok (\w+)$", done.stdout, re.MULTILINE))
    assert ran == set(re.findall(r"^async def (\w+)\(\) -> None:", case.read_text(), re.MULTILINE))


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_framework_is_documented(extra: str) -> None:
    assert f'pip install "toolrest[{extra}]"' in DOCUMENTED
    assert f"toolrest.integrations.{extra.replace('-', '_')} " in DOCUMENTED
