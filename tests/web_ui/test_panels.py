"""What the server gives for the views beside the timeline: changes, a batch, pictures, prices."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import desk, serve  # noqa: F401 - fixtures
from tests.control.conftest import WRITE
from tests.web_ui.conftest import HOST, Client, Recorded, log_in
from tests.web_ui.scene import MODEL, batch_store, everything, picture

from toolrest.agent.undo.checkpoints import Checkpoints
from toolrest.batch.run_task import task_folder
from toolrest.testing import Call
from toolrest.web_ui import batch_view, changes
from toolrest.web_ui.access import Logins
from toolrest.web_ui.batch_view import BatchView
from toolrest.web_ui.feed import read_events
from toolrest.web_ui.listing import SessionList
from toolrest.web_ui.server import WebPage
from toolrest.wire.prices import Price


def price(model: str, provider: str | None) -> Price | None:
    return Price(input=2.0, output=12.0, cached_input=0.2) if model == MODEL else None


@pytest.fixture
def page(home: Path, logins: Logins, tmp_path: Path) -> WebPage:
    batch = BatchView(batch_store(tmp_path / "store").url)
    return WebPage(str(home), logins, (HOST,), prices=price, batch=batch)


async def test_the_changes_of_a_session_are_those_since_its_start(
    client: Client, home: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    session = everything(home, work)
    (work / "src/parser.py").write_text("changed by someone else, later")
    answer = (await client.get(f"/api/sessions/{session.id}/changes")).json()
    assert answer["error"] == ""
    files = {file["path"]: file for file in answer["files"]}
    kinds = {path: file["kind"] for path, file in files.items()}
    assert kinds == {
        "data.bin": "add",
        "old.txt": "delete",
        "src/parser.py": "update",
        "tests/test_empty.py": "add",
    }
    assert "-        rows.append((name, value))\n" in files["src/parser.py"]["text"]
    assert "someone" not in files["src/parser.py"]["text"]
    assert files["data.bin"]["note"] == "not a text file"
    other = Recorded(home, 3, str(work))
    assert (await client.get(f"/api/sessions/{other.id}/changes")).json()["files"] == []
    assert (await client.get("/api/sessions/0000/changes")).status_code == 404


async def test_changes_show_no_hidden_file_and_no_secret(
    client: Client, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config.toml").write_text('hidden_paths = ["*.private"]\n')
    monkeypatch.setenv("SERVICE_TOKEN", "hunter2-hunter2")
    work = tmp_path / "work"
    work.mkdir()
    session = Recorded(home, 2, str(work))
    checkpoints = Checkpoints(str(home), str(work))
    turn = checkpoints.begin(session.id)
    (work / ".env").write_text("PASSWORD=visible-to-none\n")
    (work / "a.private").write_text("visible-to-none, too\n")
    (work / "notes.txt").write_text("it is hunter2-hunter2\n")
    checkpoints.end(turn)
    answer = await client.get(f"/api/sessions/{session.id}/changes")
    files = {file["path"]: file for file in answer.json()["files"]}
    assert files[".env"] == {"path": ".env", "kind": "add", "note": "hidden"}
    assert "[redacted:SERVICE_TOKEN]" in files["notes.txt"]["text"]
    assert files["a.private"]["note"] == "hidden"
    assert "hunter2" not in answer.text


KEY_LINES = "\n".join(f"{number:02d}aB/+" * 12 for number in range(9))
PEM = f"-----BEGIN PRIVATE KEY-----\n{KEY_LINES}\n-----END PRIVATE KEY-----"


async def test_changes_are_redacted_by_the_settings_of_the_folder(
    client: Client, home: Path, tmp_path: Path
) -> None:
    """Removed lines, a part of a key, and what only the settings say is secret or hidden."""
    work = tmp_path / "work"
    (work / ".toolrest").mkdir(parents=True)
    (work / ".toolrest/config.toml").write_text('hidden_paths = ["*.private"]\n')
    (home / "config.toml").write_text(
        f'[projects."{work}"]\ntrust_level = "trusted"\n'
        '[redact]\npatterns = ["case-[0-9]{6}"]\n'
        '[mcp_servers.notes]\ncommand = "x"\nenv = {NOTES_TOKEN = "stored-in-settings"}\n'
    )
    token = "ghp_" + "a1B2" * 9
    (work / "removed.txt").write_text(f"{token}\n{PEM}\ncase-123456\nstored-in-settings\n")
    (work / "key.pem.txt").write_text(f"{PEM}\n")
    (work / "rotated.txt").write_text(f"{token}\n")
    session = Recorded(home, 2, str(work))
    checkpoints = Checkpoints(str(home), str(work))
    turn = checkpoints.begin(session.id)
    (work / "removed.txt").write_text("nothing\n")
    (work / "key.pem.txt").write_text(PEM.replace("04aB", "Zz9x") + "\n")
    (work / "rotated.txt").write_text(f"{token}C3\n")
    (work / "a.private").write_text("seen by none\n")
    checkpoints.end(turn)
    answer = await client.get(f"/api/sessions/{session.id}/changes")
    files = {file["path"]: file for file in answer.json()["files"]}
    assert files["a.private"]["note"] == "hidden"
    assert files["removed.txt"]["text"].count("\n-[redacted:") == 4
    for path in ("key.pem.txt", "rotated.txt"):
        assert files[path]["note"] == "only secrets in it changed"
    for secret in (token[:20], "aB/+", "Zz9x", "case-1", "stored-in", "seen by"):
        assert secret not in answer.text


async def test_changes_are_not_shown_without_the_settings(
    client: Client, home: Path, tmp_path: Path
) -> None:
    session = everything(home, tmp_path / "work")
    (home / "config.toml").write_text("[torn")
    answer = (await client.get(f"/api/sessions/{session.id}/changes")).json()
    assert answer["files"] == []
    assert "config.toml" in answer["error"]


async def test_changes_with_any_name_and_of_any_size_are_shown(
    client: Client, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_MOST_BYTES", 2500)
    work = tmp_path / "work"
    work.mkdir()
    session = Recorded(home, 3, str(work))
    checkpoints = Checkpoints(str(home), str(work))
    turn = checkpoints.begin(session.id)
    (work / os.fsdecode(b"a\xff.txt")).write_text("x")
    for name in "bcd":
        (work / name).write_text("1234567\n" * 150)
    checkpoints.end(turn)
    files = (await client.get(f"/api/sessions/{session.id}/changes")).json()["files"]
    assert [file["path"] for file in files] == ["a\udcff.txt", "b", "c", "d"]
    assert ["text" in file for file in files] == [True, True, True, False]
    assert "too large" in files[3]["note"]


async def test_a_batch_has_status_distributions_and_rows_by_failure(client: Client) -> None:
    whole = (await client.get("/api/batch")).json()
    assert (whole["status"]["finished"], whole["status"]["tasks"]) == (40, 45)
    assert whole["status"]["failures"] == {"budget": 5, "timeout": 2}
    assert [sum(chart["counts"]) for chart in whole["charts"]] == [40] * 4
    assert len(whole["rows"]) == 40
    failed = (await client.get("/api/batch", params={"failure": "timeout"})).json()
    assert [row["id"] for row in failed["rows"]] == ["task-012", "task-032"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, True, "x", [], {}, None])
async def test_no_result_takes_the_batch_away(
    home: Path, logins: Logins, client_for: Callable[[WebPage], Client], tmp_path: Path, value: Any
) -> None:
    """A check may give any score, and other programs write to stores, too."""
    store = batch_store(tmp_path / "store")
    fields = ("id", "failure", "turns", "cost", "seconds", "usage", "check", "attempts", "text")
    odd = [{name: value} for name in fields]
    odd += [{"check": {"score": value}}, {"usage": {"total_tokens": value}}]
    for number, change in enumerate(odd):
        path = f"{task_folder(f'k{number:03d}')}/result.json"
        result = json.loads(store.read(path) or b"")
        store.write(path, json.dumps({**result, **change}).encode())
    page = WebPage(str(home), logins, (HOST,), batch=BatchView(store.url))
    async with client_for(page) as client:
        await log_in(client, logins)
        assert len((await client.get("/api/batch")).json()["rows"]) == 40


def test_no_password_of_a_store_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = batch_store(tmp_path / "store")
    store.url = "sftp://me:geheim@host/runs"
    monkeypatch.setattr(batch_view, "open_store", lambda _: store)
    assert BatchView(store.url).shown()["store"] == "sftp://host/runs"


async def test_without_a_store_there_is_no_batch(
    home: Path, logins: Logins, client_for: Callable[[WebPage], Client]
) -> None:
    async with client_for(WebPage(str(home), logins, (HOST,))) as client:
        await log_in(client, logins)
        assert (await client.get("/api/batch")).status_code == 404
        assert (await client.get("/api/sessions")).json()["batch"] is False


def test_only_pictures_with_their_data_are_shown(session: Recorded) -> None:
    start = session.path.stat().st_size
    svg = base64.b64encode(b"<svg onload=alert(1)>").decode()
    urls = [picture(), f"data:image/svg+xml;base64,{svg}", "https://example.org/x.png", 7]
    parts = [{"type": "input_image", "image_url": url} for url in urls]
    session.use("view_image", {"path": "x"}, parts, "c7")
    events, _ = read_events(str(session.path), start)
    assert events[1]["images"] == [picture()]
    assert events[1]["text"].count("[image]") == 4


async def test_cost_needs_a_known_price(client: Client, home: Path, tmp_path: Path) -> None:
    session = everything(home, tmp_path / "work")
    other = Recorded(home, 4)
    other.write("turn_context", {"model": "unheard-of"})
    other.tokens(1000)
    rows = (await client.get("/api/sessions")).json()["sessions"]
    costs = {row["id"]: row["cost"] for row in rows}
    assert costs[other.id] is None
    cost = ((84_000 - 52_000) * 2 + 52_000 * 0.2 + 4 * 300 * 12) / 1e6
    assert costs[session.id] == pytest.approx(cost)
    saved = (await client.get(f"/api/sessions/{session.id}/export")).text
    assert '"price": {"input": 2.0, "cached": 0.2, "written": 2.0, "output": 12.0}' in saved


async def test_the_list_is_filtered_by_state(client: Client, session: Recorded, home: Path) -> None:
    ended = Recorded(home, 5)

    async def ids(state: str) -> list[str]:
        answer = await client.get("/api/sessions", params={"state": state})
        return [row["id"] for row in answer.json()["sessions"]]

    with session.path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert await ids("running") == [session.id]
        assert await ids("ended") == [ended.id]
        assert await ids("") == [ended.id, session.id]


async def test_a_model_far_from_the_end_is_found(client: Client, session: Recorded) -> None:
    """A turn names it when it begins, and may be long."""
    for number in range(50):
        session.say("assistant", f"step {number} " + "word " * 400)
    (row,) = (await client.get("/api/sessions")).json()["sessions"]
    assert row["model"] == "a-model"
    session.write("turn_context", {"model": "another-model"})
    (row,) = (await client.get("/api/sessions")).json()["sessions"]
    assert row["model"] == "another-model"


async def test_a_title_far_from_the_start_is_found(client: Client, home: Path) -> None:
    late = Recorded(home, 6)
    late.say("user", "<environment_context>" + "x" * 50_000)
    late.say("user", "the real task")
    late.say("assistant", "y" * 40_000)
    rows = (await client.get("/api/sessions")).json()["sessions"]
    assert rows[0]["title"] == "the real task"


def reply(body: Any) -> Any:
    """A model that plans, changes a file, starts a sub-agent and waits for it."""
    if "the parent's task" not in str(body["input"]):
        return "nothing there"
    outputs = [one for one in body["input"] if one.get("type") == "function_call_output"]
    if not outputs:
        plan = {"plan": [{"step": "look", "status": "in_progress"}]}
        return [Call("update_plan", plan), WRITE]
    if len(outputs) == 2:
        return [Call("spawn_agent", {"message": "look around"})]
    if len(outputs) == 3:
        return [Call("wait", {"ids": [json.loads(outputs[2]["output"])["agent_id"]]})]
    return "done"


async def test_a_real_session_has_the_records_that_the_panels_read(
    desk: Any,  # noqa: F811
    serve: Any,  # noqa: F811
    logins: Logins,
    client_for: Callable[[WebPage], Client],
) -> None:
    serve(itertools.repeat(reply, 20))
    done = await asyncio.to_thread(desk.run, "exec", "-s", "workspace-write", "the parent's task")
    assert done.code == 0, done.err
    async with client_for(WebPage(str(desk.home), logins, (HOST,))) as client:
        await log_in(client, logins)
        (row,) = (await client.get("/api/sessions")).json()["sessions"]
        changed = (await client.get(f"/api/sessions/{row['id']}/changes")).json()
    assert [(file["path"], file["kind"]) for file in changed["files"]] == [("made.txt", "add")]
    path = SessionList(str(desk.home)).path(row["id"])
    events, _ = read_events(path, 0)
    outputs = [event["text"] for event in events if event["kind"] == "output"]
    agent = json.loads(outputs[2])["agent_id"]
    assert outputs[2].startswith('{"agent_id":')
    assert outputs[3].startswith('{"status":')
    assert json.loads(outputs[3])["status"] == {agent: {"completed": "nothing there"}}
