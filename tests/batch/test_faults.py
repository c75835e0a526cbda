"""Batches whose runners and sessions die: every task has its result, nothing is paid for twice."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.batch.conftest import Bench, Tree, orphans, turn_of, until, worker

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


def faults(
    bench: Bench, count: int, jobs: int, seed: int = 1, parts: tuple[float, ...] = (0.4,)
) -> list[str]:
    """Kill sessions and the runner when parts of the work are done; returns the tasks' ids."""
    names, dice = bench.tasks(count), random.Random(seed)
    options = ("-j", str(jobs), "--retries", "killed=5")
    for part in parts:
        before, since = bench.finished_turns(), len(bench.server.requests)
        runner = bench.start(*options)
        goal = max(since + 1, int(count * TURNS * part))
        until(lambda goal=goal: len(bench.server.requests) >= goal)  # type: ignore[misc]
        for victim in dice.sample(found := sessions_of(runner.pid), min(2, len(found))):
            os.kill(victim, signal.SIGKILL)
        bench.kill(runner)
        assert asked_again(bench, before, since) == []
    before, since = bench.finished_turns(), len(bench.server.requests)
    assert before, "something was done before the kill"
    ran = bench.run(*options)
    assert ran.code == 0, ran.err
    assert asked_again(bench, before, since) == []
    return names


@pytest.mark.timeout(300)
def test_twenty_sessions_survive_kills(bench: Callable[..., Bench]) -> None:
    here = bench(worker(TURNS))
    names = faults(here, 20, 4)
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
    here = bench(worker(TURNS))
    check_whole(here, faults(here, 200, 8, 2, (0.2, 0.5, 0.8)))


def test_a_stopped_task_goes_on_with_its_session(bench: Callable[..., Bench]) -> None:
    """SIGTERM, then another start: the session's second turn is the next request."""
    from toolrest.testing import Pause

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


def test_an_answer_on_record_is_not_asked_for_again(bench: Callable[..., Bench]) -> None:
    """The runner dies after the answer, before the result."""
    here = bench(worker(1))
    here.tasks(1)
    here.store.mkdir()
    assert here.run().code == 0
    (folder,) = (here.store / "tasks").iterdir()
    row = json.loads((folder / "result.json").read_text())
    for attempt in row["attempts"]:
        attempt.pop("ended")
    lease: dict[str, Any] = {
        "runner": dict.fromkeys(("id", "host", "machine", "born"), "x") | {"pid": 1}
    }
    lease |= {"beat": 0.0, "attempts": row["attempts"], "released": False}
    (folder / "lease-1.json").write_text(json.dumps(lease))
    (folder / "result.json").unlink()
    assert here.run().code == 0
    assert len(here.server.requests) == 1
    (again,) = here.results().values()
    assert (again["text"], again["turns"]) == (row["text"], 1)
    assert [one["outcome"] for one in again["attempts"]] == ["killed", "done"]
