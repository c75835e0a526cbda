"""Nothing of ours stays in the user's folders, whatever ends us, and git sees nothing of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.machine import script
from tests.sandbox.conftest import GIT, HERE, as_user, environment

from toolrest.config.loader import load
from toolrest.config.new_folder import NewFolder, new_folder
from toolrest.config.trust import git_root
from toolrest.mcp.json_files import project_servers
from toolrest.private_files import is_placeholder, project_has
from toolrest.process.helper.tree import children, descendants
from toolrest.sandbox.guard.placeholders import MountPoints

pytestmark = pytest.mark.needs("namespaces")

NAMES = {".agents", ".codex", ".envrc", ".mcp.json", ".toolrest", ".vscode"}
WAITS = "while [ ! -e go ]; do sleep 0.05; done"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def work(place: Path, user: str) -> Path:
    """A repository with a file that is committed and one that is not."""
    for name in ("home", "work", "elsewhere"):
        (place / name).mkdir()
    made = place / "work"
    (made / "a.txt").write_text("a")
    git(made, "init", "-q")
    git(made, "add", ".")
    git(made, "commit", "-q", "-m", "x")
    (made / "new.txt").write_text("b")
    for path in (place / "home", place / "elsewhere", made, *made.rglob("*")):
        os.chown(path, place.stat().st_uid, place.stat().st_gid)
    return made


@pytest.fixture
def start(work: Path, python: str, user: str) -> Iterator[Start]:
    """Start a session in the repository, or elsewhere, which runs these lines and then waits."""
    running: list[subprocess.Popen[str]] = []

    def started(*lines: str, where: Path = work) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [python, script(HERE / "killed.py"), str(where), *lines],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(work.parent / "home") | GIT,
            start_new_session=True,
            **as_user(user),
        )
        running.append(process)
        return process

    yield started
    for process in running:
        process.kill()
        process.communicate()


def git(folder: Path, *words: str) -> str:
    argv = ["git", "-c", "safe.directory=*", *words]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder.parent / "home"), **GIT}
    return subprocess.run(
        argv, cwd=folder, env=env, check=True, capture_output=True, text=True
    ).stdout


def entries(folder: Path) -> set[str]:
    found = os.walk(folder)
    return {os.path.join(at, name) for at, *both in found for names in both for name in names}


def until(what: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


def held(work: Path) -> bool:
    return set(os.listdir(work)) >= NAMES


def inside_runs(process: subprocess.Popen[str]) -> bool:
    """Whether the command itself runs, beyond the probe of the sandbox."""
    for pid in descendants(process.pid):
        try:
            if b"[ ! -e" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_session_killed_while_a_command_runs_leaves_nothing_failed_before(
    work: Path, start: Start, whole_group: bool
) -> None:
    before = entries(work)
    session = start(WAITS)
    until(lambda: inside_runs(session) and held(work))
    (os.killpg if whole_group else os.kill)(session.pid, signal.SIGKILL)
    until(lambda: entries(work) == before)


def test_a_session_killed_between_commands_leaves_nothing(work: Path, start: Start) -> None:
    before = entries(work)
    session = start("true")
    assert session.stdout is not None
    until(lambda: session.stdout is not None and session.stdout.readline() == "done\n")
    session.kill()
    session.wait()
    until(lambda: entries(work) == before)


@pytest.mark.slow
def test_a_session_killed_at_any_moment_leaves_nothing_failed_before(
    work: Path, start: Start, full: bool
) -> None:
    """While the sandbox is tried out, while a command starts, runs or ends."""
    before = entries(work)
    for milliseconds in (0, 1, 2, 4, 8, 16, 32, 64) * (3 if full else 1):
        session = start(*["true"] * 20)
        until(lambda: entries(work) != before)
        time.sleep(random.uniform(0.5, 1) * milliseconds / 1000)
        session.kill()
        session.wait()
        until(lambda: entries(work) == before)


@pytest.mark.slow
def test_nor_one_of_which_a_forked_copy_lives_on_for_a_while_failed_before(
    work: Path, start: Start
) -> None:
    """It has the locks, as has each child that is yet to exec."""
    before = entries(work)
    session = start("fork", WAITS)
    assert session.stdout is not None
    assert session.stdout.readline() == "forked\n"
    session.kill()
    session.wait()
    until(lambda: entries(work) == before)


def test_what_the_user_makes_meanwhile_stays_when_the_session_is_killed(
    work: Path, start: Start
) -> None:
    session = start(WAITS)
    until(lambda: inside_runs(session) and held(work))
    before = entries(work)
    (work / ".vscode/settings.json").touch()
    (work / ".agents").rmdir()
    (work / ".agents").mkdir()
    for name in (".envrc", ".mcp.json"):
        (work / name).unlink()
        (work / name).touch()
    (work / ".mcp.json").write_text("{}")
    mine = {".vscode", ".vscode/settings.json", ".agents", ".envrc", ".mcp.json"}
    gone = {str(work / name) for name in NAMES - mine}
    session.kill()
    session.wait()
    kept = {str(work / name) for name in mine}
    until(lambda: not gone & entries(work))
    assert entries(work) & {*kept, *gone} == kept
    assert {path for path in before - entries(work) if "/.git/" not in path} == gone


@pytest.mark.slow
def test_what_is_left_when_the_helper_was_killed_too_goes_with_the_next_session_failed_before(
    work: Path, start: Start
) -> None:
    before = entries(work)
    session = start(WAITS)
    until(lambda: inside_runs(session) and held(work))
    for pid in (*children(session.pid), session.pid):
        os.kill(pid, signal.SIGSTOP)
    for pid in (*children(session.pid), session.pid):
        os.kill(pid, signal.SIGKILL)
    session.wait()
    assert held(work)
    start("true", where=work.parent / "elsewhere")
    until(lambda: entries(work) == before)


@pytest.mark.slow
def test_of_two_sessions_in_a_folder_the_living_one_keeps_its_placeholders(
    work: Path, start: Start
) -> None:
    (work / "try").write_text("mkdir .vscode; echo x > .vscode/tasks; echo x > .envrc; echo end")
    before = entries(work)
    dying = start(WAITS)
    until(lambda: inside_runs(dying) and held(work))
    living = start(f"{WAITS}; sh try")
    until(lambda: inside_runs(living))
    gone = descendants(dying.pid)
    dying.kill()
    dying.wait()
    until(lambda: not any(map(os.path.exists, map("/proc/{}".format, gone))))
    assert held(work)
    (work / "go").touch()
    assert living.stdout is not None
    text = "".join(iter(living.stdout.readline, "done\n"))
    assert "end\n" in text
    assert text.count("Read-only file system") == 2, text
    (work / "go").unlink()
    until(lambda: entries(work) == before)


@pytest.mark.slow
def test_two_sessions_killed_in_one_folder_leave_nothing_failed_before(
    work: Path, start: Start
) -> None:
    before = entries(work)
    sessions = [start(WAITS), start(WAITS)]
    until(lambda: all(map(inside_runs, sessions)) and held(work))
    for session in sessions:
        session.kill()
    until(lambda: entries(work) == before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("below", "exclude"), [("", "new.txt\n"), ("", None), ("sub", "new.txt\n"), ("", "gone")]
)
def test_git_status_inside_and_outside_is_what_it_was(
    work: Path, start: Start, below: str, exclude: str | None
) -> None:
    """Nor does it differ where the repository has no file of its own for what git leaves out."""
    file = work / ".git/info/exclude"
    file.unlink()
    if exclude == "gone":
        file.parent.rmdir()
    elif exclude is not None:
        file.write_text(exclude)
    (work / "sub/deep").mkdir(parents=True)
    (work / "sub/deep/.envrc").touch()
    (work / "sub/x").touch()
    for path in (file, *(work / "sub").rglob("*"), work / "sub"):
        if path.exists():
            os.chown(path, work.stat().st_uid, work.stat().st_gid)
    before = git(work, "status", "--porcelain", "-uall")
    status = "git -C $(git rev-parse --show-toplevel) status --porcelain -uall"
    session = start(f"{WAITS}; rm -f go; {status}", where=work / below)
    until(lambda: inside_runs(session) and held(work / below))
    assert git(work, "status", "--porcelain", "-uall") == before
    (work / below / "go").touch()
    assert session.stdout is not None
    text = "".join(iter(session.stdout.readline, "done\n"))
    assert text.partition("Output:\n")[2].split() == before.split(), text


def test_placeholders_have_the_kind_of_what_they_stand_for_failed_before(
    work: Path, start: Start
) -> None:
    names = " ".join(sorted(NAMES))
    session = start(f"stat -c '%n %F' {names}; cat .mcp.json .envrc; echo x >> .envrc")
    assert session.stdout is not None
    text = "".join(iter(session.stdout.readline, "done\n"))
    for name in NAMES:
        kind = "directory"
        if name in (".mcp.json", ".envrc"):
            kind = "regular empty file" if name == ".envrc" else "regular file"
        assert f"{name} {kind}\n" in text, text
    assert '{"mcpServers": {}}\n' in text
    assert "Read-only file system" in text


def test_our_own_code_takes_no_placeholder_for_the_projects_own_failed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLREST_HOME", str(tmp_path / "home"))
    root = tmp_path / "root"
    root.mkdir()
    points = MountPoints(str(tmp_path / "registry"), str(root))
    names = [str(root / name) for name in (".git", ".toolrest", ".agents")]
    points.acquire(names, {str(root / ".mcp.json"): b"", str(root / ".envrc"): b""})
    assert len(os.listdir(root)) == 5
    assert all(is_placeholder(str(path)) for path in root.iterdir())
    assert git_root(str(root)) != str(root)
    config = load(workspace=root, surface="cli")
    assert new_folder(config) == NewFolder(str(root), (), "")
    warnings: list[str] = []
    assert list(project_servers(str(root), True, warnings)) == []
    assert warnings == []
    points.release()
    (root / ".mcp.json").write_text("{}")
    assert project_has(str(root / ".mcp.json"))
    assert new_folder(config) == NewFolder(str(root), (str(root / ".mcp.json"),), "")
