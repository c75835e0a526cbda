"""Sessions side by side: none takes away what keeps another's commands from git's own files."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.sandbox.confine import Confined, SessionSandbox
from toolrest.sandbox.guard.root import Root
from toolrest.sandbox.policy import SandboxPolicy

pytestmark = pytest.mark.needs("namespaces")

ENV = {"PATH": "/usr/bin:/bin"}
PLANT = """
mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo x > .git/commondir; echo x > .git/config
mkdir -p .git/info; echo x > .git/info/attributes; true
"""

Open = Callable[[Path], SessionSandbox]


@pytest.fixture
def base(ground: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=ground))


@pytest.fixture
def opened(base: Path) -> Open:
    """Sessions with a registry in common, as those of one user have."""

    def session(workspace: Path) -> SessionSandbox:
        own = tempfile.mkdtemp(dir=base)
        policy = SandboxPolicy.build(str(workspace), own)
        return SessionSandbox(policy, backend="bubblewrap", registry=str(base / "registry"))

    return session


@pytest.fixture
def repository(base: Path) -> Path:
    """As a template without hooks makes it."""
    made = base / "ws"
    made.mkdir()
    git(made, "init", "-q", "--template=")
    git(
        made,
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "x",
    )
    return made


def git(where: Path, *words: str) -> None:
    env = {**ENV, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(where)}
    subprocess.run(["git", *words], cwd=where, env=env, check=True, capture_output=True)


def held(sandbox: SessionSandbox, line: str = "true") -> Confined:
    return sandbox.confine(Command(("/bin/sh", "-c", line), sandbox.policy.workspace, ENV))


async def ran(confined: Confined, during: Callable[[], None] = lambda: None) -> str:
    """What a command said; `during` happens when it has said its first line."""
    owner = Owner()
    try:
        child = await owner.start(confined.command, merge=True)
        with os.fdopen(child.outputs[0], "rb") as stream:
            first = await asyncio.to_thread(stream.readline)
            during()
            text = first + await asyncio.to_thread(stream.read)
        await child.wait()
    finally:
        await owner.aclose()
        confined.release()
    return text.decode()


def seen(folder: Path) -> dict[str, str]:
    """The parts of a git folder that make git run something."""
    parts = ("hooks", "commondir", "info", "config")
    found = [p for name in parts for p in (folder / name, *(folder / name).rglob("*"))]
    return {
        str(p.relative_to(folder)): p.read_text() if p.is_file() else ""
        for p in found
        if p.exists()
    }


async def test_a_session_that_begins_while_another_runs_a_command(
    repository: Path, opened: Open
) -> None:
    before = seen(repository / ".git")
    assert before.keys() == {"config"}
    one, other = opened(repository), opened(repository)
    running = held(one)
    held(other).release()
    running.release()
    await ran(held(other, PLANT))
    assert seen(repository / ".git") == before


async def test_another_sessions_placeholder_goes_between_look_and_hold(
    base: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = base / "plain"
    workspace.mkdir()
    one, other = opened(workspace), opened(workspace)
    held(other).release()
    running = held(one)
    look = Root.look

    def looked(root: Root) -> None:
        look(root)
        running.release()

    monkeypatch.setattr(Root, "look", looked)
    await ran(held(other, PLANT))
    assert list(workspace.iterdir()) == []


async def test_two_worktrees_share_a_git_folder(base: Path, repository: Path, opened: Open) -> None:
    for name in ("a", "b"):
        git(repository, "worktree", "add", "-q", str(base / name))
    before = seen(repository / ".git")
    one, other = opened(base / "a"), opened(base / "b")
    first = held(one)
    line = "echo; read _ < go; cd $(git rev-parse --git-common-dir)/..;" + PLANT
    os.mkfifo(base / "b" / "go")

    def during() -> None:
        first.release()
        (base / "b" / "go").write_text("\n")

    await ran(held(other, line), during)
    assert seen(repository / ".git") == before


async def test_what_the_user_removes_between_two_commands_stays_away(
    repository: Path, opened: Open
) -> None:
    for name in ("hooks", "info"):
        (repository / ".git" / name).mkdir()
    session = opened(repository)
    held(session).release()
    for name in ("hooks", "info"):
        shutil.rmtree(repository / ".git" / name)
    (repository / ".git/config").unlink()
    await ran(held(session, PLANT))
    assert seen(repository / ".git") == {}


async def test_a_submodule_that_is_gone_stops_nothing(repository: Path, opened: Open) -> None:
    module = repository / ".git/modules/sub"
    module.mkdir(parents=True)
    (module / "HEAD").write_text("ref: refs/heads/main\n")
    session = opened(repository)
    held(session).release()
    shutil.rmtree(module)
    assert await ran(held(session, "echo works")) == "works\n"


async def test_a_link_that_leads_elsewhere_since_is_protected_there(
    base: Path, opened: Open
) -> None:
    workspace = base / "linked"
    for name in ("one", "other"):
        (workspace / name).mkdir(parents=True)
    (workspace / ".vscode").symlink_to("one")
    session = opened(workspace)
    await ran(held(session, "echo x > .vscode/tasks.json"))
    (workspace / ".vscode").unlink()
    (workspace / ".vscode").symlink_to("other")
    await ran(held(session, "echo x > .vscode/tasks.json"))
    assert [list((workspace / name).iterdir()) for name in ("one", "other")] == [[], []]
