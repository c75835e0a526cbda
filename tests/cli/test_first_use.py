"""What a newcomer runs into: a server that is not there, wrong folders, Ctrl-C at any moment."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.screen import Screen

from toolrest.testing import Cut, Pause

TOOLREST = str(Path(sys.executable).parent / "toolrest")


@pytest.mark.slow
def test_a_server_that_is_not_there_is_given_up_soon(desk: Any) -> None:
    (desk.home / "config.toml").write_text(
        'model = "x"\nmodel_provider = "p"\n[model_providers.p]\n'
        'base_url = "http://127.0.0.1:9/v1"\nrequest_max_retries = 2\n'
    )
    ran = desk.run("exec", "--ephemeral", "go")
    assert ran.code == 1
    assert ran.err.count("trying again now") == 2
    assert ran.err.count("cannot reach") == 2, "once while trying, once as the reason of the end"


def test_a_server_that_was_there_is_waited_for(desk: Any, serve: Any) -> None:
    server = serve([[Cut()], "here again"], request_max_retries=0, stream_max_retries=2)
    ran = desk.run("exec", "go")
    assert (ran.code, ran.out) == (0, "here again\n")
    assert len(server.requests) == 2


@pytest.mark.slow
def test_that_a_model_has_no_family_is_told_once(desk: Any, serve: Any) -> None:
    serve(["hello"] * 4)

    def told(model: str) -> bool:
        return "Unknown model" in desk.run("exec", "-m", model, "go").err

    assert [told(model) for model in ("mystery", "mystery", "riddle", "riddle")] == [
        True, False, True, False,
    ]  # fmt: skip
    assert "Unknown model 'mystery': using default tools" in desk.run(
        "config", "show", "-c", 'model="mystery"'
    ).err  # fmt: skip
    (desk.home / "told").rename(desk.home / "moved")
    (desk.home / "told").write_text("not a folder")
    assert "Unknown model" in desk.run("tools", "-c", 'model="mystery"').err


@pytest.mark.parametrize(
    ("given", "asked"),
    [("scripted:qwen:8b", "qwen:8b"), ("qwen:8b", "qwen:8b"), ("scripted:", "scripted:")],
)
def test_a_model_may_be_named_with_its_provider(
    desk: Any, serve: Any, given: str, asked: str
) -> None:
    server = serve(["hello"])
    if given.startswith("scripted:q"):  # it is not the one of the settings
        path = desk.home / "config.toml"
        path.write_text(path.read_text().replace('_provider = "scripted"', '_provider = "openai"'))
    ran = desk.run("exec", "-m", given, "go")
    assert (ran.code, ran.out) == (0, "hello\n"), ran.err
    assert server.requests[0].body["model"] == asked


def test_a_misspelt_provider_gets_no_prompt(desk: Any, serve: Any) -> None:
    server = serve(["hello"])
    ran = desk.run("exec", "-m", "antropic:claude-5", "go")
    assert (ran.code, ran.out, server.requests) == (2, "", [])
    assert "no provider is called 'antropic'; did you mean anthropic:claude-5?" in ran.err
    assert "family" not in ran.err


@pytest.mark.parametrize("place", ["gone/answer.md", "."])
def test_an_answer_without_a_place_is_said_before_the_work(
    desk: Any, serve: Any, place: str
) -> None:
    server = serve(["an answer"])
    ran = desk.run("exec", "-o", place, "go")
    assert ran.code == 2
    assert f"cannot write -o {place}" in ran.err
    assert server.requests == []


def test_folders_that_cannot_be_added_are_named(desk: Any, serve: Any, tmp_path: Path) -> None:
    server = serve(["done"])
    ran = desk.run("exec", "-s", "workspace-write", "--add-dir", str(tmp_path / "gone"), "go")
    assert (ran.code, server.requests) == (2, [])
    assert f"--add-dir {tmp_path / 'gone'} is not a folder" in ran.err
    ran = desk.run("exec", "--add-dir", str(tmp_path), "go")
    assert ran.code == 0
    assert "--add-dir has no effect while sandbox_mode is read-only" in ran.err


INTERRUPTED = """
import os, signal, sys
event, subject = sys.argv.pop(1), sys.argv.pop(1)
from toolrest.cli import entry

def hear(name, arguments):
    global event
    if name == event and subject in str(arguments):
        event = None
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(hear)
entry.main()
"""


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        ("import", "toolrest.cli.app"),
        ("import", "asyncio"),
        ("open", "config.toml"),
        ("open", "sessions"),
        ("socket.connect", "127.0.0.1"),
    ],
)
def test_ctrl_c_is_never_a_traceback(desk: Any, serve: Any, event: str, subject: str) -> None:
    """By what it is doing, not by the clock: a slow machine is still starting Python by then."""
    serve([[Pause(60)]])
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, event, subject, "exec", "go"],
        cwd=desk.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "Aborted" not in done.stderr


def test_ctrl_c_while_the_model_thinks(desk: Any, serve: Any) -> None:
    server = serve([[Pause(100)]])
    with desk.start("exec", "go") as process:
        end = time.monotonic() + 60
        while not server.requests and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "Aborted" not in err


def test_ctrl_c_counts_where_python_drops_exceptions() -> None:
    code = """
import os, signal, sys, types
from toolrest.cli import entry

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        list(range(1000))

def run():
    Dropped()
    print("went on")

sys.modules["toolrest.cli.app"] = types.SimpleNamespace(run=run)
sys.argv = ["toolrest", "exec"]
entry.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_batch_has_no_result_for_what_it_stopped(
    desk: Any, serve: Any, number: signal.Signals, code: int
) -> None:
    server = serve([[Pause(60)], "done"])
    (desk.workspace / "tasks.jsonl").write_text(json.dumps({"id": "a", "prompt": "go"}) + "\n")
    # A terminal's Ctrl-C goes to the whole group; `kill` goes to the one.
    with desk.start("batch", "tasks.jsonl", start_new_session=True) as process:
        end = time.monotonic() + 60
        while not server.requests and time.monotonic() < end:
            time.sleep(0.02)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (code, False), err
    assert not (desk.workspace / "tasks.jsonl.results.jsonl").exists()
    assert desk.run("batch", "tasks.jsonl").code == 0
    row = json.loads((desk.workspace / "tasks.jsonl.results.jsonl").read_text())
    assert (row["id"], row["text"]) == ("a", "done")


def test_a_failed_task_says_why(desk: Any) -> None:
    task = {"id": "a", "prompt": "go", "cd": "/nowhere/at/all"}
    (desk.workspace / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    assert desk.run("batch", "tasks.jsonl").code == 1
    row = json.loads((desk.workspace / "tasks.jsonl.results.jsonl").read_text())
    assert "/nowhere/at/all is not a folder" in row["error"]


def test_the_record_names_the_provider(desk: Any, serve: Any) -> None:
    serve(["done"])
    desk.run("exec", "go")
    (rollout,) = desk.home.rglob("rollout-*.jsonl")
    meta = json.loads(rollout.read_text().splitlines()[0])["payload"]
    assert meta["model_provider"] == "scripted"


def test_no_questions_is_said(desk: Any) -> None:
    ran = desk.run("approvals", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no call waits for approval\n")


def test_what_would_silently_do_nothing_is_said(desk: Any, serve: Any) -> None:
    serve([""])
    ran = desk.run("exec", "--tools", "read_fil,list_*,mcp__git__log", "go")
    assert ran.code == 2
    assert "there is no tool or group 'read_fil'; did you mean read_file?" in ran.err
    ran = desk.run("exec", "--tools", "read_file,list_*,mcp__git__log", "go")
    assert ran.code == 0
    assert "the model ended without an answer" in ran.err


def test_a_session_that_goes_on_elsewhere_says_so(desk: Any, serve: Any, tmp_path: Path) -> None:
    serve(["one", "two"])
    ran = desk.run("exec", "--json", "go")
    other = tmp_path / "other"
    other.mkdir()
    ran = desk.run("exec", "-C", str(other), "--resume", ran.lines[0]["thread_id"], "go on")
    assert (ran.code, ran.out) == (0, "two\n")
    assert f"was recorded in {desk.workspace} and goes on in {other}" in ran.err


def test_no_sessions_is_said(desk: Any) -> None:
    ran = desk.run("sessions", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no session is recorded\n")


@pytest.mark.slow
def test_a_session_is_listed_by_its_message_in_80_columns(desk: Any, serve: Any) -> None:
    serve(["done"])
    home = str(desk.workspace.parent)
    ran = desk.run("exec", "fix the failing test of the cart", env={"HOME": home})
    (rollout,) = desk.home.rglob("rollout-*.jsonl")
    number = json.loads(rollout.read_text().splitlines()[0])["payload"]["id"]
    assert ran.err.splitlines()[0].endswith(f", ~/project, session {number[:8]}")
    with Screen([TOOLREST, "sessions", "list"], cwd=desk.workspace, env={"HOME": home}) as screen:
        screen.sees("fix the failing test of the cart  ~/project")
        assert screen.rows[0].startswith(f"{number[:8]}  20")
        screen.ends()
    assert desk.run("sessions", "list").out.startswith(number), "whole where a program reads it"


def test_a_hook_that_cannot_run_is_named(desk: Any) -> None:
    rows = [["/nowhere/guard"], ["sh", "-c", "true"]]
    text = "".join(f"[[hooks.PreToolUse]]\ncommand = {json.dumps(row)}\n" for row in rows)
    (desk.home / "config.toml").write_text(text)
    ran = desk.run("hooks")
    assert ran.err == "  ! no program /nowhere/guard can be run: it fails every time\n"


def test_a_server_needs_a_name_that_can_be_typed(desk: Any) -> None:
    ran = desk.run("mcp", "add", "a b", "--", "server")
    assert ran.code == 2
    assert "'a b'" in ran.err


def test_a_server_that_could_not_be_read_again_is_not_written(desk: Any) -> None:
    ran = desk.run("mcp", "add", "x", "--env-var", "", "--", "server")
    assert (ran.code, ran.err) == (2, "toolrest: env_vars.0: expected at least 1 character\n")
    assert not (desk.home / "config.toml").exists()


@pytest.mark.slow
def test_an_editors_agent_ends_without_a_word(desk: Any) -> None:
    hello = {"protocolVersion": 1, "clientCapabilities": {}}
    line = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    ran = desk.run("acp", said=line + "\n", env={"PYTHONWARNINGS": "error"})
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["result"]["protocolVersion"] == 1


@pytest.mark.slow
def test_a_folder_that_is_gone_is_said(desk: Any) -> None:
    lost = desk.workspace / "lost"
    shell = f"mkdir {lost} && cd {lost} && rmdir {lost} && exec {shlex.quote(str(TOOLREST))} "
    for words in ("exec go", "tools", "sessions list --here", "policy check -- ls"):
        ran = subprocess.run(["sh", "-c", shell + words], capture_output=True, text=True)
        assert ran.returncode == 2, ran.stderr
        # Where the path has a space, the installed script is started by a shell, which complains.
        said = ran.stderr.removeprefix("sh: 0: getcwd() failed: No such file or directory\n")
        assert said == "toolrest: the current folder is gone; change to another, or name one\n"


@pytest.mark.slow
def test_closed_standard_files_are_no_accident(desk: Any, serve: Any) -> None:
    serve(["done", "done"])
    for closed in (">&-", "<&- >&- 2>&-"):
        line = f"exec {shlex.quote(str(TOOLREST))} exec -o answer.md go {closed}"
        ran = subprocess.run(
            ["sh", "-c", line], cwd=desk.workspace, stderr=subprocess.PIPE, text=True
        )
        assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
        assert (desk.workspace / "answer.md").read_text() == "done"
