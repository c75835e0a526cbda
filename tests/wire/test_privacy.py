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

from toolrest.config.schema.families import ModelWire
from toolrest.testing import Call, ScriptedServer

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
