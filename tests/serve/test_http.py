"""The server over HTTP: who gets in, and that the official client works once it is in."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from toolrest.errors import ConfigError
from toolrest.serve import http

Serving = Callable[..., AbstractAsyncContextManager[str]]
TOKEN = "0123456789abcdef0123"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}
LIST = {"cmd": "ls hello.txt"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, 421),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "null"}, 403),
        ({"Authorization": f"bearer {TOKEN}"}, 200),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
    ],
)
async def test_who_gets_in(serving: Serving, headers: dict[str, str], status: int) -> None:
    async with serving(TOKEN) as url, httpx2.AsyncClient() as client:
        answer = await client.post(url, json=HELLO, headers={**ACCEPT, **headers})
        assert answer.status_code == status


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("127.0.0.1:{}", 200),
        ("box.lan:{}", 200),
        ("box.lan", 200),
        ("proxy.example:8443", 200),
        ("proxy.example:{}", 421),
        ("evil.example:{}", 421),
        ("0.0.0.0:{}", 421),
    ],
)
async def test_names_that_the_user_allows(serving: Serving, asked: str, status: int) -> None:
    """On every address at once there is no other way to tell a client from a foreign page."""
    names = ("box.lan", "proxy.example:8443")
    async with (
        serving(TOKEN, host="0.0.0.0", allowed=names) as url,
        httpx2.AsyncClient() as client,
    ):
        port = url.rpartition(":")[2].partition("/")[0]
        headers = {**ACCEPT, "Authorization": f"Bearer {TOKEN}", "Host": asked.format(port)}
        assert (await client.post(url, json=HELLO, headers=headers)).status_code == status
        del headers["Authorization"]
        assert (await client.post(url, json=HELLO, headers=headers)).status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_every_address_needs_a_name(host: str) -> None:
    with pytest.raises(ConfigError, match="--allow-host NAME"):
        http.check_names(host, ())
    http.check_names(host, ("box.lan",))
    http.check_names("127.0.0.1", ())


@pytest.mark.parametrize("name", ["", "*", "http://box.lan", "box.lan:*", "a b"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match="--allow-host takes"):
        http.check_names("127.0.0.1", (name,))


@pytest.mark.usefixtures("any_sandbox")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client(serving: Serving, workspace: Path, mode: Any) -> None:
    async with (
        serving(TOKEN, approval_policy="never", sandbox_mode="workspace-write") as url,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as web,
        Client(streamable_http_client(url, http_client=web), mode=mode) as client,
    ):
        result = await client.call_tool("exec_command", {"cmd": "echo hi > made; cat made"})
        assert "hi" in str(result.content)
        assert (workspace / "made").read_text() == "hi\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("8000", ("127.0.0.1", 8000)),
        ("[::1]:9", ("::1", 9)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert http.address(text) == expected


@pytest.mark.parametrize("text", ["", "host", "host:", "host:99999", "1.2.3.4:x"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--http"):
        http.address(text)


def test_tokens(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=http.TOKEN_VARIABLE):
        http.token_from({http.TOKEN_VARIABLE: "short"})
    path = tmp_path / "run" / "token"
    token = http.new_token(str(path))
    assert path.read_text().strip() == token
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert http.new_token(str(path)) != token


@pytest.mark.usefixtures("any_sandbox")
async def test_clients_do_not_share_a_loop_watch(serving: Serving, workspace: Path) -> None:
    """The fifth client that made the same call used to be refused as a loop."""
    async with (
        serving(TOKEN, approval_policy="never", sandbox_mode="workspace-write") as url,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as web,
    ):
        for _ in range(6):
            async with Client(streamable_http_client(url, http_client=web)) as client:
                result = await client.call_tool("exec_command", {"cmd": "echo hi >> made"})
                assert not result.is_error
                assert "same" not in str(result.content)
    assert (workspace / "made").read_text() == "hi\n" * 6


@pytest.mark.usefixtures("any_sandbox")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_question_that_is_open_holds_up_no_other_client(
    serving: Serving, workspace: Path, mode: Any
) -> None:
    """They used to wait until it was answered, for ever when its client was gone."""
    opened, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(*_: Any) -> ElicitResult:
        opened.set()
        await may_answer.wait()
        return ElicitResult(action="accept", content={"decision": "approve"})

    approve: Any = answer
    async with (
        serving(TOKEN, approval_policy="untrusted", sandbox_mode="workspace-write") as url,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as web,
        Client(
            streamable_http_client(url, http_client=web), mode=mode, elicitation_callback=approve
        ) as asked,
        Client(streamable_http_client(url, http_client=web), mode=mode) as other,
    ):
        waiting = asyncio.ensure_future(asked.call_tool("exec_command", {"cmd": "touch made"}))
        await opened.wait()
        for name, given in (("read_file", {"file_path": "hello.txt"}), ("exec_command", LIST)):
            result = await other.call_tool(name, given)
            assert "hello" in str(result.content)
        assert not (workspace / "made").exists()
        may_answer.set()
        assert not (await waiting).is_error
    assert (workspace / "made").exists()
