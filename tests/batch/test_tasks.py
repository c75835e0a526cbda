"""Tasks with a store: workspaces, checks, budgets, failures and their retries."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.batch.conftest import Bench, turn_of, worker

from toolrest.agent.history.cleanup import DAY, collect
from toolrest.batch import run_task as run_task_module
from toolrest.batch.run_task import RunOptions, run_task
from toolrest.batch.stores.store import FolderStore
from toolrest.batch.tasks.task import BatchTask, read_tasks
from toolrest.errors import ConfigError
from toolrest.testing import Call, Fail


def repository(folder: Path) -> str:
    """A repository with one commit; returns it."""
    folder.mkdir()
    run = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    (folder / "a.txt").write_text("one\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*run, *words], cwd=folder, check=True)
    out = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True)
    (folder / "a.txt").write_text("a later commit\n")
    subprocess.run([*run, "commit", "-qam", "second"], cwd=folder, check=True)
    return out.stdout.strip()


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_repository_a_patch_and_a_score(bench: Callable[..., Bench], tmp_path: Path) -> None:
    def reply(body: Any) -> Any:
        task, turn = turn_of(body)
        # git's own settings in a workspace must not run anything of ours.
        command = f"echo {task} >> a.txt; echo new > b.txt"
        return "done" if turn else [Call("exec_command", {"cmd": command})]

    here = bench(reply)
    commit = repository(tmp_path / "repo")
    check = "grep -c one a.txt && test -f b.txt && echo 0.25"
    here.tasks(2, repo=str(tmp_path / "repo"), commit=commit, check=check)
    ran = here.run("-j", "2", "--price", "2,10")
    assert ran.code == 0, ran.err
    for name, row in here.results().items():
        assert row["check"]["score"] == 0.25, row
        assert row["cost"] == pytest.approx((200 * 2 + 20 * 10) / 1e6)
        assert row["attempts"][0]["base"] == commit
        patch = (here.store / "tasks" / name / "patch.diff").read_text()
        assert f"+{name}\n" in patch
        assert "b/b.txt" in patch
        target = tmp_path / f"{name}.applied"
        subprocess.run(["git", "clone", "-q", tmp_path / "repo", target], check=True)
        subprocess.run(["git", "checkout", "-q", commit], cwd=target, check=True)
        subprocess.run(["git", "apply"], cwd=target, input=patch, text=True, check=True)
        assert (target / "b.txt").read_text() == "new\n"
    assert (tmp_path / "repo" / "a.txt").read_text() == "a later commit\n"
    assert list((tmp_path / "scratch" / "workspaces").iterdir()) == [], "worktrees are removed"
    assert len(list((tmp_path / "scratch" / "mirrors").glob("*.git"))) == 1, "one mirror for both"


def test_a_commit_that_is_not_there_is_a_failure_that_says_so(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    here = bench(worker(1))
    repository(tmp_path / "repo")
    here.tasks(1, repo=str(tmp_path / "repo"), commit="0" * 40)
    ran = here.run()
    assert ran.code == 1
    assert f"has no commit {'0' * 40}" in ran.err
    (row,) = here.results().values()
    assert (row["failure"], len(row["attempts"])) == ("usage", 1)
    assert here.server.requests == []


@pytest.mark.slow
def test_failures_have_classes_retries_and_the_end_of_stderr(bench: Callable[..., Bench]) -> None:
    seen: dict[str, int] = {}

    def reply(body: Any) -> Any:
        task, _ = turn_of(body)
        seen[task] = seen.get(task, 0) + 1
        if task == "task-0":
            return Fail(400, "invalid_prompt", "no")
        if task == "task-1":
            return Fail(500) if seen[task] < 2 else "at last"
        return [Call("update_plan", {"plan": []})]

    here = bench(reply, request_max_retries=0, stream_max_retries=0)
    here.tasks(3, max_turns=2)
    wrong = {"id": "wrong", "prompt": "task-9", "profile": "nosuch"}
    here.file.write_text(here.file.read_text() + json.dumps(wrong))
    ran = here.run("-j", "3")
    assert ran.code == 1
    rows = here.results()
    assert {name: row["failure"] for name, row in rows.items()} == {
        "task-0": "model_error", "task-1": None, "task-2": "budget", "wrong": "usage",
    }  # fmt: skip
    assert "no" in rows["task-0"]["error"]
    assert "nosuch" in rows["wrong"]["stderr"]
    assert [one["outcome"] for one in rows["task-1"]["attempts"]] == ["model_unreachable", "done"]
    assert rows["task-1"]["attempts"][1]["resumed"]
    assert rows["task-2"]["turns"] == 2
    assert "task-0: model_error" in ran.err
    status = here.desk.run("batch", "status", str(here.store), "--json")
    found = json.loads(status.out)
    assert (found["finished"], found["failed"]) == (4, 3)
    assert found["failures"] == {"model_error": 1, "budget": 1, "usage": 1}

    again = here.desk.run("batch", "retry", str(here.store), "--class", "budget")
    assert "1 task will run again" in again.err
    here.tasks(3, max_turns=3)
    asked = len(here.server.requests)
    assert here.run().code == 1, "the other failures stay until they are retried"
    row = here.results()["task-2"]
    assert (row["failure"], row["turns"]) == ("budget", 3)
    assert len(here.server.requests) == asked + 1, "it went on with one more turn"


@pytest.mark.long
def test_one_refusal_slows_all_tasks_of_the_machine(bench: Callable[..., Bench]) -> None:
    refused: list[float] = []

    def reply(body: Any) -> Any:
        if not refused:
            refused.append(1)
            return Fail(429, "rate_limit_exceeded", "slow down", retry_after=1.5)
        return "done"

    here = bench(reply, request_max_retries=0, stream_max_retries=2)
    here.tasks(4)
    ran = here.run("-j", "4")
    assert ran.code == 0, ran.err
    first, *rest = (request.at for request in here.server.requests)
    late = [at for at in rest if at - first > 1.2]
    assert len(here.server.requests) == 5
    # Requests that were under way at the refusal may have come before its end.
    assert len(late) >= 2, [at - first for at in rest]


@pytest.mark.long
@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (("--max-total-tokens", "150"), "220 tokens were used, and --max-total-tokens is 150"),
        (
            ("--max-total-cost", "0.4", "--price", "2000,10000"),
            "$0.60 were spent, and --max-total-cost is 0.4",
        ),
    ],
)
def test_a_total_stops_the_batch_between_tasks(
    bench: Callable[..., Bench], limit: tuple[str, ...], message: str
) -> None:
    here = bench(worker(1))
    names = here.tasks(4)
    ran = here.run("-j", "1", *limit)
    assert ran.code == 1
    assert message in ran.err
    assert len(here.results()) == 2
    assert here.run("-j", "1", *limit).code == 1
    assert len(here.results()) == 2, "what earlier runs used counts"
    assert here.run("-j", "2").code == 0
    assert sorted(here.results()) == names


@pytest.mark.long
def test_eight_shards_share_a_store(bench: Callable[..., Bench]) -> None:
    here = bench(worker(1))
    names = here.tasks(16)
    running = [here.start("--shard", f"{at}/8", "-j", "1") for at in range(8)]
    ended = [(process.communicate(timeout=100), process.returncode) for process in running]
    assert [code for _, code in ended] == [0] * 8, ended
    assert sorted(here.results()) == sorted(names)
    assert len(here.server.requests) == 16
    assert json.loads(here.desk.run("batch", "status", str(here.store), "--json").out)["tokens"] > 0


@pytest.mark.long
def test_a_cancelled_batch_does_not_start_until_that_is_undone(bench: Callable[..., Bench]) -> None:
    here = bench(worker(1))
    here.tasks(1)
    assert here.run().code == 0
    ran = here.desk.run("batch", "cancel", str(here.store))
    assert (ran.code, ran.err[:10]) == (0, "cancelled:")
    ran = here.run()
    assert (ran.code, "was cancelled" in ran.err) == (2, True)
    assert here.desk.run("batch", "cancel", "--undo", str(here.store)).code == 0
    assert here.run().code == 0


@pytest.mark.slow
def test_what_needs_a_store_says_so(bench: Callable[..., Bench], tmp_path: Path) -> None:
    here = bench(worker(1))
    here.tasks(1, check="true")
    ran = here.desk.run("batch", str(here.file))
    assert (ran.code, "task task-0: `check` needs --store" in ran.err) == (2, True)
    here.tasks(1)
    ran = here.desk.run("batch", str(here.file), "--shard", "0/2")
    assert (ran.code, "--shard needs --store" in ran.err) == (2, True)
    for words in (("--keep-workspaces",), ("--scratch", "x"), ("--lease", "60")):
        ran = here.desk.run("batch", str(here.file), *words)
        assert (ran.code, f"{words[0]} needs --store" in ran.err) == (2, True)
    ran = here.run("--ray-label", "a=b")
    assert (ran.code, "--ray-label needs --engine ray" in ran.err) == (2, True)
    inside = here.desk.workspace / "store"
    ran = here.desk.run("batch", str(here.file), "--store", str(inside))
    assert (ran.code, "where tools of a task may write" in ran.err) == (2, True)
    assert not inside.exists()


def test_gc_removes_old_tasks_and_leaves_open_ones(tmp_path: Path) -> None:
    month = time.time() - 40 * DAY
    for name in ("old", "open", "fresh"):
        day = tmp_path / "batch" / "store" / name / "home" / "sessions" / "2026" / "01" / "01"
        day.mkdir(parents=True)
        journal = day / f"rollout-2026-01-01T00-00-00-{name}.jsonl"
        journal.write_text("{}\n")
        os.utime(tmp_path / "batch" / "store" / name, (0, month))
        if name != "fresh":
            os.utime(journal, (0, month))
    (tmp_path / "batch" / "pace").mkdir()
    (opened,) = tmp_path.rglob("rollout-*-open.jsonl")
    with opened.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (removed,) = [kind for kind in collect(str(tmp_path)) if kind.kind == "batch"]
    assert removed.count == 1
    left = {path.name for path in (tmp_path / "batch" / "store").iterdir()}
    assert left == {"open", "fresh"}


async def test_no_task_reads_a_home(bench: Callable[..., Bench]) -> None:
    """Neither the user's, which is not where the task's is, nor the copy of the settings."""
    outputs: list[str] = []

    def reply(body: Any) -> Any:
        outputs[:] = [item["output"] for item in body["input"] if "output" in item]
        if outputs:
            return "done"
        found = [here.desk.home / "config.toml", *here.desk.home.glob("batch/*/*/home/*.toml")]
        return [Call("read_file", {"file_path": str(path)}) for path in found]

    here = bench(reply)
    here.tasks(1)
    (task,) = read_tasks(str(here.file))
    assert (await run_task(task, FolderStore(str(here.store)), RunOptions())).outcome == "done"
    assert len(outputs) == 2
    assert all("Toolrest's own home" in output for output in outputs), outputs


def test_fields_that_make_no_sense_are_named(tmp_path: Path) -> None:
    for line, message in (
        ({"prompt": "x", "repo": "/r", "cd": "/c"}, "give `cd` or `repo`"),
        ({"prompt": "x", "commit": "abc"}, "`commit` needs a `repo`"),
        ({"prompt": "x", "repo": "--upload-pack=x"}, "`repo` is a URL or a folder"),
        ({"prompt": "x", "repo": "/r", "commit": "--output=x"}, "`commit` is a commit"),
        ({"prompt": "x", "max_cost": "much"}, "`max_cost` must be a number"),
        ({"prompt": "x", "timeout": float("inf")}, "`timeout` must be a number"),
        ({"prompt": "x", "max_turns": "nan"}, "`max_turns` must be a number"),
        ({"prompt": "x", "id": ""}, "the `id` is empty"),
        ({"prompt": "x", "id": "\ud800"}, "line 1: `id` has half a character"),
        ({"prompt": "\ud800"}, "line 1: `prompt` has half a character"),
        ({"prompt": "x", "check_timeout": -1}, "line 1: `check_timeout` must be a number above 0"),
        ({"prompt": "x", "max_turns": 0}, "`max_turns` must be a number above 0"),
        ({"prompt": "x", "cd": "a\0b"}, "line 1: `cd` has a NUL character"),
        ({"prompt": "x", "model": "a\0b"}, "line 1: `model` has a NUL character"),
        ({"prompt": "x", "id": ["a"]}, "line 1: the `id` must be a text or a number"),
    ):
        (tmp_path / "tasks").write_text(json.dumps(line))
        with pytest.raises(ConfigError, match=message):
            list(read_tasks(str(tmp_path / "tasks")))


def test_no_two_ids_have_one_name_for_files(tmp_path: Path) -> None:
    """One would be taken for done when the other one is."""
    ids = ["a/b", BatchTask("a/b", "x", None).key]
    rows = [{"id": name, "prompt": "x"} for name in ids]
    (tmp_path / "tasks").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match=r"line 2: the id 'a_b-.*' is there twice"):
        list(read_tasks(str(tmp_path / "tasks")))
    names = [
        "\u00e9",
        "e\u0301",
        "x" * 5000,
        "x" * 5001,
        "../x",
        "..",
        ".",
        "nul\0",
        "-rf",
        "A",
        "a",
    ]
    keys = {BatchTask(name, "x", None).key for name in names}
    assert len(keys) == len(names)
    assert not [key for key in keys if "/" in key or key.startswith(".") or len(key) > 100]


def test_a_store_that_cannot_be_written_is_refused_before_anything_runs(
    bench: Callable[..., Bench],
) -> None:
    here = bench(worker(1))
    here.tasks(1)
    here.store = Path("/proc/no-store")
    ran = here.run()
    assert (ran.code, "cannot write to the store /proc/no-store" in ran.err) == (2, True)
    assert here.server.requests == []


class Faulty(FolderStore):
    """A store that is full for a while, or slow."""

    full = 0
    delay = 0.0

    def write(self, name: str, data: bytes) -> None:
        time.sleep(self.delay)
        if self.full and name.endswith(("answer.md", "events.jsonl")):
            self.full -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(name, data)

    def has(self, name: str) -> bool:
        time.sleep(self.delay)
        return super().has(name)


@pytest.mark.slow
async def test_a_full_store_loses_nothing_and_asks_nothing_twice(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_task_module, "_STORE_RETRIES", (0.0, 0.0))
    here = bench(worker(2))
    here.tasks(1)
    (task,) = read_tasks(str(here.file))
    store, options = Faulty(str(here.store)), RunOptions(scratch=str(here.base / "scratch"))
    store.full = 100
    end = await run_task(task, store, options)
    assert (end.outcome, end.problem) == ("unstored", "No space left on device")
    assert here.results() == {}
    store.full = 1
    end = await run_task(task, store, options)
    assert end.outcome == "done", "one failed write is tried again"
    assert [turn for _, turn in here.turns()] == [0, 1]
    assert here.results()["task-0"]["text"] == "task-0 is done"
    assert (await run_task(task, store, options)).outcome == "had_result"


@pytest.mark.long
async def test_a_slow_store_keeps_its_lease(bench: Callable[..., Bench]) -> None:
    """Its heartbeat goes on while other files are being written."""
    here = bench(worker(1))
    here.tasks(1)
    (task,) = read_tasks(str(here.file))
    store = Faulty(str(here.store))
    store.delay = 0.5
    options = RunOptions(scratch=str(here.base / "scratch"), lease_seconds=4.0)
    first = asyncio.create_task(run_task(task, store, options))
    while not list(here.store.glob("tasks/task-0/lease-*.json")):
        await asyncio.sleep(0.01)
    while not first.done():
        end = await run_task(task, FolderStore(str(here.store)), options)
        assert end.outcome in ("busy", "had_result")
        await asyncio.sleep(0.2)
    assert (await first).outcome == "done"
    assert len(here.server.requests) == 1
