"""What leaves the machine is what docs/privacy.md says: every header, every connection."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.wire.conftest import user
from tests.wire.http.test_transport import CHUNKED, answering, serving

from toolrest.config.schema.families import ModelWire
from toolrest.secret import SafeUrl, Secret
from toolrest.testing import Call, ScriptedServer
from toolrest.wire.model import ModelError, ModelRequest
from toolrest.wire.provider import Provider
from toolrest.wire.providers import client_for

PAGE = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text()
APIS: dict[ModelWire, str] = {
    "responses": "Responses",
    "chat": "Chat Completions",
    "anthropic": "Anthropic Messages",
}
SOMETIMES = {"anthropic-beta", "x-codex-turn-state"}
"""Headers of their own conditions."""


def documented(wire: ModelWire) -> set[str]:
    """The headers in the page's table that an API gets without more settings."""
    rows = re.findall(r"^\| (`[a-z].*?) \| .* \| (.*) \|$", PAGE, re.MULTILINE)
    return {
        name
        for names, apis in rows
        if apis == "all" or APIS[wire] in apis
        for name in re.findall(r"`([\w-]+)`", names)
    }


@pytest.mark.parametrize("wire", get_args(ModelWire))
async def test_the_headers_of_a_request(wire: ModelWire, connect: Any, ask: Any) -> None:
    with ScriptedServer(["Hello."]) as server:
        model = connect(server, wire, key="sk-none-0123456789")
        await ask(model, session_id="s1", turn_id="t1")
        sent = server.requests[-1].headers
    assert set(sent) == documented(wire) - SOMETIMES
    assert re.fullmatch(r"toolrest/[\d.]+ \(\w+; python 3\.\d+\)", sent["user-agent"])
    assert sent["originator"] == "toolrest"
    assert sent["session-id"] == sent["thread-id"] == "s1"


WATCHED = """
import json, sys
seen = []
def hook(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        seen.append(args[1][0])
    elif event == "socket.getaddrinfo":
        seen.append(args[0])
    elif event == "socket.sendto" and isinstance(args[1], tuple):
        seen.append(args[1][0])
sys.addaudithook(hook)
from toolrest.cli.entry import main
sys.argv = ["toolrest", "exec", "--skip-git-repo-check", "Look around."]
try:
    main()
finally:
    print("SEEN", json.dumps(sorted({str(host) for host in seen})))
"""


def test_a_run_connects_to_the_provider_and_to_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Title\n")
    read = Call("read_file", {"file_path": "README.md"})
    with ScriptedServer([read, "Done."]) as server:
        done = subprocess.run(
            [sys.executable, "-c", WATCHED],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "OPENAI_BASE_URL": server.url,
                "OPENAI_API_KEY": "sk-none-0123456789",
            },
            timeout=100,
        )
        assert len(server.requests) == 2, done.stderr
    assert "Done." in done.stdout
    line = re.search(r"^SEEN (.*)$", done.stdout, re.MULTILINE)
    assert line is not None, done.stderr
    assert json.loads(line[1]) == ["127.0.0.1"]


SECRETS = ("key-0123456789", "query-0123456789", "header-0123456789", "password-0123456789")


def refusal(place: str, words: str) -> bytes:
    """An error of a server's: with a status, in a stream, or as the document of a reply."""
    body = json.dumps({"error": {"message": words}}).encode()
    if place == "stream":
        return CHUNKED + b"%x\r\ndata: %s\n\n\r\n0\r\n\r\n" % (len(body) + 8, body)
    status = b"401 Unauthorized" if place == "status" else b"200 OK"
    head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


@pytest.mark.parametrize("place", ["status", "stream", "document"])
@pytest.mark.parametrize("wire", get_args(ModelWire))
async def test_a_server_that_repeats_our_secrets(wire: ModelWire, place: str) -> None:
    """Errors inside a stream used to be shown as they came."""
    key, query, header, password = SECRETS
    raw = refusal(place, f"what are {', '.join(SECRETS)} in version 2026-01-01?")
    async with serving(answering(raw)) as url:
        provider = Provider(
            "p",
            SafeUrl(url.replace("//", f"//user:{password}@")),
            wire,
            key=Secret(key),
            headers={"x-auth": Secret(f"Bearer {header}")},
            query_params={"sig": Secret(query), "api-version": Secret("2026-01-01")},
            request_max_retries=0,
        )
        model = client_for(provider, "m")
        model.context_window = 1000
        with pytest.raises(ModelError, match="in version 2026-01-01") as caught:
            async for _ in model.stream(ModelRequest("m", [user("?")])):
                pass
        await model.aclose()
    shown = f"{caught.value} {caught.value.message} {caught.value.args} {provider!r}"
    assert [secret for secret in SECRETS if secret in shown] == []
