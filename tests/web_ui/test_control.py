"""Running sessions on the page: their approvals and questions, messages, interrupt, live text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Make, agent, workspace  # noqa: F401 - fixtures
from tests.cli.conftest import desk, serve  # noqa: F401 - fixtures
from tests.control.conftest import QUESTION, WRITE, Controlled, Front
from tests.web_ui.conftest import CODE, HOST, ORIGIN, Client, log_in

from toolrest.control import client as control_client
from toolrest.control import server as control_server
from toolrest.control.client import watch_session
from toolrest.control.sockets import connect, listen
from toolrest.gate.approval.request import ApprovalRequest
from toolrest.policy.effects import Risk
from toolrest.testing import Call, Say
from toolrest.web_ui import control
from toolrest.web_ui.access import Logins
from toolrest.web_ui.control import _events
from toolrest.web_ui.server import WebPage, _news

PAGE = {"Origin": ORIGIN}
ROUTES = (
    *("answer", "message", "interrupt", "undo", "end"),
    *("undo_plan", "unqueue", "model", "rename", "resume"),
)
FILES = "/api/files"


@pytest.fixture
def home(toolrest_home: Path) -> Path:
    return toolrest_home


@pytest.fixture
def running(agent: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Controlled]:  # noqa: F811
    monkeypatch.setattr(control_server, "INERT", 0.0)

    def make(script: Any, **settings: Any) -> Controlled:
        front = Front()
        return Controlled(
            agent(script, on_ask=front, approval_policy="untrusted", **settings), front
        )

    return make


async def asked(client: Client, one: Controlled) -> Any:
    """What waits, as the page lists it."""
    await one.waiting()
    (row,) = (await client.get("/api/approvals")).json()["approvals"]
    return row


async def post(client: Client, one: Controlled, what: str, **body: Any) -> Any:
    url = f"/api/sessions/{one.session.id}/{what}"
    return await client.post(url, json=body, headers=PAGE)


async def test_a_running_sessions_approval_is_answered_on_the_page(
    client: Client,
    running: Callable[..., Controlled],
    workspace: Path,  # noqa: F811
) -> None:
    one = running([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    row = await asked(client, one)
    assert (row["live"], row["kind"], row["session"]) == (True, "approval", one.session.id)
    assert "made.txt" in "\n".join(row["lines"])
    answer = {"request": row["id"], "pin": row["pin"], "approve": True, "scope": "session"}
    given = await post(client, one, "answer", **answer)
    assert given.json() == {"answer": "approved_for_session"}
    assert (await asyncio.wait_for(turn, 60)).text == "done"
    assert (workspace / "made.txt").exists()
    assert (await post(client, one, "answer", **answer)).status_code == 409


async def test_a_question_is_answered_on_the_page(
    client: Client, running: Callable[..., Controlled]
) -> None:
    def reply(request: Any) -> str:
        return "blue it is" if "blue" in str(request.items[-1]) else "?"

    one = running([Call("request_user_input", {"questions": [QUESTION]}), reply])
    turn = asyncio.ensure_future(one.session.run("go"))
    row = await asked(client, one)
    which = {"request": row["id"], "pin": row["pin"]}
    given = await post(client, one, "answer", **which, answers={"colour": ["blue"]})
    assert given.json() == {"answer": "answered"}
    assert (await asyncio.wait_for(turn, 60)).text == "blue it is"


async def test_a_critical_call_of_a_running_session_needs_the_code(
    client: Client, running: Callable[..., Controlled]
) -> None:
    one = running([])
    request = ApprovalRequest("c1", "exec_command", "{}", "it is critical", Risk.CRITICAL)
    approvals = one.session.rest.session.approvals
    review = asyncio.ensure_future(approvals.review(request))
    row = await asked(client, one)
    assert row["critical"] is True
    answer = {"request": row["id"], "pin": row["pin"], "approve": True}
    for code in ({}, {"code": "000000"}):
        assert (await post(client, one, "answer", **answer, **code)).status_code == 403
    assert not review.done()
    assert (await post(client, one, "answer", **answer, code=CODE)).status_code == 200
    given = await asyncio.wait_for(review, 60)
    assert given is not None
    assert given.approves


async def test_message_interrupt_and_undo(
    client: Client,
    running: Callable[..., Controlled],
    workspace: Path,  # noqa: F811
) -> None:
    def reply(request: Any) -> str:
        return "in red" if "paint it red" in str(request.items) else "?"

    one = running([WRITE, reply, WRITE])
    turn = asyncio.ensure_future(one.session.run("go"))
    row = await asked(client, one)
    assert (await post(client, one, "undo", turn=1)).status_code == 409
    assert (await post(client, one, "message", text="paint it red")).status_code == 200
    answer = {"request": row["id"], "pin": row["pin"], "approve": True}
    await post(client, one, "answer", **answer)
    assert (await asyncio.wait_for(turn, 60)).text == "in red"
    undone = (await post(client, one, "undo", turn=await one.undoable())).json()["lines"]
    assert "made.txt" in "\n".join(undone)
    assert not (workspace / "made.txt").exists()
    again = asyncio.ensure_future(one.session.run("again"))
    await one.waiting()
    assert (await post(client, one, "interrupt")).status_code == 200
    assert (await asyncio.wait_for(again, 60)).status == "interrupted"


async def test_live_text_reaches_the_page_from_the_first_piece(
    running: Callable[..., Controlled], home: Path
) -> None:
    one = running([Say("# One\n\ntwo **three**", chunks=5)])
    stream = watch_session(str(home), one.session.id)
    first = await anext(stream)
    sent = _events(first, stream)
    assert b"event: state" in await anext(sent)
    turn = asyncio.ensure_future(one.session.run("go"))
    whole: list[Any] = []
    last: list[Any] = []
    async for piece in sent:
        message = json.loads(piece.partition(b"data: ")[2])
        if message["event"] == "text":
            whole += message["whole"]
            last = message["open"]
        if message["event"] == "text_end":
            break
    assert [block["type"] for block in (*whole, *last)] == ["heading", "paragraph"]
    assert last[0]["spans"][1] == {"text": "three", "style": "bold"}
    await turn
    await sent.aclose()


async def test_a_session_that_ends_ends_its_stream(
    client: Client, running: Callable[..., Controlled]
) -> None:
    one = running([])
    url = f"/api/sessions/{one.session.id}/live"
    watching = asyncio.ensure_future(client.get(url))
    while not (one.server and one.server._viewers):
        await asyncio.sleep(0.01)
    await one.session.aclose()
    answer = await asyncio.wait_for(watching, 60)
    first = json.loads(answer.text.partition("data: ")[2].partition("\n")[0])
    assert (first["control"], first["busy"]) == (True, False)
    assert (await client.get(url)).status_code == 404


async def test_news_say_that_a_session_asks(running: Callable[..., Controlled], home: Path) -> None:
    one = running([WRITE, "done"])
    stream = _news(str(home))
    await asyncio.wait_for(anext(stream), 30)
    coming = asyncio.ensure_future(anext(stream))
    turn = asyncio.ensure_future(one.session.run("go"))
    assert b"event: news" in await asyncio.wait_for(coming, 30)
    request = await one.waiting()
    await one.answer(request, approve=False)
    await turn
    await stream.aclose()


@pytest.mark.slow
async def test_a_session_is_started_answered_and_ended_on_the_page(
    desk: Any,  # noqa: F811
    serve: Any,  # noqa: F811
    client_for: Callable[[WebPage], Client],
) -> None:
    serve([WRITE, "that was it"])
    with open(desk.home / "config.toml", "r+") as file:
        settings = file.read()
        file.seek(0)
        file.write('approval_policy = "untrusted"\n' + settings)
    logins = Logins(60)
    page = WebPage(str(desk.home), logins, (HOST,), folder=str(desk.workspace))
    async with client_for(page) as client:
        await log_in(client, logins)
        folders = (await client.get("/api/folders")).json()["folders"]
        assert folders == [str(desk.workspace)]
        body = {"folder": str(desk.home), "text": "go"}
        assert (await client.post("/api/sessions", json=body, headers=PAGE)).status_code == 409
        body = {"folder": folders[0], "text": "go"}
        answer = await client.post("/api/sessions", json=body, headers=PAGE)
        session = answer.json()["session"]
        news = _news(str(desk.home))
        rows: Any = []
        while not rows:
            await asyncio.wait_for(anext(news), 60)
            rows = (await client.get("/api/approvals")).json()["approvals"]
        which = {"request": rows[0]["id"], "pin": rows[0]["pin"]}
        url = f"/api/sessions/{session}"
        inert = await client.post(f"{url}/answer", json={**which, "approve": True}, headers=PAGE)
        while inert.status_code == 409:
            inert = await client.post(
                f"{url}/answer", json={**which, "approve": True}, headers=PAGE
            )
        assert inert.json() == {"answer": "approved"}
        async for message in watch_session(str(desk.home), session):
            if message["event"] == "state" and not message["busy"]:
                break
        assert (desk.workspace / "made.txt").exists()
        assert (await client.post(f"{url}/end", headers=PAGE)).status_code == 200
        assert (await client.get(f"{url}/live")).status_code == 404
        await news.aclose()
        await page.controls.hosted.aclose()


@pytest.mark.long
@pytest.mark.parametrize("reason", ["web_ui.control is false", "no control socket"])
async def test_a_session_that_cannot_start_says_why(
    desk: Any,  # noqa: F811
    client_for: Callable[[WebPage], Client],
    serve: Any,  # noqa: F811
    reason: str,
) -> None:
    if reason == "no control socket":
        serve(["hello"])
        (desk.home / "control").touch()
    else:
        (desk.home / "config.toml").write_text("web_ui.control = false\n")
    page = WebPage(str(desk.home), Logins(60), (HOST,), folder=str(desk.workspace))
    async with client_for(page) as client:
        await log_in(client, page.logins)
        body = {"folder": str(desk.workspace), "text": "go"}
        answer = await client.post("/api/sessions", json=body, headers=PAGE)
        assert answer.status_code == 409
        assert reason in answer.json()["error"]


async def test_a_folder_that_became_a_link_begins_no_session(
    desk: Any,  # noqa: F811
    client_for: Callable[[WebPage], Client],
    serve: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page shows one folder, and the session would have another one for its workspace."""
    serve(["done"])
    folder = desk.workspace / "package"
    folder.symlink_to(desk.home.parent)
    page = WebPage(str(desk.home), Logins(60), (HOST,), folder=str(folder))
    async with client_for(page) as client:
        await log_in(client, page.logins)
        assert (await client.get("/api/folders")).json() == {"folders": []}
        body = {"folder": str(folder), "text": "go"}
        assert (await client.post("/api/sessions", json=body, headers=PAGE)).status_code == 409
        # It may become one between the look at it and the start.
        monkeypatch.setattr(control.SessionControl, "_known_folders", lambda _: [str(folder)])
        answer = await client.post("/api/sessions", json=body, headers=PAGE)
        assert answer.status_code == 409
        assert f"leads to {desk.home.parent}" in answer.json()["error"]
        await page.controls.hosted.aclose()


# What is refused


@pytest.fixture(params=["read_only", "control"])
async def barred(
    request: Any, home: Path, client_for: Callable[[WebPage], Client]
) -> AsyncIterator[Client]:
    """A page that controls nothing: read-only, or without control."""
    page = WebPage(str(home), Logins(60), (HOST,), pin=CODE)
    page.read_only = request.param == "read_only"
    page.control = request.param != "control"
    async with client_for(page) as made:
        await log_in(made, page.logins)
        yield made


async def test_a_page_without_control_does_nothing(
    barred: Client,
    running: Callable[..., Controlled],
    workspace: Path,  # noqa: F811
) -> None:
    one = running([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    row = await one.waiting()
    answer = {"request": row["id"], "pin": row["pin"], "approve": True, "code": CODE}
    for what in ROUTES:
        assert (await post(barred, one, what, text="hello", **answer)).status_code == 403
    begin = {"folder": str(workspace), "text": "go"}
    assert (await barred.post("/api/sessions", json=begin, headers=PAGE)).status_code == 403
    assert (await barred.get("/api/folders")).json() == {"folders": []}
    assert (await barred.get(FILES, params={"folder": str(workspace)})).status_code == 403
    assert not (Path(one.home) / "session-names").exists()
    assert (await one.ask("waiting"))["waiting"] == [row]
    assert not (workspace / "made.txt").exists()
    await one.ask("interrupt")
    await turn


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": "http://127.0.0.1:8138"}, 403),
        ({"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": ORIGIN, "Host": "evil.test:8137"}, 421),
        ({"Origin": ORIGIN, "Cookie": "none=x"}, 401),
        ({"Origin": ORIGIN, "x-toolrest-key": "guess"}, 401),
    ],
)
async def test_other_pages_control_nothing(
    client: Client,
    running: Callable[..., Controlled],
    workspace: Path,  # noqa: F811
    headers: dict[str, str],
    status: int,
) -> None:
    one = running([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    row = await one.waiting()
    body = {"request": row["id"], "pin": row["pin"], "approve": True, "text": "hello"}
    own = f"/api/sessions/{one.session.id}"
    for url in ("/api/sessions", *(f"{own}/{what}" for what in ROUTES)):
        answer = await client.post(
            url, content=json.dumps(body), headers={"content-type": "text/plain", **headers}
        )
        assert answer.status_code == status
    if status != 403 or "Origin" in headers:
        for url in (f"{own}/live", f"{FILES}?folder={workspace}"):
            assert (await client.get(url, headers=headers)).status_code == status
    assert (await one.ask("waiting"))["waiting"] == [row]
    await one.ask("interrupt")
    await turn


@pytest.mark.parametrize("name", ["..", "%2e%2e%2fconfig.toml", "x" * 300, "0000"])
async def test_only_running_sessions_are_controlled(client: Client, name: str) -> None:
    for what in ROUTES:
        answer = await client.post(f"/api/sessions/{name}/{what}", json={"text": "x"}, headers=PAGE)
        assert answer.status_code in (404, 405, 409)
    assert (await client.get(f"/api/sessions/{name}/live")).status_code == 404


@pytest.mark.slow
async def test_a_session_that_does_not_answer_holds_up_no_other(
    client: Client,
    running: Callable[..., Controlled],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is suspended, for example; what it asked before stays on the list."""
    one = running([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    row = await asked(client, one)
    monkeypatch.setattr(control, "_SOON", 0.3)
    with listen(str(home), "suspended"):
        approvals = (await asyncio.wait_for(client.get("/api/approvals"), 10)).json()["approvals"]
    assert approvals == [row]

    async def never(_: Any, __: str) -> Any:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(control.SessionControl, "_waiting_in", never)
    assert (await client.get("/api/approvals")).json()["approvals"] == [row]
    await one.session.interrupt()
    await turn


@pytest.mark.slow
async def test_the_page_waits_for_no_suspended_session(
    client: Client,
    running: Callable[..., Controlled],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often the page looks: what waits there stays on the list, its live view ends."""
    one = running([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    row = await asked(client, one)
    monkeypatch.setattr(control, "_SOON", 0.02)
    monkeypatch.setattr(control_client, "connect", lambda home, _: connect(home, "suspended"))
    with listen(str(home), "suspended"):
        for _ in range(20):
            approvals = (await client.get("/api/approvals")).json()["approvals"]
            assert [found["id"] for found in approvals] == [row["id"]]
        answer = await client.get(f"/api/sessions/{one.session.id}/live")
        assert answer.status_code == 404
        answer = await post(client, one, "interrupt")
        assert (answer.status_code, "nothing was sent" in answer.text) == (404, True)
    await one.session.interrupt()
    await turn


async def test_a_long_message_reaches_the_session(
    client: Client, running: Callable[..., Controlled]
) -> None:
    text = "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 190_000
    one = running([WRITE, lambda request: "long" if text in str(request.items) else "?"])
    turn = asyncio.ensure_future(one.session.run("go"))
    row = await asked(client, one)
    assert (await post(client, one, "message", text=text)).status_code == 200
    await post(client, one, "answer", request=row["id"], pin=row["pin"], approve=False)
    assert (await asyncio.wait_for(turn, 60)).text == "long"
