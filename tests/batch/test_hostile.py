"""Batches whose tools, checks or stores are hostile: nothing of theirs runs, nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.batch.conftest import Bench, worker
from tests.batch.test_tasks import repository

from toolrest.batch import attempt as attempt_module
from toolrest.batch import run_task as run_task_module
from toolrest.batch.child import ChildEnd, Summary, run_child
from toolrest.batch.engine import LocalEngine, failed_keys
from toolrest.batch.failures import failure_class
from toolrest.batch.reports.retry import retry_tasks
from toolrest.batch.run_task import RunOptions, run_task
from toolrest.batch.stores.lease import Leases, Runner
from toolrest.batch.stores.store import FolderStore
from toolrest.batch.stores.totals import Totals
from toolrest.batch.tasks import nested as nested_module
from toolrest.batch.tasks.home import make_task_home
from toolrest.batch.tasks.journal import restore, used_in
from toolrest.batch.tasks.setup import TaskSetup
from toolrest.batch.tasks.task import BatchTask
from toolrest.batch.tasks.workspace import Workspace, WorkspaceError, Workspaces
from toolrest.errors import ConfigError
from toolrest.mcp.login.tokens import token_store
from toolrest.wire.http.shared_pace import SharedPace

DONE = {"status": "completed", "reason": "done", "text": "ok"}


def git(folder: Path | str, *words: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with a submodule at `sub`."""
    repository(tmp_path / "inner")
    repository(tmp_path / "source")
    url = str(tmp_path / "inner")
    git(tmp_path / "source", "-c", "protocol.file.allow=always", "submodule", "add", url, "sub")
    git(tmp_path / "source", "commit", "-qm", "with a submodule")
    return tmp_path / "source"


async def worktree(source: Path, base: Path) -> tuple[Workspaces, Workspace]:
    workspaces = Workspaces(str(base / "scratch"))
    return workspaces, await workspaces.make(BatchTask("a", "p", None, repo=str(source)), "a", None)


async def test_no_setting_of_a_submodule_runs_when_the_patch_is_taken(
    source: Path, tmp_path: Path
) -> None:
    workspaces, made = await worktree(source, tmp_path)
    sub, ran = Path(made.path, "sub"), tmp_path / "ran"
    subprocess.run(["git", "clone", "-q", tmp_path / "inner", sub], check=True)
    git(sub, "config", "filter.evil.clean", f"touch {ran}; cat")
    (sub / ".git" / "info").mkdir(exist_ok=True)
    (sub / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    (sub / "a.txt").write_text("A later commit\n")  # as long as before: git has to read it
    Path(made.path, "a.txt").write_text("changed as well\n")
    patch = await workspaces.patch(made, str(tmp_path / "index"))
    assert not ran.exists()
    assert patch.left_out == ["sub"]
    assert b"+changed as well" in patch.data
    assert b"sub" not in patch.data
    assert not list(tmp_path.glob("index*"))


@pytest.mark.parametrize("entry", ["", "bin", "{}"])
async def test_no_program_of_a_workspace_is_taken_for_git(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    workspaces, made = await worktree(source, tmp_path)
    ran, planted = tmp_path / "ran", Path(made.path, "bin" if "bin" in entry else ".", "git")
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(f"#!/bin/sh\ntouch {ran}\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{entry.format(made.path)}:{os.environ['PATH']}")
    patch = await workspaces.patch(made, str(tmp_path / "index"))
    assert not ran.exists()
    assert b"+touch" in patch.data


@pytest.mark.slow
async def test_nested_repositories_do_not_stop_a_patch(source: Path, tmp_path: Path) -> None:
    workspaces, made = await worktree(source, tmp_path)
    for name in ("no [commit]*", "deep/er"):
        git(tmp_path, "init", "-q", f"{made.path}/{name}")
        Path(made.path, name, "x.txt").write_text("x\n")
    Path(made.path, "deep", "b.txt").write_text("kept\n")
    Path(made.path, "sub").rmdir()
    patch = await workspaces.patch(made, str(tmp_path / "index"))
    assert patch.left_out == ["deep/er", "no [commit]*"]
    assert b"deep/b.txt" in patch.data
    assert b"x.txt" not in patch.data
    another = await workspaces.make(BatchTask("b", "p", None, repo=str(source)), "b", None)
    await workspaces.apply(another, patch.data)
    assert Path(another.path, "deep", "b.txt").read_text() == "kept\n"


def nested(folder: Path, ran: Path) -> None:
    """A repository whose settings would run a program, with links and a pipe among its files."""
    git(folder, "init", "-q", "inner")
    inner = folder / "inner"
    git(inner, "config", "core.fsmonitor", f"touch {ran}; false")
    (inner / "deep").mkdir()
    (inner / "deep" / "x.txt").write_text("x\n")
    (inner / "out").symlink_to("/etc")
    (inner / "file").symlink_to("/etc/passwd")
    os.mkfifo(inner / "pipe")
    (inner / os.fsdecode(b"\xff.txt")).write_text("no UTF-8\n")


async def run_with_nested(source: Path, tmp_path: Path) -> Any:
    """Run a task in whose workspace a nested repository is found; returns its result."""
    store, options = FolderStore(str(tmp_path / "store")), RunOptions(scratch=str(tmp_path / "s"))
    task = BatchTask("t", "p", None, repo=str(source))
    setup = TaskSetup(task, store, "tasks/t", (), options.scratch)
    await setup.prepare([])
    assert setup.workspace is not None
    nested(Path(setup.workspace.path), tmp_path / "ran")
    return (await run_task(task, store, options)).result


async def test_files_of_nested_repositories_are_stored(
    sessions: list[ChildEnd], source: Path, tmp_path: Path
) -> None:
    result = await run_with_nested(source, tmp_path)
    assert result["nested_repositories"] == ["inner"]
    with tarfile.open(tmp_path / "store" / "tasks" / "t" / "nested.tar.gz") as tar:
        found = {one.name: one.linkname for one in tar}
        assert found == {
            "inner/deep/x.txt": "", "inner/out": "/etc", "inner/file": "/etc/passwd",
            os.fsdecode(b"inner/\xff.txt"): "",
        }  # fmt: skip
        assert (file := tar.extractfile("inner/deep/x.txt")) is not None
        assert file.read() == b"x\n"
    assert not (tmp_path / "ran").exists()
    assert list((tmp_path / "s" / "workspaces").iterdir()) == []


def test_no_link_leads_out_of_the_worktree(tmp_path: Path) -> None:
    (tmp_path / "elsewhere/inner").mkdir(parents=True)
    (tmp_path / "elsewhere/inner/key").write_text("secret")
    (tmp_path / "work").mkdir()
    (tmp_path / "work/lib").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="lib"):
        nested_module.pack(str(tmp_path / "work"), ["lib/inner"])


async def test_a_workspace_whose_nested_files_do_not_fit_is_kept(
    sessions: list[ChildEnd], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested_module, "_MOST_FILES", 1)
    result = await run_with_nested(source, tmp_path)
    assert result["failure"] is None
    assert "more than 64 MB or 1 files" in result["nested_error"]
    (kept,) = (tmp_path / "s" / "workspaces").iterdir()
    assert (kept / "inner" / "deep" / "x.txt").read_text() == "x\n"


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ChildEnd]:
    """Ends for the sessions of tasks; each session writes a file into its workspace."""
    ends: list[ChildEnd] = []

    async def run_child(arguments: list[str], **_: Any) -> ChildEnd:
        if arguments[0] == "exec":
            Path(arguments[arguments.index("--cd") + 1], "work.txt").write_text("an hour's\n")
        await asyncio.sleep(0)
        return ends.pop(0) if ends else ChildEnd(0, dict(DONE))

    monkeypatch.setattr(attempt_module, "run_child", run_child)
    monkeypatch.setenv("TOOLREST_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "keys.json").write_text("{}")
    return ends


async def test_a_workspace_whose_patch_cannot_be_made_is_kept(
    sessions: list[ChildEnd], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, options = FolderStore(str(tmp_path / "store")), RunOptions(scratch=str(tmp_path / "s"))

    async def broken(*_: object) -> None:
        raise WorkspaceError("git add: it cannot")

    monkeypatch.setattr(Workspaces, "patch", broken)
    end = await run_task(BatchTask("t", "p", None, repo=str(source)), store, options)
    assert end.result is not None
    assert (end.result["failure"], end.result["patch_error"]) == ("patch", "git add: it cannot")
    assert store.has("failed/t.patch")
    assert not list((tmp_path / "home" / "batch").rglob("keys.json"))
    (kept,) = (tmp_path / "s" / "workspaces").iterdir()
    assert (kept / "work.txt").read_text() == "an hour's\n"


@pytest.mark.slow
async def test_a_session_that_the_kernel_killed_for_memory_is_tried_once_more(
    sessions: list[ChildEnd], tmp_path: Path
) -> None:
    store, place = FolderStore(str(tmp_path / "store")), tmp_path / "place"
    place.mkdir()
    killed = ChildEnd(-signal.SIGKILL, stderr="the last words", oom=True)
    sessions += [killed, ChildEnd(0, dict(DONE)), killed, killed]
    for name, failure, outcomes in (("a", None, ["oom", "done"]), ("b", "oom", ["oom", "oom"])):
        end = await run_task(BatchTask(name, "p", str(place)), store, RunOptions())
        assert end.result is not None
        assert end.result["failure"] == failure
        assert [row["outcome"] for row in end.result["attempts"]] == outcomes
        assert (failure is None) or end.result["stderr"] == "the last words"
    assert failed_keys(store) == {"b": "oom"}


@pytest.mark.system
async def test_a_child_that_runs_out_of_memory_says_so(tmp_path: Path) -> None:
    """In a control group with little memory, of either version."""
    first = Path("/sys/fs/cgroup/memory")
    base, limit = (first, "limit_in_bytes") if first.is_dir() else (first.parent, "max")
    group = base / f"toolrest-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / f"memory.{limit}").write_text("8M")
    except OSError as error:
        pytest.skip(f"no control group for memory can be made here: {error}")
    if (group / "memory.swap.max").exists():
        (group / "memory.swap.max").write_text("0")

    def confine(process: asyncio.subprocess.Process) -> None:
        (group / "cgroup.procs").write_text(str(process.pid))

    try:
        end = await run_child(["tools"], cwd=str(tmp_path), env=os.environ, started=confine)
    finally:
        group.rmdir()
    assert (end.exit_code, end.oom) == (-signal.SIGKILL, True)
    assert failure_class(None, end.exit_code, end.oom) == "oom"


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"item.completed"}',
        b'{"type":"item.completed","item":[]}',
        b'{"type":"error","error":"x"}',
        b'{"type":["error"]}',
        b"[" * 200_000,
        b"\xff",
    ],
)
def test_a_line_that_is_no_event_is_left_out(line: bytes) -> None:
    summary = Summary()
    summary.take(line)
    assert summary.fields().keys() <= {"error"}


async def test_a_check_that_breaks_us_leaves_the_other_tasks_alone(
    monkeypatch: pytest.MonkeyPatch, sessions: list[ChildEnd], tmp_path: Path
) -> None:
    async def breaks(arguments: list[str], **_: Any) -> ChildEnd:
        if arguments[0] == "sandbox":
            raise ValueError("a check's output")
        return ChildEnd(0, dict(DONE))

    monkeypatch.setattr(attempt_module, "run_child", breaks)
    store, runner = FolderStore(str(tmp_path / "store")), Runner.here()
    place = tmp_path / "place"
    place.mkdir()
    tasks = [BatchTask(name, "p", str(place), check="true") for name in ("a", "b")]
    engine = LocalEngine(store, RunOptions(), Totals(store, runner), runner, print)
    await engine.run(tasks, 2)
    assert engine.counts.done == 2
    result = json.loads(store.read("tasks/a/result.json") or b"")
    assert result["check"]["error"] == "ValueError: a check's output"


SESSION = "sessions/2026/01/01/rollout-2026-01-01T00-00-00-x.jsonl"
LINE = b'{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"x"}}\n'


async def work(
    task: BatchTask, machine: Path, store: FolderStore, rows: list[Any], turns: int
) -> TaskSetup:
    """One attempt on a machine: a new file in its workspace, a journal of so many lines."""
    machine.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLREST_HOME", str(machine))
        setup = TaskSetup(task, store, "tasks/t", (), str(machine / "scratch"))
    await setup.prepare(rows)
    assert setup.workspace is not None
    rows.append({"base": setup.workspace.base, "journal": SESSION, "place": setup.place})
    Path(setup.workspace.path, f"{turns}.txt").write_text("x\n")
    journal = Path(setup.home, SESSION)
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.write_bytes(LINE * turns)
    setup.journal = str(journal)
    await setup.sync()
    return setup


@pytest.mark.slow
async def test_a_machine_that_gets_a_task_back_takes_what_the_other_one_did(tmp_path: Path) -> None:
    repository(tmp_path / "repo")
    task = BatchTask("t", "p", None, repo=str(tmp_path / "repo"))
    store, rows = FolderStore(str(tmp_path / "store")), list[Any]()
    first = await work(task, tmp_path / "a", store, rows, 1)
    assert first.workspace is not None
    Path(first.workspace.path, "lost.txt").write_text("after the last copy\n")
    Path(first.home, SESSION).write_bytes(LINE * 9)
    await work(task, tmp_path / "b", store, rows, 2)
    back = await work(task, tmp_path / "a", store, rows, 3)
    assert back.workspace is not None
    found = {path.name for path in Path(back.workspace.path).glob("*.txt")}
    assert found == {"a.txt", "1.txt", "2.txt", "3.txt"}
    Path(back.workspace.path, "4.txt").write_text("not stored yet\n")
    await work(task, tmp_path / "a", store, rows, 5)
    assert Path(back.workspace.path, "4.txt").exists(), "its own worktree goes on"


@pytest.mark.slow
async def test_a_runner_without_a_recent_heartbeat_stores_no_copy(tmp_path: Path) -> None:
    """It was stopped for long (SIGSTOP, suspend): another runner may have the task by now."""
    repository(tmp_path / "repo")
    task = BatchTask("t", "p", None, repo=str(tmp_path / "repo"))
    store = FolderStore(str(tmp_path / "store"))
    setup = await work(task, tmp_path / "a", store, [], 1)
    Path(setup.home, SESSION).write_bytes(LINE * 2)
    for is_held, lines in ((False, 1), (True, 2)):
        setup.is_held = lambda is_held=is_held: is_held  # type: ignore[misc]
        setup.start_sync()
        await setup.settle()
        assert store.read("tasks/t/journal.jsonl") == LINE * lines


def test_a_reply_that_a_kill_cut_off_counts_as_a_turn(tmp_path: Path) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}
    count = {"type": "token_count", "info": {"total_token_usage": {"total_tokens": 5}}}
    cut = [("turn_context", {"model": "m"}), ("response_item", call)]
    whole = [*cut, ("event_msg", count)]

    def turns(*lines: tuple[str, Any]) -> int:
        path = tmp_path / "journal"
        path.write_text("".join(json.dumps({"type": k, "payload": p}) + "\n" for k, p in lines))
        return used_in(str(path)).turns

    assert (turns(*whole), turns(*cut), turns(*cut, *whole, *whole[1:])) == (1, 1, 3)


@pytest.mark.parametrize("name", ["../../x", "sessions/../../rollout-x.jsonl", "/etc/x", 1])
def test_a_store_cannot_choose_where_a_journal_is_written(name: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        restore(str(tmp_path / "a" / "b"), name, LINE)
    assert not list(tmp_path.iterdir())


async def test_a_store_cannot_give_git_options(source: Path, tmp_path: Path) -> None:
    workspaces = Workspaces(str(tmp_path / "scratch"))
    task, ran = BatchTask("a", "p", None, repo=str(source)), tmp_path / "ran"
    with pytest.raises(WorkspaceError, match="no commit"):
        await workspaces.make(task, "a", f"--upload-pack=touch {ran}; git-upload-pack")
    assert not ran.exists()


async def test_waiting_for_a_mirror_can_be_cancelled(source: Path, tmp_path: Path) -> None:
    workspaces, _ = await worktree(source, tmp_path)
    (lock,) = (tmp_path / "scratch" / "mirrors").glob("*.lock")
    making = BatchTask("b", "p", None, repo=str(source))
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = asyncio.create_task(workspaces.make(making, "b", None))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(10):
        assert (await workspaces.make(making, "b", None)).is_ours


def test_folders_of_ours_are_not_where_tools_write(
    bench: Callable[..., Bench], source: Path, tmp_path: Path
) -> None:
    here = bench(worker(1))
    here.tasks(1, repo=str(source))
    host = ("-c", "sandbox_tmp=host")
    ran = here.run(*host, env={"TMPDIR": str(tmp_path)})
    assert (ran.code, "the store" in ran.err, "tools of a task may write" in ran.err) == (
        2, True, True,
    )  # fmt: skip
    roots = f'sandbox_workspace_write.writable_roots=["{tmp_path / "scratch"}"]'
    ran = here.run("-c", roots)
    assert (ran.code, "the scratch folder" in ran.err) == (2, True)


class Full(FolderStore):
    """A store that takes no result."""

    def create(self, name: str, data: bytes) -> bool:
        if name.endswith("result.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().create(name, data)


async def test_a_success_clears_the_marker_of_a_failure(
    sessions: list[ChildEnd], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_task_module, "_STORE_RETRIES", ())
    store, place = FolderStore(str(tmp_path / "store")), tmp_path / "place"
    place.mkdir()
    task, options = BatchTask("t", "p", str(place)), RunOptions(scratch=str(tmp_path / "s"))
    sessions.append(ChildEnd(1, {"status": "failed", "reason": "budget"}))
    assert (await run_task(task, Full(store.path), options)).outcome == "unstored"
    assert failed_keys(store) == {"t": "budget"}
    assert (await run_task(task, store, options)).outcome == "done"
    assert failed_keys(store) == {}


def test_a_retry_keeps_what_succeeded(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    result = {"failure": None, "attempts": [{"journal": SESSION}]}
    store.write("tasks/t/result.json", json.dumps(result).encode())
    store.write("tasks/t/patch.diff", b"work")
    assert retry_tasks(store, ["t"], only_failed=True) == 0
    assert store.has("tasks/t/result.json")
    assert retry_tasks(store, ["t"]) == 1, "it was named"
    assert not store.has("tasks/t/patch.diff")
    assert store.read("tasks/t/patch-1.diff") == b"work"


async def test_a_runner_that_lost_its_task_stores_nothing(
    sessions: list[ChildEnd], tmp_path: Path
) -> None:
    store, place = FolderStore(str(tmp_path / "store")), tmp_path / "place"
    place.mkdir()

    class Taken(FolderStore):
        def has(self, name: str) -> bool:
            return name.endswith("lease-2.json") or super().has(name)

    task = BatchTask("t", "p", str(place))
    assert (await run_task(task, Taken(store.path), RunOptions())).outcome == "lost"
    assert not store.has("tasks/t/answer.md")
    assert not store.has("tasks/t/result.json")


async def test_no_task_begins_in_a_cancelled_batch(
    sessions: list[ChildEnd], tmp_path: Path
) -> None:
    """A cluster may have it in a queue since before."""
    store = FolderStore(str(tmp_path / "store"))
    store.write("cancelled", b"")
    end = await run_task(BatchTask("t", "p", str(tmp_path)), store, RunOptions())
    assert end.outcome == "cancelled"
    assert not (tmp_path / "work.txt").exists()
    assert store.files("tasks/t") == []


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "failure"), [(10, None), (11, "killed"), (12, "killed")])
async def test_a_task_that_kills_its_runners_is_given_up(
    sessions: list[ChildEnd], source: Path, tmp_path: Path, lost: int, failure: str | None
) -> None:
    """Runners may die for other reasons, so many of them are let pass."""
    store, options = FolderStore(str(tmp_path / "store")), RunOptions(scratch=str(tmp_path / "s"))
    task, rows = BatchTask("t", "p", None, repo=str(source)), list[Any]()
    await work(task, tmp_path / "home", store, rows, 1)
    for number in range(lost):
        lease = Leases(store, "tasks/t", Runner(str(number), "far", "", 0, "")).take()
        assert lease is not None
        lease.attempts, lease.beat = rows, 0.0
        Leases(store, "tasks/t", lease.runner).put(lease)
    end = await run_task(task, store, options)
    assert end.result is not None
    assert end.result["failure"] == failure
    assert end.result["attempts"][-1]["outcome"] == (failure or "done")
    ran = b"work.txt" in (store.read("tasks/t/patch.diff") or b"")
    assert ran == (failure is None), "the model was not asked"
    assert b"1.txt" in (store.read("tasks/t/patch.diff") or b""), "what was done is kept"
    if failure is not None:
        assert end.result["error"] == f"{lost} runners in a row died while they worked on it"
        assert retry_tasks(store, ["t"]) == 1
        assert (await run_task(task, store, options)).result["failure"] is None  # type: ignore[index]


@pytest.mark.slow
async def test_a_result_of_our_own_is_not_taken_for_another_runners(
    sessions: list[ChildEnd], tmp_path: Path
) -> None:
    """The heartbeat finds it while the store has not answered yet."""
    place = tmp_path / "place"
    place.mkdir()

    class Late(FolderStore):
        seen = threading.Semaphore(0)

        def create(self, name: str, data: bytes) -> bool:
            made = super().create(name, data)
            if name.endswith("result.json"):
                for _ in range(3):
                    self.seen.acquire(timeout=10)
            return made

        def has(self, name: str) -> bool:
            found = super().has(name)
            if found and name.endswith("result.json"):
                self.seen.release()
            return found

    store, options = Late(str(tmp_path / "store")), RunOptions(lease_seconds=4.0)
    end = await run_task(BatchTask("t", "p", str(place)), store, options)
    assert end.outcome == "done"
    assert not [name for name in store.files("tasks/t") if name.startswith("lease")]


def test_a_home_with_links_is_brought_up_to_date(tmp_path: Path) -> None:
    rules, state = tmp_path / "home" / "rules", tmp_path / "state"
    rules.mkdir(parents=True)
    (rules / "link").symlink_to("/nowhere")
    (tmp_path / "home" / "vm").mkdir()
    with pytest.raises(ConfigError, match="rules/link is a link to /nowhere, which is not there"):
        make_task_home(str(tmp_path / "home"), str(state))
    (rules / "link").unlink()
    (rules / "link").symlink_to("../../elsewhere")
    (tmp_path / "elsewhere").write_text("y")
    make_task_home(str(tmp_path / "home"), str(state))
    (rules / "new").write_text("x")
    home = Path(make_task_home(str(tmp_path / "home"), str(state)))
    assert {path.name for path in home.rglob("*")} == {"rules", "link", "new"}


def test_sockets_caches_and_logins_of_the_users_home_are_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chat that is open beside the batch has its socket there."""
    home = tmp_path / "home"
    for name in ("auth", "control", "mcp/cache/npm", "prompts"):
        (home / name).mkdir(parents=True)
    (home / "auth" / "mcp-oauth.json").write_text("{}")
    (home / "mcp" / "pins.json").write_text("{}")
    monkeypatch.chdir(home)
    with socket.socket(socket.AF_UNIX) as chat, socket.socket(socket.AF_UNIX) as other:
        chat.bind("control/session.sock")
        other.bind("prompts/other.sock")
        made = Path(make_task_home(str(home), str(tmp_path / "state")))
    found = {str(path.relative_to(made)) for path in made.rglob("*")}
    assert found == {"mcp", "mcp/pins.json", "prompts"}


def test_a_task_has_the_users_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token_store(str(tmp_path / "user"), "file").put("https://mcp.test", {"token": "a"})
    monkeypatch.setenv("TOOLREST_USERS_HOME", str(tmp_path / "user"))
    in_task = token_store(str(tmp_path / "task"), "file")
    assert in_task.get("https://mcp.test") == {"token": "a"}
    in_task.put("https://mcp.test", {"token": "renewed"})
    monkeypatch.delenv("TOOLREST_USERS_HOME")
    mine = token_store(str(tmp_path / "user"), "file")
    assert mine.get("https://mcp.test") == {"token": "renewed"}


@pytest.mark.parametrize("wait", [float("inf"), float("nan"), 1e9])
def test_no_server_puts_the_next_slot_far_ahead(wait: float, tmp_path: Path) -> None:
    SharedPace(str(tmp_path), "x").refused(wait)
    (path,) = tmp_path.iterdir()
    free, interval = json.loads(path.read_bytes())
    assert free <= time.time() + 300
    assert interval > 0


@pytest.mark.parametrize("found", ["[1e18, 1]", "[Infinity, 1]", "[NaN, NaN]", "[0, 1e9]"])
async def test_a_pace_file_that_makes_no_sense_slows_nothing_down(
    found: str, tmp_path: Path
) -> None:
    pace = SharedPace(str(tmp_path), "x")
    pace.refused(0)
    (path,) = tmp_path.iterdir()
    path.write_text(found)
    async with asyncio.timeout(5):
        await pace.slot()
