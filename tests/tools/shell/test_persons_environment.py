"""Commands find what the shell that started Toolrest finds, whatever its login profile says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pip
import pytest
from tests.machine import require, solid_ground

from toolrest import Toolrest
from toolrest.gate.approval.request import ApprovalRequest

pytestmark = [pytest.mark.needs("sandbox"), pytest.mark.slow]

PYTEST = "import sys; print('pytest of', sys.prefix)\n"
RESET = "PATH=/usr/local/bin:/usr/bin:/bin; export PATH\n"


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that commands see; its login profile sets PATH anew, as Debian's does."""
    with tempfile.TemporaryDirectory(dir=solid_ground()) as made:
        (Path(made) / ".profile").write_text(RESET)
        yield Path(made)


@pytest.fixture
def venv(home: Path) -> Path:
    """A workspace's own virtual environment, with a module in place of pytest."""
    made = home / "tea-shop" / ".venv"
    python = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([python, "-m", "venv", "--without-pip", made], check=True)
    (packages,) = made.glob("lib/python*/site-packages")
    (packages / "pytest.py").write_text(PYTEST)
    return made


def active(venv: Path, home: Path) -> dict[str, str]:
    """The environment of a shell in which that environment is active."""
    env = {**os.environ, "HOME": str(home), "VIRTUAL_ENV": str(venv)}
    return env | {"PATH": f"{venv}/bin:{home}/.cargo/bin:/usr/bin:/bin"}


def session(workspace: Path, env: dict[str, str], **options: Any) -> Toolrest:
    options = {"approval_policy": "never", "sandbox_mode": "workspace-write", **options}
    return Toolrest(workspace, env=env, tools=["all"], **options)


def wheel(folder: Path) -> Path:
    """A package to install, with nothing in it."""
    made = folder / "tea-1.0-py3-none-any.whl"
    about = {
        "METADATA": "Metadata-Version: 2.1\nName: tea\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("tea.py", "")
        for name, text in about.items():
            archive.writestr(f"tea-1.0.dist-info/{name}", text)
    return made


@pytest.mark.needs("namespaces")
def test_installing_beside_toolrest_fails_and_says_what_to_do(venv: Path, home: Path) -> None:
    """Toolrest in the project's own virtual environment, which no command may change."""
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "dev.pth").write_text("\n".join(p for p in sys.path if os.path.isdir(p)))
    shutil.copytree(Path(pip.__file__).parent, packages / "pip")  # the checkout may lie in /tmp
    made = wheel(venv.parent)
    env = active(venv, home) | {"TOOLREST_HOME": f"{home}/.toolrest", "PIP_CONFIG_FILE": os.devnull}

    def toolrest(*words: str) -> str:
        argv = [f"{venv}/bin/python", "-m", "toolrest", *words]
        done = subprocess.run(argv, cwd=venv.parent, env=env, capture_output=True, text=True)
        return done.stdout + done.stderr

    toolrest("trust")
    line = (
        f"python -m pip install --no-index --no-deps --no-cache-dir --force-reinstall ./{made.name}"
    )
    said = toolrest("call", "exec_command", json.dumps({"cmd": line}))
    assert "Read-only file system" in said
    note = next(row for row in said.splitlines() if row.startswith("[toolrest]"))
    assert f"Toolrest itself runs from {venv}, which no command may change" in note
    assert "`pipx install toolrest` or `uv tool install toolrest`" in note
    (warning,) = [
        row for row in toolrest("doctor", "-v").splitlines() if "Toolrest itself lies" in row
    ]
    assert "`pipx install toolrest` or `uv tool install toolrest`" in warning


MODES = [
    ("workspace-write", None),
    ("read-only", None),
    ("workspace-write", "landlock"),
    ("danger-full-access", None),
]


@pytest.mark.parametrize(("mode", "kind"), MODES)
@pytest.mark.parametrize("state", ["", "umask 077\n", "yes | head -c 3000000\n"])
async def test_an_active_virtual_environment_is_the_one_that_commands_find(
    venv: Path, home: Path, mode: str, kind: str | None, state: str, monkeypatch: Any
) -> None:
    """`python -m pytest` was the system's Python, for every login profile that sets PATH."""
    if kind == "landlock":
        require("landlock")
        monkeypatch.setattr("toolrest.sandbox.confine.bwrap_programs", lambda roots: ())
    (home / ".profile").write_text(RESET + state)
    async with session(venv.parent, active(venv, home), sandbox_mode=mode) as rest:
        for shell in ("bash", "sh"):
            call = {"cmd": "python -m pytest; echo $VIRTUAL_ENV", "shell": shell}
            output = await rest.call("exec_command", call)
            assert f"pytest of {venv}\n{venv}\n" in output.text, output.text


async def test_what_the_profile_adds_comes_after(venv: Path, home: Path) -> None:
    (home / ".profile").write_text(f"{RESET}PATH=$HOME/bin:$PATH\nexport NVM_DIR=$HOME/.nvm\n")
    env = active(venv, home)
    async with session(venv.parent, env) as rest:
        output = await rest.call("exec_command", {"cmd": "echo $PATH $NVM_DIR"})
    assert f"{env['PATH']}:{home}/bin:/usr/local/bin {home}/.nvm\n" in output.text


MANAGERS = {
    "ASDF_DATA_DIR": "asdf",
    "CONDA_DEFAULT_ENV": "conda/envs/tea",
    "CONDA_PREFIX": "conda/envs/tea",
    "CONDA_SHLVL": "2",
    "DIRENV_DIFF": "eJxsz0FOwzAQheGzvHUsxkkap5a6QCzZcYOxPW4jHDvYDhSq3h2VLhAS61n8831_",
    "DIRENV_DIR": "-/w",
    "JAVA_HOME": "sdkman/candidates/java/21",
    "MISE_SHELL": "bash",
    "NVM_BIN": "nvm/versions/node/v22/bin",
    "NVM_DIR": "nvm",
    "PYENV_ROOT": "pyenv",
    "PYENV_VERSION": "3.12.1",
    "RBENV_VERSION": "3.3.0",
    "SDKMAN_CANDIDATES_DIR": "sdkman/candidates",
    "SDKMAN_DIR": "sdkman",
    "VIRTUAL_ENV": "venv",
    "VIRTUAL_ENV_PROMPT": "tea",
    "__MISE_DIFF": "eAFrXJyfk9KwOC+1vGFJQWJJxsK0osz8vOKGxQUlmSXxOYkl+RkA",
}


async def test_version_managers_have_their_variables_as_the_starting_shell_had_them(
    venv: Path, home: Path
) -> None:
    """A profile that starts conda, nvm and the others once more set their defaults again."""
    again = "".join(f"export {name}=default\n" for name in MANAGERS)
    (home / ".profile").write_text(RESET + again)
    env = active(venv, home) | MANAGERS
    async with session(venv.parent, env) as rest:
        output = await rest.call("exec_command", {"cmd": "env", "max_output_tokens": 20_000})
    found = dict(line.split("=", 1) for line in output.text.splitlines() if "=" in line)
    assert {name: found.get(name) for name in MANAGERS} == MANAGERS


async def test_a_program_of_the_workspace_is_no_plain_read_and_no_rules(
    venv: Path, home: Path, toolrest_home: Path
) -> None:
    (toolrest_home / "rules").mkdir()
    lines = '\nprefix_rule(pattern=["pytest"])\nprefix_rule(pattern=["git", "status"])\n'
    (toolrest_home / "rules" / "default.rules").write_text(lines)
    for name in ("ls", "pytest", "git"):
        program = venv / "bin" / name
        program.write_text(f"#!/bin/sh\necho the workspace\\'s {name}\n")
        program.chmod(0o755)
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    options: dict[str, Any] = {"approval_policy": "untrusted", "on_ask": approve}
    async with session(venv.parent, active(venv, home), **options) as rest:
        for line in ("ls", "pytest", "git status"):
            output = await rest.call("exec_command", {"cmd": line})
            assert f"the workspace's {line.split()[0]}" in output.text
            assert output.metadata["sandbox"] != "none"
    assert [request.command[-1] for request in asked] == ["ls", "pytest", "git status"]
    assert "rule" not in {choice.scope for request in asked for choice in request.choices}
