"""A file that the user names is never written through a tool's link. Each failed before."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from tests.adversarial.conftest import SECRET, Range

from toolrest.policy.paths.named_files import read_named, write_named
from toolrest.testing import Call

LINK = {"cmd": "ln -s ../outside/diary.txt answer.md", "login": False}


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_exec_o_does_not_follow_a_link_failed_before(range_: Range) -> None:
    """The model itself makes it, in the very run whose answer is to be written there."""
    script = [Call("exec_command", LINK), "gone"]
    ran = range_.toolrest(
        "exec", "-s", "workspace-write", "-o", "answer.md", "go", script=script
    )  # fmt: skip
    assert (range_.workspace / "answer.md").is_symlink()
    range_.unharmed()
    assert ran.code == 2
    assert "a link in a folder that tools may write is not followed" in ran.err


@pytest.mark.slow
def test_exec_o_refuses_a_link_of_an_earlier_run_before_any_work_failed_before(
    range_: Range,
) -> None:
    range_.link("folder", range_.outside)
    for name in (range_.link("answer.md", range_.diary).name, "folder/diary.txt"):
        ran = range_.toolrest("exec", "-o", name, "go", script=[])
        assert (ran.code, "not followed" in ran.err) == (2, True), ran.err
    range_.unharmed()


@pytest.mark.slow
def test_batch_results_and_events_do_not_follow_links_failed_before(range_: Range) -> None:
    range_.file("tasks.jsonl", '{"id": "a", "prompt": "one"}\n')
    range_.link("tasks.jsonl.results.jsonl", range_.diary)
    assert range_.toolrest("batch", "tasks.jsonl").code == 2
    (range_.workspace / "tasks.jsonl.results.jsonl").unlink()
    range_.link("events", range_.outside)
    assert range_.toolrest("batch", "tasks.jsonl", "--events", "events").code == 2
    (range_.workspace / "events").unlink()
    (range_.workspace / "events").mkdir()
    range_.link("events/a.jsonl", range_.diary)
    range_.toolrest("batch", "tasks.jsonl", "--events", "events")
    range_.unharmed()


def test_a_batch_writes_where_a_task_works_without_following_links_failed_before(
    range_: Range,
) -> None:
    """The results lie in the workspace of a task, which is not where the batch was started."""
    other = range_.workspace.parent / "other"
    other.mkdir()
    (other / "results").symlink_to(range_.diary)
    range_.file("tasks.jsonl", json.dumps({"prompt": "one", "cd": str(other)}))
    assert range_.toolrest("batch", "tasks.jsonl", "-o", str(other / "results")).code == 2
    range_.unharmed()


@pytest.mark.slow
def test_sessions_export_does_not_follow_a_link_failed_before(range_: Range) -> None:
    range_.toolrest("exec", "hello")
    listed = range_.desk.run("sessions", "list", "--json").out
    thread = json.loads(listed.splitlines()[0])["id"]
    range_.link("out.md", range_.diary)
    elsewhere = range_.home / "elsewhere"
    elsewhere.mkdir()
    ran = range_.desk.run("sessions", "export", thread, "-o", "out.md")
    assert (ran.code, "not followed" in ran.err) == (2, True), ran.err
    range_.unharmed()
    assert range_.desk.run("sessions", "export", thread, "-o", "new.md").code == 0
    assert "hello" in (range_.workspace / "new.md").read_text()
    assert "hello" in range_.desk.run("sessions", "export", thread).out


def test_the_log_does_not_follow_a_folder_that_is_a_link_failed_before(range_: Range) -> None:
    range_.link("logs", range_.outside)
    ran = range_.toolrest("exec", "go", env={"TOOLREST_LOG": "logs/new.log"})
    range_.unharmed()
    assert ran.code == 2


def test_an_output_schema_is_not_read_through_a_link_failed_before(range_: Range) -> None:
    range_.diary.write_text(json.dumps({"type": "object", "title": SECRET}))
    range_.link("schema.json", range_.diary)
    ran = range_.toolrest("exec", "--output-schema", "schema.json", "go", script=[])
    assert (ran.code, "not followed" in ran.err) == (2, True), ran.err


def test_a_persons_own_links_and_devices_are_followed(range_: Range, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.symlink_to(range_.workspace)
    write_named(str(mine / "a.md"), b"one", [str(range_.workspace)])
    assert (range_.workspace / "a.md").read_text() == "one"
    (tmp_path / "alias").symlink_to(tmp_path / "target")
    write_named(str(tmp_path / "alias"), b"two", [str(range_.workspace)])
    assert read_named(str(tmp_path / "alias"), [str(range_.workspace)]) == b"two"
    ran = range_.toolrest("exec", "--json", "-o", "/dev/stderr", "go", script=["the answer"])
    assert ran.code == 0
    assert "the answer" in ran.err


def test_what_a_tool_put_there_is_replaced_or_refused_not_waited_for(range_: Range) -> None:
    roots = [str(range_.workspace)]
    os.link(range_.diary, range_.workspace / "hard")
    write_named(str(range_.workspace / "hard"), b"new", roots)
    range_.unharmed()
    os.mkfifo(range_.workspace / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        write_named(str(range_.workspace / "pipe"), b"new", roots)
    with pytest.raises(OSError, match="not a regular file"):
        read_named(str(range_.workspace / "pipe"), roots)
    assert stat.S_ISFIFO((range_.workspace / "pipe").stat().st_mode)
