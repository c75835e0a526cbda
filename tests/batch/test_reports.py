"""Reports from a store: results in each format, the page, trajectories."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from click.testing import CliRunner
from tests.batch.conftest import PLAN, Bench, worker

from toolrest.batch.engine import record_tasks
from toolrest.batch.reports.atif import export_trajectories, trajectory
from toolrest.batch.reports.results import read_results, write_results
from toolrest.batch.reports.status import batch_status, duration, status_lines
from toolrest.batch.run_task import RunOptions, run_task
from toolrest.batch.stores.addresses import without_users
from toolrest.batch.stores.store import FolderStore
from toolrest.batch.tasks.task import read_tasks
from toolrest.cli.batch.reports import status_command
from toolrest.errors import ConfigError

SCHEMA = Path(__file__).parents[1] / "data" / "atif.schema.json"


def check_atif(found: Any) -> None:
    """The schema that Harbor's models give, and what they check besides."""
    jsonschema_rs.validator_for(json.loads(SCHEMA.read_text())).validate(found)
    assert [step["step_id"] for step in found["steps"]] == list(range(1, len(found["steps"]) + 1))
    for step in found["steps"]:
        calls = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        results = step.get("observation", {"results": []})["results"]
        assert {result["source_call_id"] for result in results} <= calls
        if step["source"] != "agent":
            assert not {"tool_calls", "metrics", "reasoning_content"} & step.keys()


async def test_reports_of_a_batch(bench: Callable[..., Bench], tmp_path: Path) -> None:
    here = bench(worker(2))
    here.tasks(2)
    tasks = list(read_tasks(str(here.file)))
    store = FolderStore(str(here.store))
    record_tasks(store, tasks)
    assert (await run_task(tasks[0], store, RunOptions())).outcome == "done"

    status = batch_status(store)
    assert (status.tasks, status.finished, status.failed) == (2, 1, 0)
    assert status_lines(status)[0].split(None, 1) == ["tasks", "1 of 2 have a result"]

    (row,) = map(json.loads, write_results("jsonl", read_results(store), store).splitlines())
    assert (row["id"], row["turns"], row["tool_calls"]) == ("task-0", 2, 1)
    text = write_results("csv", read_results(store), store).decode()
    (line,) = csv.DictReader(io.StringIO(text))
    assert (line["text"], line["total_tokens"], line["attempts"]) == ("task-0 is done", "220", "1")
    assert line["model"] == "gpt-5.5"
    page = write_results("html", read_results(store), store).decode()
    assert 'href="tasks/task-0/journal.jsonl"' in page
    assert "<svg" in page
    assert "<script" not in page

    assert export_trajectories(store, str(tmp_path / "atif")) == 1
    found = json.loads((tmp_path / "atif" / "task-0.json").read_text())
    check_atif(found)
    first, last = (step for step in found["steps"] if step["source"] == "agent")
    assert first["tool_calls"][0]["function_name"] == "update_plan"
    assert first["tool_calls"][0]["arguments"] == PLAN
    assert first["observation"]["results"][0]["content"] == "Plan updated"
    assert first["metrics"]["prompt_tokens"] == 100
    assert last["message"] == "task-0 is done"
    assert found["final_metrics"]["total_completion_tokens"] == 20
    assert found["agent"]["model_name"] == "gpt-5.5"


def test_every_recorded_session_is_a_trajectory() -> None:
    """Homes of earlier releases have calls of all kinds, and sessions that a crash cut."""
    data = Path(__file__).parents[1] / "data"
    journals = list(data.glob("home-*/sessions/**/rollout-*.jsonl"))
    assert journals
    for path in journals:
        check_atif(trajectory(path.read_bytes()))
        check_atif(trajectory(path.read_bytes()[:-200]))


def test_texts_of_models_are_no_formulas_and_no_markup(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    store.write("tasks.jsonl", b'{"id": "<b>", "key": "k"}\n')
    row = {"id": "<b>", "failure": "<i>", "attempts": [], "usage": {}}
    for text in ("=HYPERLINK(1)", "\t=1", "\r=1"):
        store.write("tasks/k/result.json", json.dumps({**row, "text": text}).encode())
        assert f"'{text}".encode() in write_results("csv", read_results(store), store)
    page = write_results("html", read_results(store), store).decode()
    assert "<b>" not in page
    assert "<i>" not in page


def test_names_and_passwords_of_addresses_are_not_shown(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))
    store.url = "sftp://me:geheim@host/runs"
    page = write_results("html", read_results(store), store).decode()
    assert "Batch sftp://host/runs<" in page
    ran = CliRunner().invoke(status_command, ["nosuch://me:geheim@host/runs"])
    assert isinstance(ran.exception, ConfigError)
    assert str(ran.exception).startswith("the store nosuch://host/runs: ")
    for text, shown in (
        ("clone 'https://token@host/a b'", "clone 'https://host/a b'"),
        ("https://host/a@b and me@host", "https://host/a@b and me@host"),
        ("s3://bucket/run", "s3://bucket/run"),
    ):
        assert without_users(text) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(5, "5 s"), (600, "10 min"), (9000, "2 h 30 min")])
def test_durations_for_people(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
