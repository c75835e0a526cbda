"""What the page shows: the list, a session as it goes on, saved files, approvals."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import desk, serve  # noqa: F401 - fixtures
from tests.web_ui.conftest import CODE, HOST, ORIGIN, Client, Recorded, log_in, waiting

from toolrest.gate.approval.pending_store import PendingStore
from toolrest.policy.effects import Risk
from toolrest.web_ui.access import Logins
from toolrest.web_ui.feed import read_events
from toolrest.web_ui.listing import SessionList
from toolrest.web_ui.server import WebPage, _news
from toolrest.web_ui.streams import SessionStreams, priced
from toolrest.wire.prices import Price

PAGE = {"Origin": ORIGIN}


async def test_the_list_has_a_row_for_each_session(
    client: Client, session: Recorded, home: Path
) -> None:
    other = Recorded(home, 1)
    other.say("user", "write a poem")
    rows = (await client.get("/api/sessions")).json()["sessions"]
    assert [row["title"] for row in rows] == ["write a poem", "repair the parser"]
    row = rows[1]
    assert (row["cwd"], row["model"], row["last"]) == ("/work", "a-model", "It is repaired.")
    assert (row["input"], row["output"], row["open"]) == (120, 8, False)
    assert str(home) not in json.dumps(rows)
    found = (await client.get("/api/sessions", params={"q": "PARSER work"})).json()["sessions"]
    assert [row["id"] for row in found] == [session.id]
    after = await client.get("/api/sessions", params={"before": other.id, "limit": "1"})
    assert [row["id"] for row in after.json()["sessions"]] == [session.id]


@pytest.mark.slow
async def test_a_title_of_any_script_is_shown_as_it_was_typed(
    client_for: Callable[[WebPage], Client],
    logins: Logins,
    desk: Any,  # noqa: F811
    serve: Any,  # noqa: F811
) -> None:
    """Also where Python takes the terminal for one of ASCII."""
    serve(["\u4f60\u597d"])
    env = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = await asyncio.to_thread(desk.process, "exec", "cjk \u4f60\u597d\u55ce", env=env)
    assert done.code == 0, done.err
    async with client_for(WebPage(str(desk.home), logins, (HOST,))) as client:
        await log_in(client, logins)
        (row,) = (await client.get("/api/sessions")).json()["sessions"]
    assert (row["title"], row["last"]) == ("cjk \u4f60\u597d\u55ce", "\u4f60\u597d")


@pytest.mark.parametrize("limit", ["9" * 5000, "0", "-1", "x", ""])
async def test_any_limit_gives_a_list(client: Client, session: Recorded, limit: str) -> None:
    answer = await client.get("/api/sessions", params={"limit": limit})
    assert answer.status_code == 200


async def test_a_list_is_never_longer_than_its_limit(
    client: Client, session: Recorded, home: Path
) -> None:
    Recorded(home, 1)
    for limit in ("0", "1"):
        answer = await client.get("/api/sessions", params={"limit": limit})
        assert len(answer.json()["sessions"]) == 1


async def test_a_session_that_a_process_has_open_is_running(
    client: Client, session: Recorded
) -> None:
    with session.path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert (await client.get("/api/sessions")).json()["sessions"][0]["open"] is True
    assert (await client.get("/api/sessions")).json()["sessions"][0]["open"] is False


def test_events_have_the_offset_after_their_line(session: Recorded) -> None:
    events, end = read_events(str(session.path), 0)
    kinds = ["turn", "user", "call", "output", "message", "tokens"]
    assert [event["kind"] for event in events] == kinds
    assert end == session.path.stat().st_size
    for at, event in enumerate(events):
        rest, _ = read_events(str(session.path), event["at"])
        assert rest == events[at + 1 :]
    assert events[2]["command"] == "ls"
    assert events[3] == {**events[3], "id": "c1", "text": "parser.py\n"}


def test_an_output_is_what_was_printed_and_how_it_ended(session: Recorded) -> None:
    """Without the lines that only the model is given."""
    outputs = (
        "Exit code: 2\nWall time: 0.1 seconds\nOutput:\nno such file\n",
        "Chunk ID: a\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\nfine\n",
        "no header\nExit code: 3\n",
    )
    for number, output in enumerate(outputs):
        session.call("ls", output, f"e{number}")
    events, _ = read_events(str(session.path), 0)
    found = [(one["text"], one.get("code")) for one in events if one["kind"] == "output"][-3:]
    assert found == [("no such file\n", 2), ("fine\n", 0), ("no header\nExit code: 3\n", None)]


def test_tokens_of_sub_agents_have_their_own_price(session: Recorded, home: Path) -> None:
    usage = {"total_token_usage": {"input_tokens": 220}, "last_token_usage": {"input_tokens": 100}}
    line = {"type": "agent_token_count", "model": "small", "info": usage}
    session.write("event_msg", line)

    def prices(model: str, _: str | None) -> Price | None:
        return Price(input=2.0, output=4.0) if model == "small" else None

    events = priced(str(session.path), read_events(str(session.path), 0)[0], prices)
    assert events[-1]["kind"] == "tokens"
    assert (events[-1]["input"], events[-1]["used"]["input"]) == (220, 100)
    assert events[-1]["context"] is None, "the session's own context is as before"
    assert events[-1]["price"]["output"] == 4.0
    assert "price" not in events[0]
    (row,) = SessionList(str(home)).rows(limit=1)
    assert row["input"] == 220


def test_a_line_that_is_cut_or_wrong_is_left_out(session: Recorded) -> None:
    with session.path.open("a") as file:
        file.write('{"timestamp": "x"}\n[1]\nnot json\n{"timestamp": "2026-11-16T00:00:00Z", ')
    _, size = read_events(str(session.path), 0)
    session.say("assistant", "unread: it is part of a broken line")
    session.say("assistant", "later")
    events, _ = read_events(str(session.path), size)
    assert [event["text"] for event in events] == ["later"]


async def next_events(stream: AsyncGenerator[bytes, None]) -> list[Any]:
    """The events of the next message that has some."""
    while True:
        data = await asyncio.wait_for(anext(stream), 30)
        if data.startswith(b"id: "):
            return [json.loads(line[6:]) for line in data.splitlines() if line[:6] == b"data: "]


async def test_new_lines_come_as_they_are_written_to_every_viewer(session: Recorded) -> None:
    streams = SessionStreams()
    start = session.path.stat().st_size
    viewers = [streams.stream(str(session.path), start) for _ in range(3)]
    for viewer in viewers:
        assert b"event: state" in await asyncio.wait_for(anext(viewer), 30)
    for text in ("one more", "and one"):
        session.say("assistant", text)
        for viewer in viewers:
            assert [event["text"] for event in await next_events(viewer)] == [text]
    for viewer in viewers:
        await viewer.aclose()


async def test_news_say_at_once_that_there_may_be_some(home: Path) -> None:
    """What came between the page's first look and the watch is not missed."""
    stream = _news(str(home))
    assert b"event: news" in await asyncio.wait_for(anext(stream), 30)
    coming = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting(home)
    assert b"event: news" in await asyncio.wait_for(coming, 30)
    await stream.aclose()


async def test_reconnecting_neither_misses_nor_repeats(page: WebPage, session: Recorded) -> None:
    """Each connection is cut after its first message; together they have every event once."""
    whole, _ = read_events(str(session.path), 0)
    seen: list[Any] = []
    after = 0
    while len(seen) < len(whole):
        stream = SessionStreams().stream(str(session.path), after)
        event = (await next_events(stream))[0]
        seen.append(event)
        after = event["at"]
        await stream.aclose()
    assert seen == whole


@pytest.mark.parametrize("name", ["..", "%2e%2e%2fconfig.toml", "x" * 300, "0000"])
async def test_only_sessions_of_this_home_can_be_read(
    client: Client, session: Recorded, home: Path, name: str
) -> None:
    (home / "config.toml").write_text("secret")
    for what in ("events", "export?format=json"):
        answer = await client.get(f"/api/sessions/{name}/{what}")
        assert answer.status_code == 404
        assert "secret" not in answer.text


async def test_a_link_in_place_of_a_journal_is_not_followed(
    client: Client, session: Recorded, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    os.rename(session.path, kept)
    session.path.symlink_to(kept)
    for what in ("events", "export?format=json", "changes"):
        answer = await client.get(f"/api/sessions/{session.id}/{what}")
        assert answer.status_code == 404
        assert "repair" not in answer.text


@pytest.mark.parametrize(
    ("kind", "holds"), [("html", "repair the parser"), ("md", "## User"), ("json", '"items"')]
)
async def test_a_session_is_saved_as_a_file(
    client: Client, session: Recorded, kind: str, holds: str
) -> None:
    answer = await client.get(f"/api/sessions/{session.id}/export", params={"format": kind})
    assert holds in answer.text
    assert answer.headers["content-disposition"].endswith(f'.{kind}"')


async def test_an_approval_is_shown_whole_and_answered(client: Client, home: Path) -> None:
    pending = waiting(home)
    (shown,) = (await client.get("/api/approvals")).json()["approvals"]
    text = "\n".join(shown["lines"])
    assert "rm -r build" in text
    assert "/work" in text
    assert "sk-hidden" not in json.dumps(shown)
    answer = await client.post(
        f"/api/approvals/{pending.id}", json={"approve": True, "pin": shown["pin"]}, headers=PAGE
    )
    assert answer.json() == {"answer": "approved"}
    review = PendingStore(str(home)).answer_to(pending)
    assert review is not None
    assert review.approves
    assert (await client.get("/api/approvals")).json() == {"approvals": []}


async def test_the_first_answer_counts(client: Client, home: Path) -> None:
    pending = waiting(home)
    url, body = f"/api/approvals/{pending.id}", {"pin": pending.pin}
    first = await client.post(url, json={**body, "approve": False, "note": "not now"}, headers=PAGE)
    second = await client.post(url, json={**body, "approve": True}, headers=PAGE)
    assert (first.status_code, second.status_code) == (200, 409)
    assert "already answered: denied" in second.json()["error"]
    review = PendingStore(str(home)).answer_to(pending)
    assert review is not None
    assert (review.approves, review.note) == (False, "not now")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"approve": True}, 409),
        ({"approve": True, "pin": "0" * 64}, 409),
        ({"approve": True, "pin": "own", "scope": "user"}, 400),
        ({"approve": True, "pin": "own", "scope": ["once"]}, 400),
        ({"approve": "yes", "pin": "0"}, 409),
        ([], 409),
    ],
)
async def test_an_answer_to_something_else_approves_nothing(
    client: Client, home: Path, body: Any, status: int
) -> None:
    pending = waiting(home)
    if isinstance(body, dict) and body.get("pin") == "own":
        body = {**body, "pin": pending.pin}
    answer = await client.post(f"/api/approvals/{pending.id}", json=body, headers=PAGE)
    assert answer.status_code == status
    assert PendingStore(str(home)).answer_to(pending) is None


async def test_a_critical_call_needs_the_code(client: Client, home: Path) -> None:
    pending = waiting(home, risk=Risk.CRITICAL)
    url, body = f"/api/approvals/{pending.id}", {"approve": True, "pin": pending.pin}
    assert (await client.post(url, json=body, headers=PAGE)).status_code == 403
    right = await client.post(url, json={**body, "code": CODE}, headers=PAGE)
    assert right.json() == {"answer": "approved"}


async def test_codes_cannot_be_guessed(client: Client, home: Path) -> None:
    pending = waiting(home, risk=Risk.CRITICAL)
    url, body = f"/api/approvals/{pending.id}", {"approve": True, "pin": pending.pin}
    for guess in range(6):
        await client.post(url, json={**body, "code": f"{guess:06d}"}, headers=PAGE)
    assert (await client.post(url, json={**body, "code": CODE}, headers=PAGE)).status_code == 403
    assert PendingStore(str(home)).answer_to(pending) is None


async def test_a_read_only_page_answers_nothing(
    home: Path, client_for: Callable[[WebPage], Client]
) -> None:
    pending = waiting(home)
    page = WebPage(str(home), Logins(60), ("127.0.0.1:8137",), read_only=True)
    async with client_for(page) as client:
        await log_in(client, page.logins)
        body = {"approve": True, "pin": pending.pin}
        answer = await client.post(f"/api/approvals/{pending.id}", json=body, headers=PAGE)
    assert answer.status_code == 403
    assert "web_ui.read_only" in answer.json()["error"]
    assert PendingStore(str(home)).answer_to(pending) is None
