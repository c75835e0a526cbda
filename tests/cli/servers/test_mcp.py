"""`toolrest mcp` as a person types it."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolrest.cli.app import app
from toolrest.errors import ToolrestError
from toolrest.mcp.errors import McpError
from toolrest.testing import Call

TOOLREST = str(Path(sys.executable).parent / "toolrest")
Run = Callable[..., Result]
FAKE = Path(__file__).parents[2] / "mcp" / "data" / "fake_server.py"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "server.py").write_text(FAKE.read_text())
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(workspace: Path) -> Run:
    """The command in this process: each of its own would import the SDK anew."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    return call


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_server_from_add_to_remove(run: Run, toolrest_home: Path) -> None:
    assert "no MCP servers" in run("mcp", "list").stdout
    added = run(
        "mcp", "add", "fs", "--env", "A_TOKEN=very-secret", "--", sys.executable, "-S", "server.py"
    )
    assert added.exit_code == 0, added.stderr
    stored = tomllib.loads((toolrest_home / "config.toml").read_text())["mcp_servers"]["fs"]
    assert stored == {
        "command": sys.executable,
        "args": ["-S", "server.py"],
        "env": {"A_TOKEN": "very-secret"},
    }
    again = run("mcp", "add", "fs", "--", "other")
    assert again.exit_code == 2
    assert "--force" in again.stderr
    got = run("mcp", "get", "fs", "--json")
    assert json.loads(got.stdout)["command"] == sys.executable
    assert "very-secret" not in got.stdout
    listed = run("mcp", "list", "--json")
    (row,) = json.loads(listed.stdout)
    assert (row["name"], row["state"]) == ("fs", "ready")
    assert "echo" in row["tools"]
    assert listed.exit_code == 0
    tested = run("mcp", "test", "fs")
    assert "The echo tool." in tested.stdout
    called = run("call", "-c", 'on_ask="allow"', "fs/echo", '{"text": "hello"}')
    assert called.stdout.endswith("hello\n"), called.output
    assert "mcp__fs__echo" in run("tools").stdout  # as it was listed before
    removed = run("mcp", "remove", "fs")
    assert removed.exit_code == 0
    assert run("mcp", "remove", "fs").exit_code == 2


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_at_a_terminal_a_slow_server_is_named(run: Run, workspace: Path) -> None:
    run("mcp", "add", "slow", "--", sys.executable, "-S", "-c", "import time; time.sleep(60)")
    command = [TOOLREST, "mcp", "list", "-c", "mcp_servers.slow.startup_timeout_sec=2.5"]
    quiet = subprocess.run(command, cwd=workspace, capture_output=True, text=True)
    assert quiet.returncode == 1
    assert "waiting" not in quiet.stderr
    master, slave = pty.openpty()
    with subprocess.Popen(
        command, cwd=workspace, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave
    ) as process:
        os.close(slave)
        shown = os.read(master, 10_000).decode()
        out, _ = process.communicate(timeout=60)
    os.close(master)
    assert shown.startswith("toolrest: waiting for slow ("), shown
    assert out.decode().startswith("slow  failed")


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_list_tells_the_truth(run: Run, workspace: Path) -> None:
    run("mcp", "add", "bad", "--", sys.executable, "-S", "server.py", "crash")
    run("mcp", "add", "gone", "--", "no-such-program")
    listed = subprocess.run(
        [TOOLREST, "mcp", "list"],
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 1
    assert "cannot find my own feet" in listed.stdout
    assert "`no-such-program` is not found on PATH" in listed.stdout
    assert not listed.stderr


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_changed_server_is_approved_by_hand(run: Run, toolrest_home: Path) -> None:
    run("mcp", "add", "fs", "--", sys.executable, "-S", "server.py")
    assert run("mcp", "list").exit_code == 0
    file = toolrest_home / "config.toml"  # typing `mcp add --force` would be an approval
    file.write_text(file.read_text().replace('"server.py"', '"server.py", "noisy"'))
    refused = run("mcp", "list")
    assert refused.exit_code == 1
    assert "toolrest mcp approve fs" in refused.stdout
    approved = run("mcp", "approve", "--yes", "fs")
    assert approved.exit_code == 0, approved.stderr
    assert '+  "noisy"' in approved.stderr
    assert run("mcp", "list").exit_code == 0


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_yes_to_one_server_is_none_to_another(
    run: Run, tmp_path: Path, toolrest_home: Path
) -> None:
    workspace = tmp_path / "work"
    marker = workspace / "ran"
    slow = ["-S", "-c", "import time, runpy; time.sleep(1.5); runpy.run_path('server.py')"]
    servers = {
        "fs": {"command": sys.executable, "args": slow},
        "evil": {"command": "/bin/sh", "args": ["-c", f"touch {marker}"]},
    }
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert run("trust").exit_code == 0
    approved = run("mcp", "approve", "--yes", "fs")
    assert approved.exit_code == 0, approved.stderr
    assert "evil" not in approved.stderr
    pins = (toolrest_home / "mcp" / "pins.json").read_text()
    assert "#fs" in pins
    assert "#evil" not in pins
    assert not marker.exists()


def test_what_is_approved_cannot_act_on_the_terminal(run: Run, tmp_path: Path) -> None:
    args = ["-c", "evil\x1b[2K\r\u202e", "line\n(it touches nothing)"]
    servers = {"fs": {"command": "/bin/sh", "args": args}}
    (tmp_path / "work" / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert run("trust").exit_code == 0
    done = run("mcp", "approve", "fs")
    assert "evil⟨ESC⟩[2K⟨CR⟩" in done.stderr
    for words in (done.stderr, done.stdout, run("mcp", "list").stdout):
        assert not {"\x1b", "\r", "\u202e"} & set(words)
    assert "\n(it touches nothing)" not in done.stderr.splitlines()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "x"), "either a command after -- or --url"),
        (("add", "x", "--url", "https://a.example", "--", "y"), "either a command"),
        (("add", "x", "--url", "ftp://a.example"), "http:// or https://"),
        (("add", "x", "--env", "novalue", "--", "y"), "NAME=VALUE"),
        (("get", "x"), "no MCP server 'x' here. `toolrest mcp list` has them all."),
        (("test", "x"), "no MCP server 'x'"),
        (("login", "x"), "no MCP server 'x'"),
        (("approve", "x"), "no MCP server 'x'"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(app, ["mcp", *arguments])
    own = isinstance(done.exception, ToolrestError)  # the entry point prints these, and ends with 2
    assert own or done.exit_code == 2
    assert words in (str(done.exception) if own else done.output)


def test_add_checks_the_program_and_makes_the_server_active(run: Run, toolrest_home: Path) -> None:
    config = toolrest_home / "config.toml"
    config.write_text("active_mcp_servers = []\n")
    gone = run("mcp", "add", "gone", "--", "no-such-program")
    assert gone.exit_code == 0, gone.output
    said = "gone cannot be started yet: its command `no-such-program` is not found on PATH"
    assert said in gone.stderr
    assert not run("mcp", "add", "fs", "--", sys.executable).stderr
    assert tomllib.loads(config.read_text())["active_mcp_servers"] == ["gone", "fs"]
    assert run("mcp", "get", "fs").exit_code == 0
    assert run("mcp", "remove", "gone").exit_code == 0
    assert tomllib.loads(config.read_text())["active_mcp_servers"] == ["fs"]


def test_login_and_logout_of_a_program() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["mcp", "add", "fs", "--", "some-program"]).exit_code == 0
    done = runner.invoke(app, ["mcp", "login", "fs"])
    assert isinstance(done.exception, McpError)
    assert "nothing to log in to" in str(done.exception)
    assert "there was no login" in runner.invoke(app, ["mcp", "logout", "fs"]).output


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("waits", [True, False])
def test_exec_waits_for_servers_unless_it_is_told_not_to(
    desk: Any, serve: Any, waits: bool
) -> None:
    go = desk.workspace / "go"

    def answer(request: Any) -> str:
        go.touch()
        return "done"

    model = serve([answer])
    (desk.workspace / "server.py").write_text(FAKE.read_text())
    # Who is not waited for is not there before the model has been asked, however fast it is.
    late = "sleep 1" if waits else f"until [ -e {shlex.quote(str(go))} ]; do sleep 0.05; done"
    line = f"{late}; exec {shlex.quote(sys.executable)} -S -E server.py"
    settings = {"command": "/bin/sh", "args": ["-c", line]}
    flags = [f"-cmcp_servers.fs.{key}={json.dumps(value)}" for key, value in settings.items()]
    ran = desk.run("exec", *flags, *([] if waits else ["--no-wait-mcp"]), "go")
    assert (ran.code, ran.out) == (0, "done\n"), ran.err
    tools = {tool.get("name") for tool in model.requests[0].body["tools"]}
    assert ("mcp__fs__echo" in tools) is waits


def flags_of(**servers: list[str]) -> list[str]:
    rows = {name: {"command": sys.executable, "args": row} for name, row in servers.items()}
    return [f"-cmcp_servers.{n}.{k}={json.dumps(v)}" for n, r in rows.items() for k, v in r.items()]


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("as_json", [False, True])
def test_exec_names_a_server_that_died(desk: Any, serve: Any, as_json: bool) -> None:
    serve(["done"])
    (desk.workspace / "server.py").write_text(FAKE.read_text())
    flags = [*flags_of(dead=["-S", "server.py", "crash"]), '-cactive_mcp_servers=["dead", "gone"]']
    ran = desk.run("exec", *(["--json"] if as_json else []), *flags, "go")
    assert ran.code == 0, ran.err
    said = ran.out if as_json else ran.err
    assert "the MCP server dead is not available: it exited with code 7" in said
    assert "active_mcp_servers names gone, but there is no such server" in said


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_exec_names_a_folders_server_that_nobody_approved(desk: Any, serve: Any) -> None:
    serve(["done", "done"])
    row = {"command": sys.executable, "args": ["-S", "server.py"]}
    (desk.workspace / "server.py").write_text(FAKE.read_text())
    (desk.workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"fs": row}}))
    assert ".mcp.json is ignored because the folder is not trusted" in desk.run("exec", "go").err
    desk.run("trust")
    ran = desk.run("exec", "go")
    assert "the MCP server fs is not available: it is not approved" in ran.err
    assert "toolrest mcp approve fs" in ran.err


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_tool_that_cannot_be_used_is_shown_as_set_aside(
    run: Run, workspace: Path, toolrest_home: Path
) -> None:
    listed = [{"name": "good", "inputSchema": {"type": "object", "properties": None}}]
    listed.append({"name": "bad", "inputSchema": {"properties": {"a": {"$ref": "http://x/y"}}}})
    (workspace / "tools.json").write_text(json.dumps(listed))
    run("mcp", "add", "fs", "--", sys.executable, "-S", "server.py", "listed", "tools.json")
    why = "set aside: bad: mcp__fs__bad: its schema is unusable"
    shown = run("mcp", "list").stdout
    assert "1 tools, 1 set aside" in shown
    assert why in shown
    tested = run("mcp", "test", "fs")
    assert tested.exit_code == 0, tested.output
    assert "bad\n  set aside: mcp__fs__bad: its schema is unusable" in tested.stdout
    assert "set aside: mcp__fs__bad" in run("tools", "--all").stdout
    assert "MCP tool fs/bad: set aside: mcp__fs__bad" in run("doctor").stdout
    assert "(the tool is set aside: mcp__fs__bad: its schema" in run("call", "fs/bad", "{}").output


@pytest.mark.needs("sandbox")
def test_add_is_the_approval_and_the_first_exec_offers_the_tools(
    run: Run, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolrest.testing.server import ScriptedServer

    with ScriptedServer([[Call("mcp__fs__echo", {"text": "hi"})], "done"]) as server:
        (toolrest_home / "config.toml").write_text(
            'model = "gpt-5.5"\nmodel_provider = "p"\n'
            f'[model_providers.p]\nbase_url = "{server.url}"\n'
        )
        added = run("mcp", "add", "fs", "--", sys.executable, "-S", "-E", "server.py")
        assert added.exit_code == 0, added.output
        pins = json.loads((toolrest_home / "mcp" / "pins.json").read_text())
        assert "fs" in json.dumps(pins), "pinned at once"
        ran = run("exec", "--json", "go")
        assert ran.exit_code == 0, ran.output
        first, second = [request.body for request in server.requests]
    assert "mcp__fs__echo" in {tool.get("name") for tool in first["tools"]}
    said = json.dumps(second["input"][-1])
    # It is asked about without any further setting, and the denial names the one that allows it.
    assert "needs approval" in said
    assert "mcp_servers.fs.default_tools_approval_mode" in said
    assert run("mcp", "remove", "fs").exit_code == 0
    assert "fs" not in json.dumps(json.loads((toolrest_home / "mcp" / "pins.json").read_text()))


@pytest.mark.slow
def test_serve_at_a_terminal_says_what_it_does_and_how_to_connect(workspace: Path) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [TOOLREST, "mcp", "serve"], stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(follower)
        os.write(leader, b"\x04")
        out, err = process.communicate(timeout=60)
    os.close(leader)
    assert (process.returncode, out) == (0, b"")
    assert b"this is an MCP server on standard input" in err
    assert f"claude mcp add toolrest -- toolrest mcp serve -C {workspace}".encode() in err
    assert b'"mcpServers"' in err


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "a client", "version": "1"},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_while_its_client_is_silent(workspace: Path, number: int) -> None:
    server = subprocess.Popen(
        [TOOLREST, "mcp", "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=workspace,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        for message in (HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"}):
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()
        assert b"serverInfo" in server.stdout.readline()
        server.send_signal(number)
        assert server.wait(15) in (130, -number)
    finally:
        server.kill()
        _, err = server.communicate()
    assert b"Traceback" not in err
