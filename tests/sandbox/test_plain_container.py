"""Where no namespaces can be had: what still works in a plain container, and what is said there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.machine import REPOSITORY

from toolrest.sandbox.kernel.landlock_rules import OPEN

CONTAINER = str(REPOSITORY / "tests" / "plain_container.py")
BESIDE = Path(sys.executable).parent
LANDLOCK = pytest.param(True, marks=pytest.mark.needs("landlock"))


def in_container(*command: str, landlock: bool, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the rights of a plain container."""
    options = [] if landlock else ["--no-landlock"]
    return subprocess.run(
        [sys.executable, CONTAINER, *options, "--", *command],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


@pytest.mark.parametrize("landlock", [LANDLOCK, False])
def test_a_plain_container_can_do_no_more_than_docker_lets_it(
    tmp_path: Path, landlock: bool
) -> None:
    code = (
        "import os; from tests import machine\n"
        "tries = ('unshare -Ur true', 'unshare -m true', 'mount -t tmpfs x /mnt')\n"
        "print([os.system(line + ' 2>&-') == 0 for line in tries], machine.lacking())"
    )
    done = in_container(sys.executable, "-c", code, landlock=landlock, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[False, False, False]")
    assert "'namespaces': True" in done.stdout
    assert f"'landlock': {not landlock}" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("landlock", [LANDLOCK, False])
def test_the_demo_works_in_a_plain_container_and_says_what_is_open(
    tmp_path: Path, landlock: bool
) -> None:
    done = in_container(str(BESIDE / "toolrest"), "demo", landlock=landlock, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first = done.stdout[: done.stdout.index("> The tests of this project")]
    if landlock:
        assert first.startswith("sandbox: landlock; not everything is enforced:\n")
        assert "  reads: hidden files inside a writable root, such as .env, can be read" in first
    else:
        assert first.startswith("sandbox: none works here:\n  bubblewrap")
        assert "external mode" in first
        assert 'sandbox_mode = "danger-full-access"' in first
    assert "SHOP_API_KEY=[redacted:SHOP_API_KEY]" in done.stdout
    assert "Nothing hides .env from commands on this machine" in done.stdout
    assert "Both tests pass now" in done.stdout


@pytest.mark.slow
def test_without_a_sandbox_commands_are_refused_unless_the_person_says_otherwise(
    tmp_path: Path,
) -> None:
    toolrest = str(BESIDE / "toolrest")
    call = ("call", "exec_command", '{"cmd": "echo ran"}', "-C", str(tmp_path))
    refused = in_container(toolrest, *call, landlock=False, cwd=tmp_path)
    assert refused.returncode != 0
    assert "ran" not in refused.stdout.split()
    assert "`toolrest doctor` says what is missing" in refused.stdout + refused.stderr
    allowed = in_container(
        toolrest, *call, "-s", "danger-full-access", landlock=False, cwd=tmp_path
    )
    assert (allowed.returncode, "ran" in allowed.stdout.split()) == (0, True), allowed.stdout


@pytest.mark.slow
@pytest.mark.needs("landlock")
def test_doctor_says_why_a_session_would_use_nothing(tmp_path: Path) -> None:
    toolrest = str(BESIDE / "toolrest")
    around = str(Path(sys.prefix).parent)  # the folder that Toolrest's own environment lies in
    done = in_container(toolrest, "doctor", "-v", "-C", around, landlock=True, cwd=tmp_path)
    assert done.returncode == 1
    after = done.stdout[done.stdout.index("a session uses: nothing; commands are refused\n") :]
    assert "\n  because of bubblewrap (bundled): " in after
    own = re.search(r"\n  because of landlock: own_files: (.+) is part of Toolrest", after)
    assert own is not None, after
    assert Path(own[1]).is_relative_to(around)
    assert "reads: partial" in done.stdout


@pytest.mark.needs("namespaces")
def test_the_demo_is_unconfined_only_where_no_sandbox_works(tmp_path: Path) -> None:
    toolrest = str(BESIDE / "toolrest")
    done = subprocess.run(
        [toolrest, "demo"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": sys.prefix},  # which no command may write
        check=False,
    )
    assert done.returncode != 0
    assert "a writable root lies in Toolrest's own files" in done.stderr
    assert "external" not in done.stdout


@pytest.mark.slow
@pytest.mark.needs("landlock")
def test_doctor_knows_what_the_settings_require(
    tmp_path: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-key-0123456789")
    (toolrest_home / "config.toml").write_text(
        '[sandbox]\nrequire = ["writes", "network", "own_files", "protected_paths"]\n'
    )
    toolrest = str(BESIDE / "toolrest")
    done = in_container(toolrest, "doctor", "-v", "-C", str(tmp_path), landlock=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "\n  because of landlock: protected_paths: " in done.stdout
    (toolrest_home / "config.toml").write_text('sandbox_mode = "danger-full-access"\n')
    done = in_container(toolrest, "doctor", "-v", "-C", str(tmp_path), landlock=False, cwd=tmp_path)
    assert done.returncode == 0
    assert "commands run unconfined" in done.stdout


PUT_BACK = {
    "agents_dir": "mkdir .agents && echo x > .agents/a",
    "codex_dir": "mkdir .codex && echo x > .codex/config.toml",
    "git_config": "echo x >> .git/config",
    "git_hooks": "echo x > .git/hooks/pre-commit",
    "git_rename": 'python3 -c \'import os, shutil; os.rename(".git", "old"); '
    'shutil.copytree("old", ".git"); open(".git/hooks/pre-commit", "w").write("x")\'',
}
"""Rows of the escape matrix that are open there, and put back in a session."""
STAYS = {"git_create_absent", "gitfile_create_absent"}
"""A git folder that a command makes stays; hooks in it that would run are moved aside."""
REFUSED = {"git_symlink"}
"""With a `.git` that is a link no command runs."""


@pytest.mark.slow
@pytest.mark.needs("landlock")
@pytest.mark.parametrize("row", PUT_BACK)
def test_an_open_row_of_the_escape_matrix_is_put_back(tmp_path: Path, row: str) -> None:
    assert {name for name, why in OPEN.items() if ".git" in why or "protected" in why} == {
        *PUT_BACK,
        *STAYS,
        *REFUSED,
    }
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q", work], check=True)

    def protected() -> dict[str, bytes]:
        names = (work / name for name in (".git/hooks", ".git/config", ".agents", ".codex"))
        found = (path for name in names for path in (name, *name.rglob("*")))
        return {str(path): path.read_bytes() if path.is_file() else b"" for path in found
                if path.exists()}  # fmt: skip

    before = protected()
    more = ("-C", str(work), "-s", "workspace-write", "-a", "never")

    def run(line: str) -> subprocess.CompletedProcess[str]:
        call = ("call", "exec_command", json.dumps({"cmd": line}))
        return in_container(str(BESIDE / "toolrest"), *call, *more, landlock=True, cwd=work)

    if "python3" not in PUT_BACK[row]:  # it names what it writes
        refused = run(PUT_BACK[row])
        assert "not locked in this weak sandbox" in refused.stdout, refused.stdout
        assert protected() == before
    code = f"import os, sys; sys.exit(os.system(bytes.fromhex('{PUT_BACK[row].encode().hex()}')))"
    done = run(f'python3 -c "{code}"')
    assert "exited with code 0" in done.stdout, done.stdout + done.stderr
    assert "[toolrest] Put back: " in done.stdout
    assert protected() == before
