"""`toolrest report`: a file that one may send, without secrets and without texts."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from toolrest.testing import Call
from toolrest.wire.stored_keys import store_key

PLANTED = {
    name: f"planted-{name}-4f7c9a2e81d3"
    for name in ("bearer", "header", "query", "server", "argument", "text", "env", "stored")
}
SAID = "the words of the prompt"
NUMBER = 7391846250
SETTINGS = f"""
developer_instructions = "{PLANTED["text"]}"
[model_providers.other]
base_url = "https://user:{PLANTED["query"]}@example.com/v1?key={PLANTED["query"]}"
experimental_bearer_token = "{PLANTED["bearer"]}"
http_headers = {{ "X-Thing" = "{PLANTED["header"]}" }}
query_params = {{ "k" = "{PLANTED["query"]}" }}
[mcp_servers.one]
command = "false"
enabled = false
args = ["--thing={PLANTED["argument"]}"]
env = {{ "THING" = "{PLANTED["server"]}" }}
[projects."/srv/{SAID}"]
trust_level = "untrusted"
[model_providers.mine]
base_url = "http://127.0.0.1:9/v1"
[model_providers.mine.request]
extra_body = {{ "thing" = {NUMBER} }}
"""


def _written(out: str) -> Path:
    found = re.search(r"written to (\S+)", out)
    assert found, out
    return Path(found[1])


def _planted(desk: Any, serve: Any) -> dict[str, str]:
    """A session whose settings, environment, stored keys and events hold secrets."""
    call = Call("list_dir", {"dir_path": PLANTED["env"]})
    serve([call, f"it says {PLANTED['env']}"])
    path = desk.home / "config.toml"
    lines = SETTINGS.strip().split("\n")
    path.write_text("\n".join([lines[0], path.read_text(), *lines[1:]]) + "\n")
    store_key(str(desk.home), "other", PLANTED["stored"])
    env = {"SOME_THING_KEY": PLANTED["env"]}
    ran = desk.run("exec", f"{SAID}: {PLANTED['stored']} {PLANTED['env']}", env=env)
    assert ran.code == 0, ran.err
    return env


@pytest.mark.slow
def test_no_secret_and_no_text_is_in_it(desk: Any, serve: Any) -> None:
    env = _planted(desk, serve)
    ran = desk.run("report", env=env)
    assert ran.code == 0, ran.err
    assert "nothing was sent" in ran.out
    path = _written(ran.out)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    text = path.read_text()
    for name, secret in PLANTED.items():
        assert secret not in text, name
    assert SAID not in text
    assert str(NUMBER) not in text
    assert "projects.(hidden) = " in text
    assert str(Path.home()) + os.sep not in text
    for heading in ("# versions", "# doctor", "# settings", "# events"):
        assert heading in text
    assert "model = gpt-5.5" in text
    assert "mcp_servers.one.args = (1 items)" in text
    events = [json.loads(line) for line in text.split("# events\n")[1].splitlines()]
    (call,) = (found for _, found in events if found.get("type") == "function_call")
    assert call["name"] == "list_dir"


@pytest.mark.long
def test_with_texts_it_is_still_without_secrets(desk: Any, serve: Any) -> None:
    env = _planted(desk, serve)
    text = _written(desk.run("report", "--texts", env=env).out).read_text()
    assert SAID in text
    for name in PLANTED.keys() - {"text"}:  # that one is part of the conversation
        assert PLANTED[name] not in text, name


@pytest.mark.long
def test_without_a_session_there_is_a_report_as_well(desk: Any) -> None:
    ran = desk.run("report")
    assert ran.code == 0, ran.err
    assert "the last 0 lines of the session" in ran.out
    assert desk.run("report", "nope").code == 2
