"""Attacks through files: journals that no session writes, programs that listen beside sessions."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Make, agent, workspace  # noqa: F401 - fixtures
from tests.control.conftest import WRITE, Controlled
from tests.web_ui.conftest import HOST, ORIGIN, Client, Recorded, log_in
from tests.web_ui.test_control import asked, running  # noqa: F401 - a fixture

from toolrest import web_ui
from toolrest.config import load
from toolrest.control.sockets import connect
from toolrest.web_ui import feed, listing
from toolrest.web_ui.access import Logins
from toolrest.web_ui.feed import read_events
from toolrest.web_ui.server import WebPage
from toolrest.web_ui.start import _prices

HALF = "half of a pair: \ud83d"


@pytest.fixture
def home(toolrest_home: Path) -> Path:
    return toolrest_home


# Journals


@pytest.mark.parametrize("field", ["cwd", "model_provider", "timestamp", "id"])
async def test_no_first_line_takes_the_other_sessions_off_the_list(
    home: Path, client_for: Callable[[WebPage], Client], session: Recorded, field: str
) -> None:
    (home / "config.toml").write_text('[model_prices."a-model"]\ninput = 2.0\noutput = 12.0\n')
    prices = _prices(load(env={"TOOLREST_HOME": str(home)}))
    page = WebPage(str(home), Logins(60), (HOST,), prices=prices)
    values: tuple[Any, ...] = (float("nan"), 1e400, [], {"a": 1}, "\ud800", "\0", None)
    for number, value in enumerate(values, 1):
        other = Recorded(home, number)
        other.path.write_text("")
        other.write("session_meta", {"id": "x", "cwd": "/work", field: value})
        other.write("turn_context", {"model": "a-model"})
    async with client_for(page) as client:
        await log_in(client, page.logins)
        rows = (await client.get("/api/sessions")).json()["sessions"]
        assert len(rows) == 8
        assert "repair the parser" in {row["title"] for row in rows}
        for row in rows:
            for what in ("export?format=html", "export?format=md", "export?format=json", "changes"):
                answer = await client.get(f"/api/sessions/{row['id']}/{what}")
                assert answer.status_code in (200, 404)


@pytest.mark.parametrize("options", [5, True, 1.5, "red", {"label": "red"}, [5, None, []]])
async def test_no_arguments_of_a_call_end_the_view_of_its_session(
    client: Client, session: Recorded, options: Any
) -> None:
    """A model may give any tool arguments that look like questions and are none."""
    posed = {"id": "a", "header": "b", "question": "c", "options": options}
    session.use("exec_command", {"questions": [posed]}, "wrong arguments", "c7")
    session.say("assistant", "after it")
    events, _ = read_events(str(session.path), 0)
    assert events[-1]["text"] == "after it"
    for layout in ("html", "md"):
        answer = await client.get(f"/api/sessions/{session.id}/export?format={layout}")
        assert "after it" in answer.text


async def test_half_a_pair_is_saved_as_it_is(client: Client, session: Recorded) -> None:
    session.say("assistant", HALF)
    at = f"/api/sessions/{session.id}/export?format="
    assert json.loads((await client.get(f"{at}json")).content)["items"][-1]["content"] == [
        {"type": "output_text", "text": HALF}
    ]
    assert r"half of a pair: \ud83d" in (await client.get(f"{at}md")).text
    assert r"half of a pair: \ud83d" in (await client.get(f"{at}html")).text


async def test_a_line_without_an_end_uses_up_no_memory(
    client: Client, session: Recorded, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is passed over in pieces; a file with holes would be read for ever else."""
    monkeypatch.setattr(feed, "_PIECE", 1 << 10)
    monkeypatch.setattr(feed, "_LONGEST_LINE", 1 << 16)
    monkeypatch.setattr(listing, "_LONGEST_LINE", 1 << 16)
    before = session.path.stat().st_size
    os.truncate(session.path, before + (1 << 20))
    with session.path.open("a") as file:
        file.write("\n")
    session.say("assistant", "after it")
    offset, found, largest = 0, [], 0
    while (read := read_events(str(session.path), offset))[1] > offset:
        largest = max(largest, read[1] - offset)
        events, offset = read
        found += events
    assert found[-1]["text"] == "after it"
    assert largest <= (1 << 16) + (1 << 10)
    endless = Recorded(home, 1)
    endless.path.write_bytes(bytes(1 << 20))
    rows = (await client.get("/api/sessions")).json()["sessions"]
    assert {row["title"] for row in rows} == {"repair the parser", ""}


# Programs that listen beside sessions

GREETING = b'{"hello": "n"}\n'
ROW = {"id": "i", "pin": "p", "kind": "approval", "created": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [
        b"null\n",
        b"\xff\n",
        b"[" * 100_000 + b"\n",
        GREETING + b"5\n",
        GREETING + b"[" * 100_000 + b"\n",
        GREETING + b'{"ok": true}\n',
        GREETING + b'{"ok": true, "waiting": [5, {}, {"id": 1, "pin": 2, "kind": 3}]}\n',
        GREETING + b'{"ok": true, "waiting": [{"id":"","pin":"","kind":"","created":NaN}]}\n',
        GREETING + b'{"ok": true, "waiting": [{"id":"","pin":"","kind":"","created":1e999}]}\n',
    ],
)
async def test_no_other_program_takes_a_request_off_the_list(
    client: Client,
    running: Callable[..., Controlled],  # noqa: F811
    home: Path,
    said: bytes,
) -> None:
    one = running([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    row = await asked(client, one)
    async with await listening(home, said):
        answer = await client.get("/api/approvals")
        assert [found["id"] for found in answer.json()["approvals"]] == [row["id"]]
        live = await client.get("/api/sessions/beside/live")
        assert live.status_code == 404
        posted = await client.post(
            "/api/sessions/beside/message", json={"text": "x"}, headers={"Origin": ORIGIN}
        )
        assert posted.status_code in (200, 404, 409)
    await one.session.interrupt()
    await turn


async def test_another_programs_request_is_not_that_of_a_session(
    client: Client, home: Path
) -> None:
    """It would show one call, and send the answer to another."""
    posing = {"ok": True, "waiting": [{**ROW, "session": "another", "live": False}]}
    async with await listening(home, GREETING + json.dumps(posing).encode() + b"\n"):
        (row,) = (await client.get("/api/approvals")).json()["approvals"]
    assert (row["session"], row["live"]) == ("beside", True)


async def listening(home: Path, said: bytes) -> asyncio.Server:
    """A program that says this to whoever connects."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read()
        writer.close()

    (home / "control").mkdir(mode=0o700, exist_ok=True)
    return await asyncio.start_unix_server(serve, str(home / "control/beside.sock"))


def test_only_a_dead_socket_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "control"
    folder.mkdir(mode=0o700)
    (folder / "file.sock").write_text("a file")
    os.mkfifo(folder / "fifo.sock")
    (folder / "link.sock").symlink_to(folder / "file.sock")
    for path in folder.iterdir():
        os.utime(path, (1, 1), follow_symlinks=False)
    for name in ("file", "fifo", "link"):
        with pytest.raises(OSError):
            connect(str(tmp_path), name)
    assert len(list(folder.iterdir())) == 3


def test_commands_paths_and_diffs_stand_in_the_order_that_they_have() -> None:
    """No letter of another direction, bare or hidden, turns what is to be approved around."""
    style = (Path(web_ui.__file__).parent / "static" / "style.css").read_text()
    for selector in ("pre", ".columns td", ".values dd"):
        (rule,) = re.findall(rf"(?:^|}} ){re.escape(selector)} {{([^}}]*)}}", style, re.MULTILINE)
        assert "direction: ltr; unicode-bidi: bidi-override" in rule
