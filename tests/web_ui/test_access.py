"""Hostile pages, other ports and old links: all are refused before anything is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.screen import Screen
from tests.web_ui.conftest import (
    HOST,
    ORIGIN,
    TOOLREST,
    Client,
    Recorded,
    Served,
    log_in,
    waiting,
)

from toolrest.config import load
from toolrest.errors import ConfigError
from toolrest.gate.approval.pending_store import PendingStore
from toolrest.serve import listening
from toolrest.web_ui.access import Logins
from toolrest.web_ui.page import document
from toolrest.web_ui.server import WebPage
from toolrest.web_ui.start import Wanted, serve_page


async def test_without_the_link_there_is_nothing_to_see(
    page: WebPage, client_for: Callable[[WebPage], Client], session: Recorded
) -> None:
    async with client_for(page) as stranger:
        for path in ("sessions", f"sessions/{session.id}/events", "approvals", "news"):
            assert (await stranger.get(f"/api/{path}")).status_code == 401
        assert "repair" not in (await stranger.get("/")).text


async def test_a_link_is_good_once_and_a_wrong_one_slows(
    page: WebPage, client_for: Callable[[WebPage], Client]
) -> None:
    token = page.logins.link()
    async with client_for(page) as one:
        answers = [
            await one.post("/api/login", json={"token": token}, headers={"Origin": ORIGIN})
            for _ in range(7)
        ]
    assert [answer.status_code for answer in answers] == [200, 401, 401, 401, 401, 401, 429]


async def test_wrong_links_of_others_keep_nobody_out(
    page: WebPage, client_for: Callable[[WebPage], Client]
) -> None:
    """Whoever is on this machine can send them all day."""
    async with client_for(page) as one:
        for _ in range(9):
            await one.post("/api/login", json={"token": "x"}, headers={"Origin": ORIGIN})
        assert (await log_in(one, page.logins)).status_code == 200


async def test_a_link_is_good_for_an_hour(
    home: Path, client_for: Callable[[WebPage], Client]
) -> None:
    now = [0.0]
    page = WebPage(str(home), Logins(60, lambda: now[0]), (HOST,))
    token = page.logins.link()
    now[0] += 3601
    async with client_for(page) as one:
        answer = await one.post("/api/login", json={"token": token}, headers={"Origin": ORIGIN})
        assert answer.status_code == 401
        evil = await one.post(
            "/api/login", content=b'{"token": "\\ud800"}', headers={"Origin": ORIGIN}
        )
        assert evil.status_code == 401


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(
    page: WebPage, client_for: Callable[[WebPage], Client]
) -> None:
    async with client_for(page) as one:
        cookie = (await log_in(one, page.logins)).headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=strict", "Path=/api/"):
        assert part in cookie


@pytest.mark.parametrize("lost", ["x-toolrest-key", "Cookie"])
async def test_the_cookie_alone_or_the_key_alone_opens_nothing(client: Client, lost: str) -> None:
    """A server on another port of this machine gets the cookie, but never the key."""
    assert (await client.get("/api/sessions")).status_code == 200
    del client.headers[lost]
    assert (await client.get("/api/sessions")).status_code == 401


@pytest.mark.parametrize(
    "set_elsewhere",
    ['prefs={"a": 1}', "a", "=", 'q="x', "caf\u00e9=1", "{name}=tossed", "{name}", "$Path=/", ";;"],
)
@pytest.mark.parametrize("is_before", [True, False])
async def test_cookies_of_other_ports_log_nobody_out(
    client: Client, set_elsewhere: str, is_before: bool
) -> None:
    """Servers on other ports of this machine set them for ours, too, of any form and name."""
    own = client.headers["Cookie"]
    other = set_elsewhere.replace("{name}", own.partition("=")[0])
    cookies = f"{other}; {own}" if is_before else f"{own}; {other}"
    headers = {b"Cookie": cookies.encode()}
    assert (await client.get("/api/sessions", headers=headers)).status_code == 200
    answer = await client.post("/api/logout", headers={**headers, b"Origin": ORIGIN.encode()})
    assert answer.status_code == 200
    assert (await client.get("/api/sessions")).status_code == 401


async def test_an_idle_browser_is_logged_out(
    home: Path, client_for: Callable[[WebPage], Client]
) -> None:
    now = [0.0]
    page = WebPage(str(home), Logins(60, lambda: now[0]), (HOST,))
    async with client_for(page) as one:
        await log_in(one, page.logins)
        for _ in range(3):
            now[0] += 50
            assert (await one.get("/api/sessions")).status_code == 200
        now[0] += 61
        assert (await one.get("/api/sessions")).status_code == 401


async def test_a_restart_logs_every_browser_out(served: Served, home: Path) -> None:
    """A program that had the port meanwhile got the cookie and the key of tabs that stayed open."""

    def client() -> httpx.AsyncClient:
        origin = f"http://127.0.0.1:{served.port}"
        return httpx.AsyncClient(base_url=origin, headers={"Origin": origin})

    token = served.link.partition("#token=")[2]
    async with client() as one:
        answer = await one.post("/api/login", json={"token": token})
        headers = {"x-toolrest-key": answer.json()["key"]}
        assert (await one.get("/api/sessions", headers=headers)).status_code == 200
        cookies = one.cookies
    served.stop()
    served.start("--port", served.port)
    async with client() as again:
        again.cookies = cookies
        assert (await again.get("/api/sessions", headers=headers)).status_code == 401
    kept = [path for path in home.rglob("*") if path.is_file() and path.suffix != ".jsonl"]
    assert kept == []


async def test_logging_out_ends_it(client: Client) -> None:
    assert (await client.post("/api/logout", headers={"Origin": ORIGIN})).status_code == 200
    assert (await client.get("/api/sessions")).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.test:8137"}, 421),
        ({"Host": "127.0.0.1:9999"}, 421),
        ({"Host": "127.0.0.1.nip.io:8137"}, 421),
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://127.0.0.1:8137"}, 403),
        ({"Origin": "http://127.0.0.1:8138"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Service-Worker": "script"}, 403),
    ],
)
async def test_requests_of_other_pages_are_refused(
    client: Client, headers: dict[str, str], status: int
) -> None:
    for path in ("/", "/api/sessions", "/api/news"):
        assert (await client.get(path, headers=headers)).status_code == status
    answer = await client.post("/api/logout", headers={"Origin": ORIGIN, **headers})
    assert answer.status_code == status
    assert (await client.get("/api/sessions")).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_is_no_name_of_a_machine_is_refused(home: Path, host: str) -> None:
    """Nobody could open the page there: browsers name the machine, which we have to know."""
    wanted = Wanted(host=host, cert=__file__, key=__file__)
    with pytest.raises(ConfigError, match="the one address or name"):
        serve_page(load(env={"TOOLREST_HOME": str(home)}), wanted)


def test_every_start_takes_another_port_by_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service worker that another program left for a port would be in front of the page."""
    asked: list[int] = []

    def listen(_: str, port: int) -> None:
        asked.append(port)
        raise ConfigError("not in this test")

    monkeypatch.setattr(listening, "listen", listen)
    with pytest.raises(ConfigError, match="not in this test"):
        serve_page(load(env={"TOOLREST_HOME": str(home)}), Wanted())
    assert asked == [0]


async def test_a_form_of_another_page_answers_no_approval(client: Client, home: Path) -> None:
    """A form needs no leave of a browser to be sent, but it says its origin, or none."""
    pending = waiting(home)
    for headers in ({}, {"Origin": "null"}, {"Origin": "http://evil.test"}):
        answer = await client.post(
            f"/api/approvals/{pending.id}",
            content='{"approve": true}',
            headers={"content-type": "text/plain", **headers},
        )
        assert answer.status_code == 403
    assert PendingStore(str(home)).answer_to(pending) is None


async def test_headers_two_times_are_no_way_in(page: WebPage) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": [(b"host", HOST.encode()), (b"host", b"evil.test")],
    }
    await page.application()(scope, receive, send)
    assert sent[0]["status"] == 421


async def test_web_sockets_are_closed(page: WebPage) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    await page.application()({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_every_answer_forbids_frames_caches_and_sniffing(client: Client) -> None:
    for path in ("/", "/api/sessions", "/api/sessions/none/events", "/nowhere"):
        headers = (await client.get(path)).headers
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "access-control-allow-origin" not in headers


def test_the_page_has_no_markup_from_data_and_loads_nothing_else() -> None:
    text = document()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(", text)
    assert not re.search(r"""(src|href)=["']https?:|url\(|@import""", text)
    assert not re.search(r"<[^>]+\son\w+=", text)


def test_a_saved_page_cannot_be_broken_out_of() -> None:
    evil = "</script><script>alert(1)</script><!--"
    text = document({"session": {"id": evil, "cwd": ""}, "events": []})
    assert "<script>alert" not in text
    assert "\\u003c/script>" in text
    assert "connect-src 'none'" in text


@pytest.mark.slow
def test_enter_at_the_terminal_prints_a_link_for_another_tab(home: Path) -> None:
    """The first tab stays logged in, and each link opens one."""
    with Screen([str(TOOLREST), "web"], size=(24, 120), cwd=home) as screen:
        screen.sees("press Enter for another")
        screen.types("\r")
        links: list[str] = []

        def printed() -> bool:
            text = screen.text.replace("\n", "")
            links[:] = re.findall(r"http://127\.0\.0\.1:\d+/#token=([\w-]{43})", text)
            return len(links) == 2

        screen.until(printed)
        port = re.search(r"127\.0\.0\.1:(\d+)", screen.text)
        assert port
        origin = f"http://127.0.0.1:{port[1]}"
        for token, status in ((links[0], 200), (links[1], 200), (links[1], 401)):
            answer = httpx.post(
                f"{origin}/api/login", json={"token": token}, headers={"Origin": origin}
            )
            assert answer.status_code == status
