"""What the page may do to sessions besides answering them, and how it is kept to that."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import Make, agent, workspace  # noqa: F401 - fixtures
from tests.cli.conftest import desk, serve  # noqa: F401 - fixtures
from tests.control.conftest import WRITE, Controlled
from tests.web_ui.conftest import HOST, ORIGIN, Client, Recorded, log_in
from tests.web_ui.test_control import post, running  # noqa: F401 - a fixture

from toolrest.chat.session import ChatSession
from toolrest.cli.servers.host import _Unseen
from toolrest.control.controls import ControlError
from toolrest.web_ui.access import Logins
from toolrest.web_ui.hosted import HostedSessions
from toolrest.web_ui.listing import SessionList
from toolrest.web_ui.server import WebPage

PAGE = {"Origin": ORIGIN}


@pytest.fixture
def home(toolrest_home: Path) -> Path:
    return toolrest_home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "shop"
    made.mkdir()
    return made


@pytest.fixture
def session(home: Path, folder: Path) -> Recorded:
    """A session that has ended, in a folder that is there."""
    made = Recorded(home, cwd=str(folder))
    made.say("user", "repair the cart")
    return made


async def named(client: Client, folder: Any, typed: str) -> Any:
    answer = await client.get("/api/files", params={"folder": str(folder), "typed": typed})
    return answer.json().get("names", answer.status_code)


# File names


async def test_file_names_are_completed(client: Client, session: Recorded, folder: Path) -> None:
    (folder / "src").mkdir()
    for name in ("src/cart.py", "src/card.py", "README.md", "\u8336.txt"):
        (folder / name).write_text("x")
    assert await named(client, folder, "car") == ["src/card.py", "src/cart.py"]
    assert await named(client, folder, "\u8336") == ["\u8336.txt"]
    assert await named(client, folder, "nothing like it") == []


async def test_hidden_names_are_not_listed(
    client: Client, session: Recorded, folder: Path, home: Path
) -> None:
    """By name, by the settings, by a link to them, and while the settings cannot be read."""
    (home / "config.toml").write_text('hidden_paths = ["*.private"]\n')
    (folder / "sub").mkdir()
    for name in (".env", "sub/.env.local", "key.private", "open.txt"):
        (folder / name).write_text("x")
    (folder / "env-link").symlink_to(folder / ".env")
    (folder / "home-link").symlink_to(home / "config.toml")
    for typed in ("env", "private", "link", "config"):
        assert await named(client, folder, typed) == []
    assert await named(client, folder, "") == ["open.txt"]
    (home / "config.toml").write_text("[torn")
    assert await named(client, folder, "") == []


@pytest.mark.parametrize("asked", ["/etc", "..", "", "/", "HOME", "LINK", "INSIDE"])
async def test_names_of_no_other_folder_are_listed(
    client: Client, session: Recorded, folder: Path, home: Path, tmp_path: Path, asked: str
) -> None:
    (folder / "inside").mkdir()
    (tmp_path / "link").symlink_to(folder)
    places = {"HOME": home, "LINK": tmp_path / "link", "INSIDE": folder / "inside"}
    assert await named(client, places.get(asked, asked), "a") == 409


@pytest.mark.parametrize("typed", ["../", "/etc/pass", "a" * 100_000, "\0", "(a+)+$"])
async def test_whatever_is_typed_is_only_looked_for(
    client: Client, session: Recorded, folder: Path, typed: str
) -> None:
    (folder / ("a" * 200)).write_text("x")
    answer = await client.get("/api/files", params={"folder": str(folder), "typed": typed[:9000]})
    assert answer.json()["names"] in ([], ["a" * 200])


# Names of sessions


async def test_a_session_is_renamed_in_the_list_and_the_search(
    client: Client, session: Recorded, home: Path
) -> None:
    at = f"/api/sessions/{session.id}/rename"
    given = {"  \u8cfc\u7269\u8eca \n two ": "\u8cfc\u7269\u8eca two", "": "repair the cart"}
    for name, shown in given.items():
        assert (await client.post(at, json={"title": name}, headers=PAGE)).status_code == 200
        (row,) = (await client.get("/api/sessions")).json()["sessions"]
        assert row["title"] == shown
        found = await client.get("/api/sessions", params={"q": shown})
        assert len(found.json()["sessions"]) == 1
    names = home / "session-names"
    assert names.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in names.iterdir()] == [0o600]


@pytest.mark.parametrize("title", ["x" * 121, "x" * 100_000])
async def test_a_name_is_short(client: Client, session: Recorded, title: str) -> None:
    answer = await client.post(
        f"/api/sessions/{session.id}/rename", json={"title": title}, headers=PAGE
    )
    assert answer.status_code == 409


@pytest.mark.parametrize("name", ["..", "x", "..%2fconfig.toml", "0000"])
async def test_only_sessions_are_renamed(
    client: Client, session: Recorded, home: Path, name: str
) -> None:
    answer = await client.post(f"/api/sessions/{name}/rename", json={"title": "x"}, headers=PAGE)
    assert answer.status_code in (404, 405)
    assert not (home / "session-names").exists()


async def test_whatever_stands_among_the_names_takes_none_away(
    client: Client, session: Recorded, home: Path
) -> None:
    at = f"/api/sessions/{session.id}/rename"
    assert (await client.post(at, json={"title": "mine"}, headers=PAGE)).status_code == 200
    names = home / "session-names"
    os.mkfifo(names / "fifo")
    (names / "folder").mkdir()
    (names / "bytes").write_bytes(b"\xff" * 10_000_000)
    (row,) = (await client.get("/api/sessions")).json()["sessions"]
    assert row["title"] == "mine"


async def test_a_name_is_written_through_no_link(
    client: Client, session: Recorded, home: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (home / "session-names").mkdir(mode=0o700)
    (home / "session-names" / session.id).symlink_to(target)
    at = f"/api/sessions/{session.id}/rename"
    assert (await client.post(at, json={"title": "x"}, headers=PAGE)).status_code == 200
    assert target.read_text() == "untouched"


# Resuming


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options of sessions that are started; none is."""
    found: list[Any] = []

    async def start(_: Any, folder: str, text: str, used: Any = (), options: Any = ()) -> str:
        found.append((folder, list(options)))
        return "started"

    monkeypatch.setattr(HostedSessions, "start", start)
    return found


LIMITS = [
    (("workspace-write", "never", ""), ["workspace-write", "never"]),
    (("workspace-write", "on-request", "read-only"), ["read-only", "on-request"]),
    (("read-only", "untrusted", "workspace-write"), ["read-only", "untrusted"]),
    (("read-only", "untrusted", "danger-full-access"), ["read-only", "untrusted"]),
    (("anything", "anything", "workspace-write"), ["read-only", "untrusted"]),
    ((None, ["x"], ""), ["read-only", "untrusted"]),
]


@pytest.mark.parametrize(("given", "limits"), LIMITS)
async def test_a_session_is_resumed_with_its_limits_or_narrower_ones(
    client: Client, session: Recorded, folder: Path, started: list[Any], given: Any, limits: Any
) -> None:
    sandbox, approval, wanted = given
    policy = {"sandbox_policy": {"type": sandbox}, "approval_policy": approval}
    session.write("turn_context", policy)
    body = {"text": "go on", "sandbox": wanted}
    answer = await client.post(f"/api/sessions/{session.id}/resume", json=body, headers=PAGE)
    assert answer.json() == {"session": "started"}
    sandbox, approval = limits
    assert started == [
        (str(folder), ["--resume", session.id, "-s", sandbox, "-a", approval]),
    ]


@pytest.mark.parametrize("why", ["full access", "a link", "elsewhere", "gone"])
async def test_a_session_is_resumed_in_its_own_folder_alone(
    client: Client, session: Recorded, folder: Path, started: list[Any], why: str, tmp_path: Path
) -> None:
    mode = "danger-full-access" if why == "full access" else "read-only"
    session.write("turn_context", {"sandbox_policy": {"type": mode}})
    if why in ("a link", "gone"):
        folder.rmdir()
    if why == "a link":
        folder.symlink_to("/etc")
    body = {"text": "go on", "folder": "/etc", "cwd": "/etc"}
    where = "none" if why == "elsewhere" else session.id
    answer = await client.post(f"/api/sessions/{where}/resume", json=body, headers=PAGE)
    assert answer.status_code == (404 if why == "elsewhere" else 409)
    assert started == []


@pytest.mark.slow
async def test_a_session_that_runs_is_not_resumed(
    desk: Any,  # noqa: F811
    serve: Any,  # noqa: F811
    client_for: Callable[[WebPage], Client],
) -> None:
    serve(["first", "second", "third"])
    page = WebPage(str(desk.home), Logins(60), (HOST,), folder=str(desk.workspace))
    async with client_for(page) as client:
        await log_in(client, page.logins)
        body = {"folder": str(desk.workspace), "text": "go"}
        begun = await client.post("/api/sessions", json=body, headers=PAGE)
        session = begun.json()["session"]
        at = f"/api/sessions/{session}/resume"
        answer = await client.post(at, json={"text": "again"}, headers=PAGE)
        assert answer.status_code == 409
        assert "open in another process" in answer.json()["error"]
        (row,) = (await client.get("/api/sessions")).json()["sessions"]
        assert row["state"] in ("working", "idle")
        assert (await client.post(f"/api/sessions/{session}/end", headers=PAGE)).status_code == 200
        (row,) = (await client.get("/api/sessions")).json()["sessions"]
        assert row["state"] == "ended"
        again = await client.post(at, json={"text": "again"}, headers=PAGE)
        assert again.json() == {"session": session}
        await page.controls.hosted.aclose()


# The model, the queue, undo

OWN = {"mine": {"base_url": "http://127.0.0.1:9/v1", "models": {"small": {"stream": True}}}}


async def test_only_a_model_of_the_settings_is_taken(
    client: Client,
    running: Callable[..., Controlled],  # noqa: F811
) -> None:
    one = running(["done"], model_providers=OWN)
    before = one.session.model.name
    assert (await one.ask("state"))["models"] == ["mine:small"]
    for name in ("other", "openai:gpt-5.5", "mine:large", "", None, ["mine:small"]):
        answer = await post(client, one, "model", name=name)
        assert answer.status_code == 409
        assert "name no model" in answer.json()["error"]
    assert one.session.model.name == before


async def test_a_turn_under_way_keeps_its_model(
    client: Client,
    running: Callable[..., Controlled],  # noqa: F811
) -> None:
    one = running([WRITE, "done"], model_providers=OWN)
    turn = asyncio.ensure_future(one.session.run("go"))
    await one.waiting()
    answer = await post(client, one, "model", name="mine:small")
    assert (answer.status_code, "under way" in answer.json()["error"]) == (409, True)
    await one.ask("interrupt")
    await turn


@pytest.mark.parametrize("at", [0, -1, 10**30, "0", None, True])
async def test_nothing_else_than_a_queued_message_is_removed(
    client: Client,
    running: Callable[..., Controlled],  # noqa: F811
    at: Any,
) -> None:
    one = running(["done"])
    assert (await post(client, one, "unqueue", at=at, text="x")).status_code == 409


@pytest.mark.parametrize(("at", "text"), [(0, "two"), (1, "one"), (2, "two"), (-1, "two")])
def test_the_message_that_is_removed_is_the_one_that_was_shown(at: int, text: str) -> None:
    session = ChatSession(lambda *_: pytest.fail("nothing is opened"), _Unseen())
    session.queue += ["one", "two"]
    with pytest.raises(ControlError, match="not queued any more"):
        session.unqueue(at, text)
    assert session.queued() == ["one", "two"]
    session.unqueue(1, "two")
    assert session.queued() == ["one"]


async def test_undo_names_its_files_and_changes_nothing_before(
    client: Client,
    running: Callable[..., Controlled],  # noqa: F811
    workspace: Path,  # noqa: F811
) -> None:
    one = running([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    row = await one.waiting()
    await one.answer(row, approve=True)
    await turn
    number = await one.undoable()
    plan = (await post(client, one, "undo_plan", turn=number)).json()
    assert plan == {"files": [{"path": "made.txt", "action": "remove"}], "kept": []}
    assert (workspace / "made.txt").exists()
    for wrong in (number + 1, None, "1"):
        assert (await post(client, one, "undo_plan", turn=wrong)).status_code == 409


# States


async def test_states_are_those_of_the_sessions(
    client: Client,
    running: Callable[..., Controlled],  # noqa: F811
    session: Recorded,
) -> None:
    one = running([WRITE, "done"])

    async def states() -> dict[str, str]:
        rows = (await client.get("/api/sessions")).json()["sessions"]
        return {row["id"]: row["state"] for row in rows}

    turn = asyncio.ensure_future(one.session.run("go"))
    row = await one.waiting()
    assert await states() == {session.id: "ended", one.session.id: "waiting"}
    await one.answer(row, approve=False)
    await turn
    assert (await states())[one.session.id] == "idle"
    await one.session.aclose()
    assert (await states())[one.session.id] == "ended"


def test_names_cost_the_list_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read when one has changed."""
    Recorded(home)
    found = SessionList(str(home))
    found.names.give("0000", "x")
    found.rows(10)
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("read again"))
    found.rows(10)
