"""Which servers there are: settings, `.mcp.json`, variables, and what is wrong with them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.config import load
from toolrest.config.schema.mcp import McpServer
from toolrest.config.schema.validate import check_table
from toolrest.errors import ConfigError
from toolrest.gate.output.mcp_result import output_of
from toolrest.items import Text
from toolrest.mcp.definitions import read_definitions
from toolrest.mcp.errors import McpError
from toolrest.mcp.json_files import expand, project_servers
from toolrest.mcp.servers import configured, resolve


def user(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text)


def test_servers_come_from_the_users_file(toolrest_home: Path, tmp_path: Path) -> None:
    user(
        toolrest_home,
        """
        active_mcp_servers = ["a", "b", "zz"]
        [mcp_servers.a]
        command = "one"
        args = ["x", ""]
        env = { MODE = "m" }
        startup_timeout_sec = 3
        [mcp_servers.b]
        url = "https://b.example/mcp"
        bearer_token_env_var = "B_TOKEN"
        http_headers = { X-One = "1" }
        [mcp_servers.c]
        command = "left out"
        """,
    )
    found = configured(load(workspace=tmp_path), {"B_TOKEN": "tok"}, str(tmp_path))
    assert list(found.servers) == ["a", "b"]
    assert found.servers["a"].argv == ("one", "x", "")
    assert found.servers["b"].headers == {"X-One": "1", "Authorization": "Bearer tok"}
    assert any("zz" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("startup_timeout_ms = 5", "times are in seconds here; write mcp_servers.x.startup_tim"),
        ("tool_timeout_ms = 5", "write mcp_servers.x.tool_timeout_sec"),
        ("startup_timeout_sec = 0", "startup_timeout_sec"),
        ("comand = 'x'", "did you mean mcp_servers.x.command"),
        ("network = 7", "network"),
    ],
)
def test_wrong_keys_are_refused_with_a_hint(
    toolrest_home: Path, tmp_path: Path, line: str, words: str
) -> None:
    user(toolrest_home, f"[mcp_servers.x]\n{line}\n")
    with pytest.raises(ConfigError, match=r"mcp_servers\.x") as caught:
        load(workspace=tmp_path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, "neither command nor url"),
        ({"command": "x", "url": "https://x.example"}, "both command and url"),
        ({"command": "x", "type": "sse"}, "goes with a url"),
        ({"url": "ftp://x.example"}, "http:// or https://"),
        ({"url": "https://"}, "names no host; write it as http://"),
        ({"url": "https://[x"}, "host or port is not valid"),
        ({"url": "https://x:99999/"}, "host or port is not valid"),
        ({"command": "${NOT_SET}"}, "NOT_SET"),
        ({"command": "x", "args": ("${ANTHROPIC_API_KEY}",)}, "pays for the model"),
    ],
)
def test_what_makes_no_sense_is_the_servers_own_problem(row: dict[str, Any], words: str) -> None:
    server = resolve("x", check_table(McpServer, row), "user", "/f", {"ANTHROPIC_API_KEY": "k"})
    assert server.problem is not None
    assert words in server.problem


def test_a_folders_file(tmp_path: Path) -> None:
    servers = {
        "good": {"command": "x", "cwd": "sub", "autoApprove": ["*"], "timeout": 5},
        "web": {"type": "streamable-http", "url": "https://x.example/mcp"},
        "off": {"command": "x", "disabled": True},
        "odd": {"command": 7},
        "list": [],
    }
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    warnings: list[str] = []
    found = {name: row for name, row, _ in project_servers(str(tmp_path), True, warnings)}
    assert set(found) == {"good", "web"}
    assert found["web"].type == "streamable_http"
    assert len(warnings) == 2
    assert not list(project_servers(str(tmp_path), False, warnings))
    assert "toolrest trust" in warnings[-1]
    for text in ("{", "[]", '{"mcpServers": 7}'):
        file.write_text(text)
        assert not list(project_servers(str(tmp_path), True, warnings))
        assert str(file) in warnings[-1]
    file.unlink()
    os.symlink("elsewhere", file)
    assert not list(project_servers(str(tmp_path), True, warnings))
    assert "symlink" in warnings[-1]


@given(st.text(max_size=40), st.dictionaries(st.sampled_from(["A", "B"]), st.text(max_size=5)))
def test_expansion_changes_only_variables(text: str, environ: dict[str, str]) -> None:
    try:
        expanded = expand(text, environ, "here")
    except McpError:
        assert "${" in text
    else:
        if "${" not in text:
            assert expanded == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
TOOLS = st.dictionaries(
    st.sampled_from(["name", "description", "inputSchema", "annotations", "title", "x"]), JSON
)


@pytest.mark.slow
@given(st.lists(JSON | TOOLS, max_size=6))
def test_any_list_of_tools_can_be_read(raw: list[Any]) -> None:
    good, bad = read_definitions("s", raw)
    assert len(good) + len(bad) <= len(raw)
    for definition in good.values():
        assert definition.digest == definition.digest
        assert isinstance(definition.input_schema, dict)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["content", "structuredContent", "isError"]), JSON))
def test_any_result_becomes_an_output(result: dict[str, Any]) -> None:
    output = output_of(result)
    assert output.text or isinstance(output.content, list)


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
URL = "data:image/png;base64,aGk="
AGAIN = {**IMAGE, "annotations": None, "_meta": None}
PDF = {"type": "image", "data": "QUJD" * 500, "mimeType": "application/pdf"}


@pytest.mark.parametrize(
    ("view", "result", "shown"),
    [
        ("auto", {"content": [{"type": "text", "text": "a"}]}, ["a"]),
        ("auto", {"content": [IMAGE]}, [URL]),
        ("auto", {"content": [], "structuredContent": {"k": 1}}, ['{"k":1}']),
        (
            "auto",
            {"content": [{"type": "text", "text": '{"k": 1}'}], "structuredContent": {"k": 1}},
            ['{"k": 1}'],
        ),
        (
            "auto",
            {"content": [{"type": "text", "text": "a"}], "structuredContent": {"k": 1}},
            ['a\n{"k":1}'],
        ),
        ("auto", {"content": [IMAGE], "structuredContent": {"k": 1}}, [URL, '{"k":1}']),
        ("auto", {"content": []}, ["(no output)"]),
        # Structure that says the text or the blocks once more, as server-filesystem writes it.
        (
            "auto",
            {"content": [{"type": "text", "text": "a b"}], "structuredContent": {"content": "a b"}},
            ["a b"],
        ),
        ("auto", {"content": [IMAGE], "structuredContent": {"content": [AGAIN]}}, [URL]),
        (
            "auto",
            {"content": [{"type": "text", "text": "a b"}], "structuredContent": {"content": "a"}},
            ['a b\n{"content":"a"}'],
        ),
        # As fastmcp writes it.
        ("auto", {"content": [IMAGE], "structuredContent": AGAIN}, [URL]),
        ("auto", {"content": [IMAGE], "structuredContent": {"result": [AGAIN]}}, [URL]),
        (
            "auto",
            {
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                "structuredContent": {"result": ["a", "b"]},
            },
            ["a\nb"],
        ),
        (
            "auto",
            {
                "content": [{"type": "text", "text": "kind: a"}],
                "structuredContent": {"kind": "other"},
            },
            ['kind: a\n{"kind":"other"}'],
        ),
        (
            "auto",
            {
                "content": [{"type": "text", "text": "done: 15 results"}],
                "structuredContent": {"result": 5},
            },
            ['done: 15 results\n{"result":5}'],
        ),
        # Base64 is never text.
        (
            "auto",
            {"content": [], "structuredContent": {"k": PDF["data"], "n": 1}},
            ['{"k":"[1500 bytes, not shown]","n":1}'],
        ),
        (
            "auto",
            {"content": [PDF]},
            ['{"type":"image","data":"[1500 bytes, not shown]","mimeType":"application/pdf"}'],
        ),
        (
            "auto",
            {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]},
            ["[audio audio/wav, 3 bytes, not shown]"],
        ),
        (
            "content",
            {"content": [{"type": "text", "text": "a"}], "structuredContent": {"k": 1}},
            ["a"],
        ),
        (
            "structured",
            {"content": [{"type": "text", "text": "a"}, IMAGE], "structuredContent": {"k": 1}},
            [URL, '{"k":1}'],
        ),
        (
            "auto",
            {"content": [{"type": "resource", "resource": {"uri": "u", "text": "words"}}]},
            ["[resource u]\nwords"],
        ),
        (
            "auto",
            {"content": [{"type": "resource_link", "uri": "u", "name": "n"}]},
            ["[resource link n <u>]"],
        ),
    ],
)
def test_what_a_model_sees_of_a_result(view: Any, result: Any, shown: list[str]) -> None:
    content = output_of(result, view).content
    parts = [Text(content)] if isinstance(content, str) else content
    seen = [part.text if isinstance(part, Text) else part.url for part in parts]
    assert seen == shown
    assert output_of(result, view).structured == result.get("structuredContent")
