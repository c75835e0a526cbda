"""Batches whose runners and sessions die: every task has its result, nothing is paid for twice."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.batch.conftest import PATIENCE, PLAN, Bench, Tree, orphans, turn_of, until, worker
from tests.batch.test_tasks import repository

from toolrest.testing import Call, Pause

TURNS = 3
ARTIFACTS = {"answer.md", "audit.jsonl", "events.jsonl", "journal.jsonl", "result.json"}


def asked_again(bench: Bench, before: dict[str, int], since: int) -> list[tuple[str, int]]:
    """Requests of turns that were on record already."""
    return [(task, turn) for task, turn in bench.turns()[since:] if turn < before.get(task, 0)]


def sessions_of(pid: int) -> list[int]:
    """The `exec` processes below a runner."""
    found = []
    for one in Tree(pid).left():
        try:
            with open(f"/proc/{one}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if one != pid and b"exec" in words and b"toolrest" in words:
            found.append(one)
    return found


def check_whole(bench: Bench, names: list[str]) -> None:
    results = bench.results()
    assert sorted(results) == sorted(names)
    for name in names:
        row = results[name]
        assert (row["failure"], row["text"], row["turns"]) == (None, f"{name} is done", TURNS), row
        assert bench.artifacts(name) >= ARTIFACTS
    turns = bench.turns()
    for name in names:
        asked = [turn for task, turn in turns if task == name]
        assert asked == sorted(asked), "a turn after which another one was asked for came again"
        assert set(asked) == set(range(TURNS))


class HeldWorker:
    """A model that from some request on does not answer: those sessions are in the middle."""

    def __init__(self) -> None:
        self.bench: Bench | None = None
        self.held_from: float = math.inf
        self._reply = worker(TURNS)

    def __call__(self, body: Any) -> Any:
        asked = 0 if self.bench is None else len(self.bench.server.requests)
        reply = self._reply(body)
        return [Pause(60), reply] if asked >= self.held_from else reply


def faults(
    bench: Bench,
    model: HeldWorker,
    count: int,
    jobs: int,
    seed: int = 1,
    parts: tuple[float, ...] = (0.4,),
) -> list[str]:
    """Kill sessions and the runner when parts of the work are done; returns the tasks' ids."""
    names, dice = bench.tasks(count), random.Random(seed)
    options = ("-j", str(jobs), "--retries", "killed=5")
    model.bench = bench
    for part in parts:
        before, since = bench.finished_turns(), len(bench.server.requests)
        goal = max(since + 1, int(count * TURNS * part))
        model.held_from = goal
        runner = bench.start(*options)
        until(lambda goal=goal: len(bench.server.requests) >= goal, seconds=150)  # type: ignore[misc]
        until(lambda: _recorded(bench), "the lease of a task names its session")
        for victim in dice.sample(found := sessions_of(runner.pid), min(2, len(found))):
            os.kill(victim, signal.SIGKILL)
        bench.kill(runner)
        model.held_from = math.inf
        assert asked_again(bench, before, since) == []
    before, since = bench.finished_turns(), len(bench.server.requests)
    assert before, "something was done before the kill"
    ran = bench.run(*options)
    assert ran.code == 0, ran.err
    assert asked_again(bench, before, since) == []
    return names


def _recorded(bench: Bench) -> bool:
    """Whether a task that is under way has its session on record."""
    return any(b'"thread_id"' in path.read_bytes() for path in bench.store.glob("tasks/*/lease-*"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_sessions_survive_kills(bench: Callable[..., Bench]) -> None:
    model = HeldWorker()
    here = bench(model)
    names = faults(here, model, 20, 4)
    check_whole(here, names)
    attempts = [row["attempts"] for row in here.results().values()]
    killed = [rows for rows in attempts if any(row["outcome"] == "killed" for row in rows)]
    assert killed, "those that were in the middle say so"
    assert any(row.get("resumed") for rows in killed for row in rows)
    assert orphans(here.base) == []
    asked = len(here.server.requests)
    again = here.run()
    assert (again.code, len(here.server.requests)) == (0, asked), "a finished batch does nothing"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_hundred_sessions_survive_kills(bench: Callable[..., Bench]) -> None:
    model = HeldWorker()
    here = bench(model)
    check_whole(here, faults(here, model, 200, 8, 2, (0.2, 0.5, 0.8)))


@pytest.mark.slow
def test_a_stopped_task_goes_on_with_its_session(bench: Callable[..., Bench]) -> None:
    """SIGTERM, then another start: the session's second turn is the next request."""
    waits = [True]

    def reply(body: Any) -> Any:
        answer = worker(2)(body)
        if turn_of(body)[1] == 1 and waits:
            waits.clear()
            return [Pause(60), answer]
        return answer

    here = bench(reply)
    here.tasks(1)
    runner = here.start()
    until(lambda: len(here.server.requests) == 2)
    here.kill(runner, signal.SIGTERM)
    assert runner.returncode == 143
    assert here.results() == {}
    assert here.run().code == 0
    assert [turn for _, turn in here.turns()] == [0, 1, 1]
    (row,) = here.results().values()
    assert [one["outcome"] for one in row["attempts"]] == ["stopped", "done"]
    assert not [file for file in here.artifacts("task-0") if file.startswith("lease")]
    assert len({one["thread_id"] for one in row["attempts"]}) == 1


def lose_result(bench: Bench) -> Any:
    """Make it look as if the runner had died before the only result; returns that."""
    (folder,) = (bench.store / "tasks").iterdir()
    row = json.loads((folder / "result.json").read_text())
    for attempt in row["attempts"]:
        attempt.pop("ended")
    lease: dict[str, Any] = {
        "runner": dict.fromkeys(("id", "host", "machine", "born"), "x") | {"pid": 1}
    }
    lease |= {"beat": 0.0, "attempts": row["attempts"], "released": False}
    (folder / "lease-1.json").write_text(json.dumps(lease))
    (folder / "result.json").unlink()
    return row


@pytest.mark.slow
def test_an_answer_on_record_is_not_asked_for_again(bench: Callable[..., Bench]) -> None:
    """The runner dies after the answer, before the result."""
    here = bench(worker(1))
    here.tasks(1)
    here.store.mkdir()
    assert here.run().code == 0
    row = lose_result(here)
    assert here.run().code == 0
    assert len(here.server.requests) == 1
    (again,) = here.results().values()
    assert (again["text"], again["turns"]) == (row["text"], 1)
    assert [one["outcome"] for one in again["attempts"]] == ["killed", "done"]


@pytest.mark.slow
def test_a_session_that_died_before_its_prompt_was_on_record_starts_over(
    bench: Callable[..., Bench],
) -> None:
    here = bench(worker(1))
    here.tasks(1)
    assert here.run().code == 0
    lose_result(here)
    journal = here.store / "tasks" / "task-0" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    until_prompt = next(at for at, line in enumerate(lines) if '"text":"task-0"' in line)
    journal.write_text("".join(lines[:until_prompt]))
    assert here.run().code == 0
    (again,) = here.results().values()
    assert (again["text"], again["turns"]) == ("task-0 is done", 1)
    assert [one["resumed"] for one in again["attempts"]] == [False, False]


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_machine_that_gets_a_task_back_at_once_takes_what_the_other_one_did(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    """The other one died before its first heartbeat: its place was on record all the same."""
    phase = ["first"]

    def reply(body: Any) -> Any:
        _, turn = turn_of(body)
        if (phase[0], turn) in (("first", 2), ("second", 4)):
            return [Pause(60), "too late"]
        if turn in (0, 2):
            return [Call("exec_command", {"cmd": f"echo x > {turn}.txt"})]
        return "done" if turn >= 4 else [Call("update_plan", PLAN)]

    here = bench(reply)
    repository(tmp_path / "repo")
    here.tasks(1, repo=str(tmp_path / "repo"))
    shutil.copytree(here.desk.home, other := tmp_path / "other-home")
    second: Any = {"env": {"TOOLREST_HOME": str(other)}}
    options = ("--lease", "240")  # no heartbeat comes in between
    folder = here.store / "tasks" / "task-0"

    def is_stored(name: str) -> bool:
        files = [folder / "patch.diff", folder / "journal.jsonl"]
        return all(file.exists() and f"{name}.txt" in file.read_text() for file in files)

    runner = here.start(*options)
    until(lambda: is_stored("0") and here.turns()[-1][1] == 2)
    here.kill(runner)
    phase[0] = "second"
    runner = here.start(*options, "--scratch", str(tmp_path / "other-scratch"), **second)
    until(lambda: is_stored("2"))
    here.kill(runner)
    phase[0] = "third"
    ran = here.run(*options)
    assert ran.code == 0, ran.err
    patch = (folder / "patch.diff").read_text()
    assert ("b/0.txt" in patch, "b/2.txt" in patch) == (True, True)
    (row,) = here.results().values()
    assert [one["resumed"] for one in row["attempts"]] == [False, True, True]
    first, away, back = (one["place"] for one in row["attempts"])
    assert (first == back, first == away) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_all_and_says_how_to_go_on(bench: Callable[..., Bench], times: int) -> None:
    """A terminal sends it to all processes of the batch; some people press it twice."""
    model = HeldWorker()
    here = model.bench = bench(model)
    model.held_from = 0
    here.tasks(3)
    runner = here.start("-j", "3", start_new_session=True)
    until(lambda: len(here.turns()) >= 3)
    tree = Tree(runner.pid)
    for _ in range(times):
        os.killpg(runner.pid, signal.SIGINT)
    _, err = runner.communicate(timeout=PATIENCE)
    lines = err.strip().splitlines()
    assert lines[-1] == "stopped; the same command again goes on from here"
    assert "/3 tasks" in lines[-2]
    assert not [line for line in lines if "child" in line or "Traceback" in line], err
    assert runner.returncode == 130
    until(lambda: not tree.left(), f"processes are left: {tree.left()}")
    model.held_from = math.inf
    assert here.run("-j", "3").code == 0
