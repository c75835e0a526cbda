"""`toolrest batch` and `toolrest gc`."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from toolrest.testing import Call, Fail


def results(desk: Any) -> dict[str, Any]:
    text = (desk.workspace / "tasks.jsonl.results.jsonl").read_text()
    return {row["id"]: row for row in map(json.loads, text.splitlines())}


@pytest.mark.slow
def test_every_task_has_a_result_and_is_run_once(desk: Any, serve: Any) -> None:
    def answer(request: Any) -> Any:
        said = request["input"][-1]["content"][-1]["text"]
        return Fail(400, "invalid_prompt", "no") if said == "bad" else f"did {said}"

    server = serve([answer] * 10, request_max_retries=0, stream_max_retries=0)
    rows = [{"id": "a", "prompt": "one"}, {"prompt": "two", "max_turns": 3}, {"prompt": "bad"}]
    tasks = desk.workspace / "tasks.jsonl"
    tasks.write_text("\n".join(map(json.dumps, rows)) + "\n")
    ran = desk.run("batch", "tasks.jsonl", "-j", "2", "--events", "events")
    assert ran.code == 1
    found = results(desk)
    assert {name: row["text"] for name, row in found.items() if "text" in row} == {
        "a": "did one", "2": "did two",
    }  # fmt: skip
    assert (found["3"]["exit_code"], found["3"]["reason"]) == (1, "model_invalid_request")
    assert sorted(path.name for path in (desk.workspace / "events").iterdir()) == [
        "2.jsonl", "3.jsonl", "a.jsonl",
    ]  # fmt: skip
    asked = len(server.requests)
    tasks.write_text(tasks.read_text() + '{"id": "late", "prompt": "four"}\n')
    again = desk.run("batch", "tasks.jsonl")
    assert again.code == 1, "a task failed, if not now"
    assert "1 failed in an earlier run; --retry-failed" in again.err
    assert len(server.requests) == asked + 1
    assert results(desk)["late"]["text"] == "did four"


@pytest.mark.slow
def test_what_failed_is_run_again_when_that_is_wanted(desk: Any, serve: Any) -> None:
    answers: dict[str, list[Any]] = {
        "good": ["did it"],
        "shy": [Fail(400, "invalid_prompt", "no"), "did it at last"],
    }

    def answer(request: Any) -> Any:
        return answers[request["input"][-1]["content"][-1]["text"]].pop(0)

    server = serve([answer] * 10, request_max_retries=0, stream_max_retries=0)
    rows = [{"id": name, "prompt": name} for name in answers]
    (desk.workspace / "tasks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert desk.run("batch", "tasks.jsonl").code == 1
    asked = len(server.requests)
    assert desk.run("batch", "tasks.jsonl").code == 1
    assert len(server.requests) == asked, "a failure is a result as well"
    again = desk.run("batch", "tasks.jsonl", "--retry-failed")
    assert again.code == 0, again.err
    assert "1 of 2 tasks to run" in again.err
    assert {name: row["text"] for name, row in results(desk).items()} == {
        "good": "did it", "shy": "did it at last",
    }  # fmt: skip
    assert "0 of 2 tasks to run" in desk.run("batch", "tasks.jsonl", "--retry-failed").err


def test_a_line_that_is_no_task_is_named(desk: Any) -> None:
    tasks = desk.workspace / "tasks.jsonl"
    for line, words in (
        ("{}", "line 1: a task is an object"),
        ("nope", "line 1: not JSON"),
        ('{"prompt": "x", "shell": "rm"}', "there is no option 'shell'"),
        ('{"id": 1, "prompt": "x"}\n{"id": "1", "prompt": "y"}', "is there twice"),
    ):
        tasks.write_text(line)
        ran = desk.run("batch", "tasks.jsonl")
        assert ran.code == 2
        assert words in ran.err


@pytest.mark.slow
def test_gc_removes_what_is_old_and_leaves_what_is_open(desk: Any, serve: Any) -> None:
    serve([[Call("exec_command", {"cmd": "seq 1 20000"})], "one", "two", "three"])
    for prompt in ("first", "second", "third"):
        desk.run("exec", "-s", "workspace-write", prompt)
    old, opened, fresh = sorted(desk.home.rglob("rollout-*.jsonl"), key=os.path.getmtime)
    for path in (old, opened):
        os.utime(path, (0, time.time() - 40 * 86400))
    with opened.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "sessions: 1 would be removed" in desk.run("gc", "--dry-run").out
        assert old.exists()
        assert "sessions: 1 removed" in desk.run("gc").out
        assert [path.exists() for path in (old, opened, fresh)] == [False, True, True]
        assert desk.run("gc", "--max-size", "1").code == 0
        assert [path.exists() for path in (opened, fresh)] == [True, False]
    assert not list((desk.home / "spill").glob("*")) if (desk.home / "spill").exists() else True
    assert list(Path(desk.home, "audit").iterdir())


@pytest.mark.slow
def test_gc_removes_requests_for_approval_only_when_they_have_long_expired(desk: Any) -> None:
    desk.run("call", "-c", "on_ask=defer", "write_file", '{"path": "/elsewhere/x", "content": ""}')
    (waiting,) = (desk.home / "approvals").glob("*.json")
    report = desk.home / "reports" / "report.zip"
    report.parent.mkdir()
    report.write_bytes(b"x")
    week = time.time() - 7 * 86400
    os.utime(waiting, (week, week))
    assert "approvals: 0 removed" in desk.run("gc", "--days", "0", "--max-size", "1").out
    assert waiting.exists()
    assert not report.exists()
    os.utime(waiting, (0, time.time() - 9 * 86400))
    assert "approvals: 0 removed" in desk.run("gc").out
    assert "approvals: 1 removed" in desk.run("gc", "--days", "1").out
    assert not waiting.exists()
    assert any((desk.home / "approvals").iterdir())  # the key that signs requests
