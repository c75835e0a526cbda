"""Tasks that run again: from the start, or on with their session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.batch.conftest import Bench, turn_of, worker
from tests.batch.test_tasks import repository

from toolrest.batch import attempt as attempt_module
from toolrest.batch.child import ChildEnd
from toolrest.batch.reports.retry import retry_tasks
from toolrest.batch.run_task import RunOptions, run_task
from toolrest.batch.stores.lease import Lease, Leases, Runner
from toolrest.batch.stores.store import FolderStore
from toolrest.batch.tasks.task import BatchTask
from toolrest.batch.tasks.workspace import WorkspaceError, Workspaces
from toolrest.testing import Call

DONE = {"status": "completed", "reason": "done", "text": "ok"}


def writer() -> Callable[[Any], Any]:
    """A model that writes a file in each run, with the run's number in its name."""
    runs: list[int] = []

    def reply(body: Any) -> Any:
        _, turn = turn_of(body)
        if turn:
            return f"run {len(runs)}"
        runs.append(1)
        return [Call("write_file", {"file_path": f"{len(runs)}.txt", "content": "x\n"})]

    return reply


@pytest.mark.slow
def test_a_task_that_starts_over_has_a_new_session_and_keeps_what_undo_needs(
    bench: Callable[..., Bench],
) -> None:
    here = bench(writer())
    place = here.base / "place"
    place.mkdir()
    here.tasks(1, cd=str(place), sandbox="workspace-write", approval="never")
    assert here.run().code == 0
    (kept,) = here.desk.home.glob("batch/*/task-0")
    assert (kept / "home" / "checkpoints").is_dir(), "its home stays for undo"
    assert here.desk.run("batch", "retry", str(here.store), "task-0").code == 0
    assert here.run().code == 0
    row = here.results()["task-0"]
    assert (row["text"], row["turns"]) == ("run 2", 2)
    assert [turn for _, turn in here.turns()] == [0, 1, 0, 1]
    assert [one.get("earlier_run", False) for one in row["attempts"]] == [True, False]
    assert row["attempts"][0]["thread_id"] != row["attempts"][1]["thread_id"]
    assert (Path(f"{kept}~1") / "home" / "checkpoints").is_dir()
    assert {path.name for path in place.iterdir()} == {"1.txt", "2.txt"}, "it is the user's"


@pytest.mark.slow
def test_a_kept_worktree_starts_over_with_its_task(bench: Callable[..., Bench]) -> None:
    here = bench(writer())
    repository(here.base / "repo")
    here.tasks(1, repo=str(here.base / "repo"), max_turns=1)
    assert here.run("--keep-workspaces").code == 1
    (folder,) = (here.base / "scratch" / "workspaces").iterdir()
    assert (folder / "1.txt").exists()
    assert here.desk.run("batch", "retry", str(here.store), "--fresh").code == 0
    here.tasks(1, repo=str(here.base / "repo"), max_turns=2)
    assert here.run("--keep-workspaces").code == 0
    assert {path.name for path in folder.glob("*.txt")} == {"a.txt", "2.txt"}
    assert here.results()["task-0"]["text"] == "run 2"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The arguments of each `exec`; every one of them succeeds."""
    found: list[list[str]] = []

    async def run_child(arguments: list[str], **_: Any) -> ChildEnd:
        found.append(arguments)
        await asyncio.sleep(0)
        return ChildEnd(0, dict(DONE))

    monkeypatch.setattr(attempt_module, "run_child", run_child)
    monkeypatch.setenv("TOOLREST_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "place").mkdir()
    return found


def ended(store: FolderStore, failure: str | None, *attempts: Any) -> None:
    """Give task `t` a result."""
    result = {"id": "t", "failure": failure, "attempts": list(attempts)}
    store.write("tasks/t/result.json", json.dumps(result).encode())


@pytest.mark.parametrize("fresh", [True, False])
async def test_time_counts_from_where_a_task_began_anew(
    asked: list[list[str]], tmp_path: Path, fresh: bool
) -> None:
    store = FolderStore(str(tmp_path / "store"))
    task = BatchTask("t", "p", str(tmp_path / "place"), limits={"timeout": 5.0})
    ended(store, "timeout", {"number": 1, "started": 10.0, "ended": 16.0, "place": "elsewhere"})
    assert retry_tasks(store, ["t"], fresh=fresh) == 1
    end = await run_task(task, store, RunOptions())
    assert end.result is not None
    if fresh:
        assert end.result["failure"] is None
        (arguments,) = asked
        assert arguments[arguments.index("--timeout") + 1] == "5"
        assert end.result["seconds"] < 100, "the days before do not count"
    else:
        assert (end.result["failure"], end.result["error"]) == ("timeout", "timeout is used up")
        assert asked == []


async def test_the_time_between_runs_does_not_count(asked: list[list[str]], tmp_path: Path) -> None:
    """A runner that died counts until its last heartbeat."""
    store = FolderStore(str(tmp_path / "store"))
    task = BatchTask("t", "p", str(tmp_path / "place"), limits={"timeout": 1000.0})
    rows = [{"number": 1, "started": 10.0, "ended": 16.0}, {"number": 2, "started": 5000.0}]
    dead = Runner("x", "x", "x", 1, "x")
    Leases(store, "tasks/t", dead).put(Lease(1, dead, 5300.0, rows))
    end = await run_task(task, store, RunOptions())
    assert end.result is not None
    assert 306.0 <= end.result["seconds"] < 400.0
    assert end.result["started"] == 10.0
    assert end.result["finished"] > 5300.0
    (arguments,) = asked
    assert arguments[arguments.index("--timeout") + 1] == "694"


@pytest.mark.slow
def test_a_result_for_another_prompt_is_said(bench: Callable[..., Bench]) -> None:
    here = bench(lambda _: "done")
    rows = [{"id": name, "prompt": "task-0"} for name in ("a", "b")]

    def run() -> Any:
        here.file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return here.run()

    assert run().code == 0
    rows[1]["prompt"] = "task-1"
    said = "1 result for another prompt than the file's, of b for one"
    for _ in range(2):
        assert said in run().err, "as often as it is so"
    assert here.desk.run("batch", "retry", str(here.store), "b").code == 0
    for _ in range(2):
        ran = run()
        assert (ran.code, "another prompt" in ran.err) == (0, False)
    assert [task for task, _ in here.turns()] == ["task-0", "task-0", "task-1"]


@pytest.mark.slow
def test_a_result_of_other_options_is_said(bench: Callable[..., Bench]) -> None:
    """Who evaluates two models with one store would take one's results for the other's."""
    here = bench(lambda _: "done")
    here.tasks(2, model="gpt-5.5")
    assert here.run().code == 0
    assert {row["model"] for row in here.results().values()} == {"gpt-5.5"}
    here.tasks(2, model="gpt-5.5-mini")
    said = "2 results for other options than the file's, of task-0 for one"
    for options in ((), ("-c", "model_reasoning_effort=low")):
        assert said in here.run(*options).err
        here.tasks(2, model="gpt-5.5")
    assert "results for" not in here.run().err


@pytest.mark.slow
def test_a_damaged_result_is_shown_and_can_be_run_again(bench: Callable[..., Bench]) -> None:
    """As a disk that failed leaves it."""
    here = bench(worker(1))
    here.tasks(2)
    assert here.run().code == 0
    (here.store / "tasks" / "task-1" / "result.json").write_bytes(b"")
    for layout in ("csv", "html", "jsonl"):
        ran = here.desk.run("batch", "results", str(here.store), "--format", layout)
        assert (ran.code, "retry STORE task-1 runs it again" in ran.out) == (0, True)
    assert here.desk.run("batch", "retry", str(here.store), "task-1").code == 0
    assert here.run().code == 0
    assert here.results()["task-1"]["text"] == "task-1 is done"


async def test_a_token_in_a_repository_is_not_in_the_result(
    asked: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = BatchTask("t", "p", None, repo="https://user:geheim@host/x", commit="1")

    async def fails(_: Workspaces, task: BatchTask, *__: object, **___: object) -> None:
        raise WorkspaceError(f"{task.repo} has no commit {task.commit}")

    monkeypatch.setattr(Workspaces, "make", fails)
    options = RunOptions(scratch=str(tmp_path / "s"))
    end = await run_task(task, FolderStore(str(tmp_path / "store")), options)
    assert end.result is not None
    assert end.result["error"] == "https://host/x has no commit 1"
    assert b"geheim" not in b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert asked == []
