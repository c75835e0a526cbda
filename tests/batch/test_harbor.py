"""The example adapter for Harbor, run by the real package, which has an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import machine
from tests.batch.conftest import Bench, worker

from toolrest import __version__
from toolrest.testing import Fail

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
IMPORTED = (
    *("dirhash", "filelock", "httpx", "jinja2", "jsonschema", "litellm", "packaging", "pathspec"),
    *("platformdirs", "pydantic", "pyjwt", "python-dotenv", "pyyaml", "requests", "rich"),
    *("semver", "shortuuid", "tenacity", "toml", "typing_extensions"),
)
"""What Harbor's agents import; all that it depends on is hundreds of megabytes."""
ADAPTER = machine.REPOSITORY / "examples" / "harbor" / "toolrest_agent.py"


@pytest.fixture(scope="module")
def harbor_python(pytestconfig: pytest.Config) -> str:
    """A Python with Harbor, kept for later runs."""
    assert pytestconfig.cache is not None
    venv = Path(pytestconfig.cache.mkdir("frameworks")) / "harbor"
    if not (venv / "done").exists():
        env = {**os.environ, "HOME": machine.OWN_HOME}
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, env=env)
        pip = [
            str(venv / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "-q",
            "--ignore-requires-python",
        ]
        subprocess.run([*pip, "--no-deps", "harbor>=0.25,<0.26"], check=True, env=env)
        subprocess.run([*pip, *IMPORTED], check=True, env=env)
        (venv / "done").touch()
    return str(venv / "bin" / "python")


def run(python: str, bench: Bench, *settings: str) -> Any:
    """One trial of the adapter; the `toolrest` that it finds is ours."""
    programs, logs = bench.base / "programs", bench.base / "logs"
    programs.mkdir()
    logs.mkdir()
    (programs / "toolrest").symlink_to(Path(sys.prefix) / "bin" / "toolrest")
    case = Path(__file__).with_name("harbor_case.py")
    done = subprocess.run(
        [python, case, ADAPTER, logs, "scripted/gpt-5.5", *settings],
        capture_output=True,
        text=True,
        cwd=bench.desk.workspace,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_harbor_runs_a_task_and_reads_what_it_used(
    bench: Callable[..., Bench], harbor_python: str
) -> None:
    here = bench(worker(2))
    found = run(harbor_python, here)
    assert (found["version"], found["error"]) == (__version__, None)
    assert (found["n_input_tokens"], found["n_output_tokens"]) == (200, 20)
    assert found["metadata"] == {"failure": None, "turns": 2, "tool_calls": 1}
    assert found["steps"][-2:] == ["agent", "agent"]
    assert 'it\'s a "task-1" $HOME' in json.dumps(here.server.requests[0].body).replace('\\"', '"')


def test_harbor_learns_what_kind_of_error_it_was(
    bench: Callable[..., Bench], harbor_python: str
) -> None:
    here = bench(lambda body: Fail(400, "invalid_prompt", "no"))
    found = run(harbor_python, here)
    assert found["error"].startswith("UnknownApiError: model_error: ")
    assert found["metadata"]["failure"] == "model_error"
