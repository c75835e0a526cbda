"""Worktrees of tasks: which commit they have, what a patch of one has, errors of git."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.batch.conftest import Bench, worker
from tests.batch.test_tasks import repository

from toolrest.batch.failures import Retry
from toolrest.batch.run_task import RunOptions, run_task
from toolrest.batch.stores.store import FolderStore
from toolrest.batch.tasks import workspace as workspace_module
from toolrest.batch.tasks.task import BatchTask, read_tasks
from toolrest.batch.tasks.workspace import (
    Workspace,
    WorkspaceError,
    Workspaces,
    WorkspaceUnavailable,
)


def git(folder: Path | str, *words: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with two commits."""
    repository(tmp_path / "source")
    return tmp_path / "source"


def commit(source: Path, text: str) -> str:
    (source / "a.txt").write_text(text)
    git(source, "add", ".")
    git(source, "commit", "-qm", text)
    return git(source, "rev-parse", "HEAD")


class Place:
    """The worktrees of one machine."""

    def __init__(self, source: Path | str, scratch: Path) -> None:
        self.source, self.workspaces = str(source), Workspaces(str(scratch))
        self.index = str(scratch.parent / "index")

    async def make(self, name: str, wanted: str | None = None, base: Any = None) -> Workspace:
        task = BatchTask(name, "p", None, repo=self.source, commit=wanted)
        return await self.workspaces.make(task, name, base)

    async def patch(self, made: Workspace) -> bytes:
        return (await self.workspaces.patch(made, self.index)).data


@pytest.fixture
def place(source: Path, tmp_path: Path) -> Place:
    return Place(source, tmp_path / "scratch")


def next_run() -> None:
    """As in a process that has fetched nothing yet."""
    workspace_module._fetched.clear()


@pytest.mark.parametrize("wanted", [None, "HEAD", "branch"])
async def test_a_new_run_begins_at_the_newest_commit(
    place: Place, source: Path, wanted: str | None
) -> None:
    git(source, "checkout", "-qb", "branch")
    first = await place.make("first", wanted)
    newest = commit(source, "newest")
    next_run()
    assert (await place.make("second", wanted)).base == newest
    assert (await place.make("first", wanted, first.base)).base == first.base, "it goes on"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["another branch", "no branch"])
async def test_head_is_the_repositorys_own(place: Place, source: Path, how: str) -> None:
    git(source, "checkout", "-q", "--detach")
    await place.make("first")
    if how == "another branch":
        git(source, "checkout", "-qb", "trunk")
    newest = commit(source, "newest")
    next_run()
    assert (await place.make("second")).base == newest
    assert (await place.make("third", "HEAD~1")).base == git(source, "rev-parse", "HEAD~1")


@pytest.mark.slow
async def test_a_mirror_is_fetched_once_a_run(
    place: Place, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = (await place.make("first")).base
    next_run()
    ran: list[str] = []
    real = workspace_module._git

    async def counted(git_dir: str | None, *words: str, **options: Any) -> bytes:
        ran.append(" ".join(words))
        return await real(git_dir, *words, **options)

    monkeypatch.setattr(workspace_module, "_git", counted)
    assert (await place.make("known", base)).base == base
    assert not any(words.startswith("fetch") for words in ran), "a full name needs no fetch"
    await asyncio.gather(*(place.make(f"task-{number}") for number in range(3)))
    assert sum("--prune" in words for words in ran) == 1


@pytest.mark.slow
async def test_a_commit_of_no_branch_is_fetched_by_its_name(place: Place, source: Path) -> None:
    await place.make("first")
    git(source, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(source, "checkout", "-q", "--detach")
    lost = commit(source, "of no branch")
    git(source, "checkout", "-q", "-")
    assert (await place.make("second", lost)).base == lost


async def test_a_branch_that_came_later_is_fetched(place: Place, source: Path) -> None:
    await place.make("first")
    git(source, "checkout", "-qb", "later")
    newest = commit(source, "newest")
    assert (await place.make("second", "later")).base == newest


@pytest.mark.parametrize("wanted", ["nosuch", "0" * 40, "1a2b3c4"])
async def test_a_commit_that_does_not_exist_is_final(place: Place, wanted: str) -> None:
    for _ in range(2):
        with pytest.raises(WorkspaceError, match=f"has no commit {wanted}") as caught:
            await place.make("a", wanted)
        assert not isinstance(caught.value, WorkspaceUnavailable)


async def test_a_repository_that_does_not_exist_is_final(tmp_path: Path) -> None:
    (tmp_path / "no repository").mkdir()
    for name in ("nosuch", "no repository"):
        with pytest.raises(WorkspaceError, match=name) as caught:
            await Place(tmp_path / name, tmp_path / "scratch").make("a")
        assert not isinstance(caught.value, WorkspaceUnavailable)


@asynccontextmanager
async def http(status: str) -> AsyncIterator[str]:
    """A git server that answers every request with a status; its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/app"


@pytest.mark.parametrize(
    ("status", "is_final"),
    [("503 Service Unavailable", False), ("404 Not Found", True), ("429 Too Many Requests", False)],
)
async def test_an_error_of_the_git_server_may_pass(
    tmp_path: Path, status: str, is_final: bool
) -> None:
    async with http(status) as url:
        with pytest.raises(WorkspaceError) as caught:
            await Place(url, tmp_path / "scratch").make("a")
    assert isinstance(caught.value, WorkspaceUnavailable) is not is_final, caught.value


@pytest.mark.slow
async def test_a_fetch_that_fails_is_named_and_tried_again(
    place: Place, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.make("first")
    (mirror,) = (tmp_path / "scratch" / "mirrors").glob("*.git")
    git(mirror, "config", "remote.origin.url", "http://127.0.0.1:1/app")
    next_run()
    for wanted in (None, "main", "0" * 40):
        with pytest.raises(WorkspaceUnavailable, match=r"git fetch: .*http://127\.0\.0\.1:1/app"):
            await place.make("second", wanted)

    waits: list[float] = []

    def wait(self: Retry, time: int) -> float:
        waits.append(time)
        if time == 1:
            git(mirror, "config", "remote.origin.url", str(source))
        return 0.0

    monkeypatch.setattr(Retry, "wait", wait)
    monkeypatch.setenv("TOOLREST_HOME", str(tmp_path / "home"))
    task = BatchTask("t", "p", None, {"profile": "nosuch"}, repo=str(source))
    options = RunOptions(scratch=str(tmp_path / "scratch"))
    end = await run_task(task, FolderStore(str(tmp_path / "store")), options)
    assert end.result is not None
    outcomes = [row["outcome"] for row in end.result["attempts"]]
    assert outcomes == ["workspace", "workspace", "usage"], "the connection came back"
    assert waits == [0, 1]


async def test_a_full_disk_is_tried_again_and_the_path_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Retry, "wait", lambda *_: 0.0)
    monkeypatch.setenv("TOOLREST_HOME", str(tmp_path / "home"))
    errors = [
        OSError(errno.ENOSPC, "No space left on device", "/scratch/x"),
        WorkspaceUnavailable("git worktree: fatal: No space left on device"),
        PermissionError(errno.EACCES, "Permission denied", "/scratch/y"),
        PermissionError(errno.EACCES, "Permission denied", "/scratch/y"),
    ]

    async def failing(*_: Any, **__: Any) -> Workspace:
        raise errors.pop(0)

    monkeypatch.setattr(Workspaces, "make", failing)
    task = BatchTask("t", "p", None, repo=str(source))
    end = await run_task(task, FolderStore(str(tmp_path / "store")), RunOptions())
    assert end.result is not None
    outcomes = [row["outcome"] for row in end.result["attempts"]]
    assert outcomes == ["workspace", "workspace", "internal", "internal"]
    assert end.result["error"] == "/scratch/y: Permission denied"


def test_what_git_says_of_a_full_disk_is_no_wrong_commit() -> None:
    message = "fatal: cannot create directory at 'x': No space left on device"
    error = workspace_module._failed(("worktree", "add"), message)
    assert isinstance(error, WorkspaceUnavailable)
    assert not isinstance(workspace_module._failed(("apply",), "no"), WorkspaceUnavailable)


def test_a_run_says_that_the_repository_cannot_be_reached(bench: Callable[..., Bench]) -> None:
    here = bench(worker(1))
    here.tasks(1, repo="http://127.0.0.1:1/app")
    ran = here.run("--retries", "workspace=0")
    assert "task-0: workspace: git clone: " in ran.err
    assert (here.store / "failed" / "task-0.workspace").exists()


async def test_filters_of_the_users_settings_are_no_changes(
    source: Path, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text(
        "[core]\n\tautocrlf = true\n"
        '[filter "up"]\n\tsmudge = tr a-z A-Z\n\tclean = tr A-Z a-z\n\trequired = true\n'
    )
    (source / ".gitattributes").write_text("*.up filter=up\n")
    (source / "b.up").write_text("pointer\n")
    commit(source, "first\nsecond\n")
    home = tmp_path / "user"
    home.mkdir()
    settings.rename(home / ".gitconfig")
    monkeypatch.setenv("HOME", str(home))
    made = await place.make("a")
    assert await place.patch(made) == b""
    assert Path(made.path, "b.up").read_text() == "pointer\n"
    assert Path(made.path, "a.txt").read_bytes() == b"first\nsecond\n"


@pytest.mark.parametrize("name", ["yarn.lock", "a..b", "a.lock.lock", "v1.", "v1.2"])
async def test_ids_that_git_would_change_have_a_patch(place: Place, name: str) -> None:
    made = await place.make(name)
    assert made.git_dir is not None
    assert os.path.isdir(made.git_dir)
    Path(made.path, "new.txt").write_text("new\n")
    assert b"+new" in await place.patch(made)
    again = await place.make(name, None, made.base)
    assert (again.path, again.is_new) == (made.path, False)
    place.workspaces.remove(again)
    assert not os.path.exists(made.git_dir)


@pytest.mark.slow
async def test_ids_that_are_alike_have_worktrees_of_their_own(place: Place) -> None:
    paths = {(await place.make(name)).path for name in ("a.b", "a_b", "a..b", "a.b-c")}
    assert len(paths) == 4


async def test_a_relative_repository_is_that_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two projects with the same task file do not share a mirror."""
    for name in ("one", "two"):
        repository(tmp_path / name)
        commit(tmp_path / name, name)
        (tmp_path / name / "tasks").write_text('{"prompt": "p", "repo": "."}')
        monkeypatch.chdir(tmp_path / name)
        (task,) = read_tasks("tasks")
        assert task.repo == str(tmp_path / name)
        made = await Place(".", tmp_path / "scratch").make(name)
        assert (Path(made.path) / "a.txt").read_text() == name


async def test_changes_that_are_too_many_are_not_copied(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would fill the disk of the mirror and the memory of the batch."""
    monkeypatch.setattr(workspace_module, "_MOST_BYTES", 10_000)
    made = await place.make("a")
    with (Path(made.path) / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(WorkspaceError, match="changed files are more than"):
        await place.patch(made)
    (Path(made.path) / ".gitignore").write_text("large\n")
    assert b"large" in await place.patch(made)


async def test_a_patch_leaves_nothing_in_the_mirror(place: Place, tmp_path: Path) -> None:
    """Copies of a patch are made all the time while a task runs."""
    made = await place.make("a")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    (new := Path(made.path) / "new.txt").write_text("new\n")
    assert b"+new" in await place.patch(made)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before | {new}


@pytest.mark.parametrize("helper", ["ours::{}", "ours://{}", "fd::0", "ext::true"])
async def test_a_remote_helper_is_never_started(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helper: str
) -> None:
    """git would start `git-remote-ours` from PATH, in the user's rights."""
    program = tmp_path / "bin" / "git-remote-ours"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n: > {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    place = Place(helper.format(source), tmp_path / "scratch")
    with pytest.raises(WorkspaceError, match="not allowed"):
        await place.make("a")
    assert not (tmp_path / "started").exists()
