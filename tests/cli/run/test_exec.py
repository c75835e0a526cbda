"""`toolrest exec`: one task from a shell. Output, exit codes, standard input, signals, faults."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from toolrest.testing import (
    Call,
    Cut,
    Fail,
    Freeform,
    Garbage,
    Incomplete,
    Pause,
    Raw,
    Say,
    Think,
    context_full,
)


@pytest.mark.needs("sandbox")
def test_the_answer_alone_is_on_stdout(desk: Any, serve: Any) -> None:
    serve([[Say("let me see"), Call("exec_command", {"cmd": "echo hi"})], "It says hi."])
    ran = desk.run("exec", "-s", "workspace-write", "what does echo do?")
    assert (ran.code, ran.out) == (0, "It says hi.\n")
    assert "$ echo hi" in ran.err
    assert "let me see" in ran.err
    assert "It says hi." not in ran.err


@pytest.mark.needs("sandbox")
def test_json_lines(desk: Any, serve: Any) -> None:
    plan = {"plan": [{"step": "look", "status": "completed"}]}
    serve(
        [
            [Think("hm"), Say("looking"), Call("exec_command", {"cmd": "echo hi; exit 3"})],
            [Call("update_plan", plan)],
            "done",
        ]
    )
    ran = desk.run("exec", "--json", "-s", "workspace-write", "go")
    kinds = [(line["type"], line.get("item", {}).get("type")) for line in ran.lines]
    assert kinds == [
        ("thread.started", None),
        ("turn.started", None),
        ("item.completed", "reasoning"),
        ("item.completed", "agent_message"),
        ("item.started", "command_execution"),
        ("item.completed", "command_execution"),
        ("item.started", "todo_list"),
        ("item.completed", "agent_message"),
        ("item.completed", "todo_list"),
        ("turn.completed", None),
        ("result", None),
    ]
    assert ran.lines[0]["schema_version"] == 1
    (command,) = ran.items("command_execution")
    assert command["command"].endswith("-lc 'echo hi; exit 3'")
    assert (command["aggregated_output"], command["exit_code"], command["status"]) == (
        "hi\n", 3, "failed",
    )  # fmt: skip
    assert ran.result["status"] == "completed"
    assert ran.result["usage"]["input_tokens"] == 300


def test_agents_are_items(desk: Any, serve: Any) -> None:
    serve([Call("spawn_agent", {"message": "look"}), Say("end"), Say("end")])
    ran = desk.run("exec", "--json", "go")
    assert ran.code == 0
    (begun,) = ran.items("collab_tool_call", "started")
    (done,) = ran.items("collab_tool_call")
    assert (begun["tool"], begun["prompt"], begun["status"]) == (
        "spawn_agent",
        "look",
        "in_progress",
    )
    (agent,) = done["receiver_thread_ids"]
    assert done["status"] == "completed"
    assert done["agents_states"] == {agent: {"status": "running", "message": None}}


def test_standard_input_is_the_task_when_it_is_asked_for(desk: Any, serve: Any) -> None:
    server = serve(["one", "two"])
    assert desk.run("exec", "-", said="from a pipe").out == "one\n"
    assert desk.run("exec", said="there is nothing else").out == "two\n"
    texts = [request.body["input"][-1]["content"][0]["text"] for request in server.requests]
    assert texts == ["from a pipe", "there is nothing else"]


@pytest.mark.slow
def test_a_silent_pipe_is_not_waited_for(desk: Any, serve: Any) -> None:
    serve(["done"])
    with desk.start("exec", "go", stdin=subprocess.PIPE) as process:
        assert process.wait(60) == 0  # nothing was ever written, and the pipe is still open
        process.stdin.close()
        assert process.stdout.read() == "done\n"
        said = process.stderr.read()
    assert said.count("standard input stayed silent, so it was not read (--stdin waits") == 1


@pytest.mark.slow
def test_what_is_piped_in_is_sent_with_the_prompt(desk: Any, serve: Any) -> None:
    server = serve(["one", "two", "three", "four"])

    def sent() -> str:
        return str(server.requests[-1].body["input"][-1]["content"][-1]["text"])

    diff = "".join(f"+line {number}\n" for number in range(50_000))
    ran = desk.run("exec", "review this", said=diff)
    assert (ran.code, "standard input" in ran.err) == (0, False)
    assert sent() == f"review this\n\n<stdin>\n{diff}</stdin>"
    ran = desk.run("exec", "go", said="")
    assert (sent(), ran.err.count("standard input was empty")) == ("go", 1)
    ran = desk.run("exec", "go")
    assert (sent(), "standard input" in ran.err) == ("go", False), "/dev/null is no pipe"
    with desk.start("exec", "--stdin", "go", stdin=subprocess.PIPE) as process:
        time.sleep(2)  # it would have given up by now
        process.stdin.write("late\n")
        process.stdin.close()
        assert process.wait(60) == 0
    assert sent() == "go\n\n<stdin>\nlate\n</stdin>"


def test_without_a_task_it_says_so(desk: Any) -> None:
    ran = desk.run("exec", "-", said="  \n")
    assert ran.code == 2
    assert "there is no task" in ran.err


def test_the_answer_goes_to_a_file(desk: Any, serve: Any) -> None:
    serve(["the answer"])
    desk.run("exec", "--json", "-o", "answer.md", "go")
    assert (desk.workspace / "answer.md").read_text() == "the answer"


@pytest.mark.slow
def test_an_answer_that_must_meet_a_schema(desk: Any, serve: Any) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    (desk.workspace / "schema.json").write_text(json.dumps(schema))
    (desk.workspace / "bad.json").write_text('{"type": 3}')
    server = serve(['{"n": 3}', '{"n": "x"}', "no JSON at all", "none"])
    arguments = ("exec", "--json", "--output-schema", "schema.json", "count")
    hosted = "model_providers.scripted.capabilities.json_schema_with_tools=true"
    assert desk.run(*arguments[:1], "-c", hosted, *arguments[1:]).code == 0
    assert server.requests[0].body["text"]["format"]["schema"] == schema
    ran = desk.run(*arguments)
    assert (ran.code, ran.result["reason"]) == (6, "schema_unmet")
    failed = next(line for line in ran.lines if line["type"] == "turn.failed")
    assert "does not meet the schema after 2 more tries" in failed["error"]["message"]
    assert "not JSON" in failed["error"]["message"]
    bad = desk.run("exec", "--json", "--output-schema", "bad.json", "count")
    assert (bad.code, bad.result["reason"]) == (2, "usage")


@pytest.mark.parametrize("wire", ["chat", "anthropic"])
def test_the_answers_schema_is_checked_on_every_wire(desk: Any, serve: Any, wire: str) -> None:
    (desk.workspace / "schema.json").write_text('{"type": "object", "required": ["n"]}')
    serve(['{"n": 3}', *['{"m": 3}'] * 3], wire)
    arguments = ("exec", "--json", "--output-schema", "schema.json", "count")
    assert [desk.run(*arguments).code for _ in range(2)] == [0, 6]


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["responses", "chat", "anthropic"])
def test_an_answer_of_the_wrong_form_is_sent_back(desk: Any, serve: Any, wire: str) -> None:
    schema = '{"type": "object", "required": ["n"]}'
    (desk.workspace / "schema.json").write_text(schema)
    (desk.workspace / "far.json").write_text('{"$ref": "http://127.0.0.1:9/other.json"}')
    answers = ["it is three", '{"m": 3}', '```json\n{"n": 3}\n```']
    server = serve(answers, wire)
    ran = desk.run("exec", "--output-schema", "schema.json", "count")
    assert (ran.code, ran.out) == (0, '{"n": 3}\n')
    first, second, last = (request.body for request in server.requests)
    assert "matches this JSON Schema" in json.dumps(first)
    assert "is not JSON" in json.dumps(second)
    assert "required property" in json.dumps(last)
    # A near server keeps a model to a schema only where it may make no calls: in the last try.
    held = {"responses": "text", "chat": "response_format", "anthropic": "output_config"}[wire]
    assert held not in first
    assert held not in second
    choice = last["tool_choice"]
    assert (choice["type"] if wire == "anthropic" else choice) == "none"
    assert (held in last) == (wire != "anthropic")
    (desk.workspace / "no.json").write_text("{")
    for name, problem in {
        "far.json": "is not fetched",
        "no.json": "no.json is not valid JSON: ",
        "none.json": "cannot read --output-schema none.json: No such file or directory",
    }.items():
        refused = desk.run("exec", "--output-schema", name, "count")
        assert refused.code == 2
        assert problem in refused.err


def test_images_come_before_the_words(desk: Any, serve: Any) -> None:
    server = serve(["I see"])
    picture = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
    (desk.workspace / "a.png").write_bytes(picture)
    assert desk.run("exec", "-i", "a.png", "what is it?").code == 0
    content = server.requests[0].body["input"][-1]["content"]
    assert [part["type"] for part in content] == [
        "input_text", "input_image", "input_text", "input_text",
    ]  # fmt: skip
    (desk.workspace / "b.png").write_text("no picture")
    assert desk.run("exec", "-i", "b.png", "what is it?").code == 2


def journal_of(desk: Any, thread: str) -> list[dict[str, Any]]:
    (path,) = desk.home.rglob(f"rollout-*{thread}.jsonl")
    return [json.loads(line)["payload"] for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_sessions_resume_takes_execs_options_and_keeps_the_sandbox(
    desk: Any, serve: Any, tmp_path: Path
) -> None:
    serve(["one", "two", "three", "four"])
    thread = desk.run("exec", "--json", "-s", "workspace-write", "go").lines[0]["thread_id"]
    resume = ("sessions", "resume", "-o", "answer.txt", "--max-turns", "3", thread)
    assert desk.run(*resume, "on").code == 0
    assert (desk.workspace / "answer.txt").read_text() == "two"
    assert desk.run("sessions", "resume", "-s", "read-only", thread, "on").code == 0
    modes = [p["sandbox_policy"]["type"] for p in journal_of(desk, thread) if "sandbox_policy" in p]
    assert modes == ["workspace-write", "workspace-write", "read-only"]
    other = tmp_path / "other"
    other.mkdir()
    desk.run("exec", "-C", str(other), "--resume", thread, "elsewhere")
    last = [p for p in journal_of(desk, thread) if "sandbox_policy" in p][-1]
    assert last["sandbox_policy"]["type"] == "read-only", "another folder has its own"


def test_the_transcript_labels_each_output_with_its_call(desk: Any, serve: Any) -> None:
    (desk.workspace / "a.txt").write_text("alpha\n")
    calls = [
        Call("read_file", {"file_path": "a.txt"}, "c1"),
        Call("list_dir", {"dir_path": "."}, "c2"),
    ]
    serve([calls, "done"])
    thread = desk.run("exec", "--json", "go").lines[0]["thread_id"]
    text = desk.run("sessions", "export", thread).out
    assert "**read_file**\n" in text
    assert "**output of read_file**\n\n```\nL1: alpha\n```" in text
    assert text.index("**list_dir**") > text.index("**output of read_file**")
    assert "**output of list_dir**" in text


@pytest.mark.slow
def test_sessions_go_on(desk: Any, serve: Any) -> None:
    server = serve(["one", "two", "three", "four"])
    first = desk.run("exec", "--json", "my name is Ada")
    thread = first.lines[0]["thread_id"]
    again = desk.run("exec", "--json", "--resume", thread[:8], "who am I?")
    assert again.lines[0]["thread_id"] == thread
    assert again.result["usage"]["input_tokens"] == 100, "of this run alone"
    assert desk.run("exec", "--last", "and now?").out == "three\n"
    assert desk.run("sessions", "resume", thread, "and then?").out == "four\n"
    usage = [line for line in journal_of(desk, thread) if line.get("type") == "token_count"]
    assert usage[-1]["info"]["total_token_usage"]["input_tokens"] == 400, "the session's own"
    bodies = [request.body for request in server.requests]
    assert "my name is Ada" in json.dumps(bodies[3]["input"])
    assert len({body["prompt_cache_key"] for body in bodies}) == 1
    assert desk.run("exec", "--resume", "ffffffff-nope", "x").code == 2


def test_ephemeral_leaves_nothing_behind(desk: Any, serve: Any) -> None:
    serve(["one"])
    assert desk.run("exec", "--ephemeral", "go").code == 0
    assert not (desk.home / "sessions").exists()


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_sessions_are_listed_shown_forked_and_exported(desk: Any, serve: Any) -> None:
    serve([[Call("exec_command", {"cmd": "echo hi"})], "all done"])
    thread = desk.run("exec", "--json", "please look").lines[0]["thread_id"]
    assert "please look" in desk.run("sessions", "list").out
    row = json.loads(desk.run("sessions", "list", "--json", "--here").out)
    assert (row["id"], row["title"]) == (thread, "please look")
    shown = desk.run("sessions", "show", thread[:6]).out
    assert "please look" in shown
    assert "all done" in shown
    assert "echo hi" in shown
    whole = json.loads(desk.run("sessions", "export", thread, "--format", "json").out)
    assert whole["meta"]["id"] == thread
    raw = desk.run("sessions", "export", thread, "--format", "jsonl").out
    assert json.loads(raw.splitlines()[0])["type"] == "session_meta"
    copy = desk.run("sessions", "fork", thread).out.strip()
    assert copy != thread
    assert len(desk.run("sessions", "list").out.splitlines()) == 2


# How it ends


ENDS: list[tuple[list[Any], tuple[str, ...], int, str]] = [
    (["done"], (), 0, "done"),
    ([Fail(400, "invalid_prompt", "no such thing")], (), 1, "model_invalid_request"),
    ([Fail(401, "invalid_api_key", "who are you?")], (), 1, "model_auth"),
    ([Fail(429, "insufficient_quota", "pay")], (), 1, "model_quota"),
    ([Fail(500), Fail(500)], (), 1, "model_server"),
    ([Cut(), Cut()], (), 1, "model_stream"),
    ([Incomplete()], (), 1, "model_incomplete"),
    ([[Garbage(), Say("fine")]], (), 0, "done"),
    ([[Say("half"), Cut()], "whole"], (), 0, "done"),
    ([Fail(429, "rate_limit_exceeded", "slow", retry_after=0.01), "ok"], (), 0, "done"),
    ([Call("update_plan", {"plan": []}), context_full(), "a summary", "done"], (), 0, "done"),
    ([context_full()], (), 1, "model_context_window"),
    ([[Call("exec_command", {"cmd": "echo 1"})]] * 3, ("--max-turns", "2"), 4, "budget"),
    ([[Call("exec_command", {"cmd": "echo 1"})]] * 3, ("--max-tokens", "150"), 4, "budget"),
    ([[Call("exec_command", {"cmd": "echo 1"})]] * 3, ("--max-tool-calls", "1"), 4, "budget"),
    ([[Pause(60), Say("late")]], ("--timeout", "0.3"), 4, "timeout"),
    ([[Call("exec_command", {"cmd": "rm -rf /"})], "sorry"], (), 0, "done"),
    ([[Call("exec_command", {"cmd": "rm -rf /"})]], ("-c", "on_ask=fail"), 3, "denied"),
    ([[Call("nope"), Call("exec_command", "{bad")], "well"], (), 0, "done"),
]
# Every exit code is in the short run too.
SHORT = ENDS if os.environ.get("TOOLREST_TEST_FULL") == "1" else ENDS[::2]


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(("script", "arguments", "code", "reason"), SHORT)
def test_exit_codes(
    desk: Any, serve: Any, script: list[Any], arguments: tuple[str, ...], code: int, reason: str
) -> None:
    serve(script, request_max_retries=0, stream_max_retries=1)
    ran = desk.run("exec", "--json", "-s", "workspace-write", *arguments, "go")
    assert (ran.code, ran.result["reason"]) == (code, reason), ran.out + ran.err
    last = ran.lines[-2]["type"]
    assert last == ("turn.completed" if code == 0 else "turn.failed")


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ("model = 3\n", 2),
        ('model_provider = "nobody"\n', 2),
        ('model = "gpt-5.5"\n', 2),
        ('model = "x"\nmodel_provider = "p"\n[model_providers.p]\nbase_url = '
         '"http://127.0.0.1:9/v1"\nrequest_max_retries = 0\nstream_max_retries = 0\n', 1),
    ],
)  # fmt: skip
def test_faults_before_the_first_word_end_with_a_result_too(
    desk: Any, config: str, code: int
) -> None:
    (desk.home / "config.toml").write_text(config)
    ran = desk.run("exec", "--json", "go", env={"OPENAI_API_KEY": ""})
    assert ran.code == code
    assert ran.result["status"] == "failed"
    assert ran.err


def test_without_a_sandbox_nothing_runs_bare(desk: Any, serve: Any) -> None:
    serve([[Call("exec_command", {"cmd": "touch ran"})], "never asked"])
    docker = ("sandbox_policy=docker", "sandbox.image=x", "sandbox.engine=/nonexistent")
    flags = [word for setting in docker for word in ("-c", setting)]
    ran = desk.run("exec", "--json", "-s", "workspace-write", *flags, "go")
    assert (ran.code, ran.result["reason"]) == (5, "sandbox_unavailable")
    assert not (desk.workspace / "ran").exists()
    assert "/nonexistent" in ran.result["denials"][0]["reason"]
    serve([[Call("exec_command", {"cmd": "touch ran"})], "never asked"])
    ran = desk.run("exec", "-s", "workspace-write", *flags, "go")
    assert ran.code == 5
    assert ran.err.count("none works here") == 1
    assert ran.err.count("`toolrest doctor` says what is missing") == 1
    assert "danger-full-access" not in ran.err


def test_a_denial_is_said_to_people_with_the_one_way_that_fits(desk: Any, serve: Any) -> None:
    patch = "*** Begin Patch\n*** Add File: new.txt\n+x\n*** End Patch\n"
    escalated = {"cmd": "ls", "sandbox_permissions": "require_escalated", "justification": "?"}
    steps = [[Freeform("apply_patch", patch)], [Call("exec_command", escalated)], "understood"]
    server = serve(steps)
    ran = desk.run("exec", "-s", "read-only", "go")
    rows = [line.strip() for line in ran.err.splitlines() if "✗" in line]
    assert rows == [
        "✗ Denied: nobody here can approve. Run it in a terminal, or allow it beforehand: "
        "-s workspace-write.",
        "✗ Denied: nobody here can approve. Run it in a terminal, or allow it beforehand: "
        'prefix_rule(pattern=["ls"], outside=True) in rules/default.rules in Toolrest\'s home.',
    ]
    assert ran.err.count("new.txt") == 1
    read = [item["output"] for item in server.requests[-1].body["input"] if "output" in item]
    assert all("on_ask" in str(output) for output in read), "the model has every way"


@pytest.mark.needs("sandbox")
@pytest.mark.slow
def test_what_the_sandbox_blocked_is_said_without_the_models_way_out(
    desk: Any, serve: Any, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    write = f"python3 -c \"open('{outside}', 'w')\""
    server = serve([[Call("exec_command", {"cmd": write, "login": False})], "understood"])
    ran = desk.run("exec", "-s", "workspace-write", "go")
    rows = [line.strip() for line in ran.err.splitlines() if "✗" in line]
    assert rows == [f"✗ the sandbox blocked writing to {outside}"]
    assert "require_escalated" in str(server.requests[-1].body["input"][-1]["output"])


def test_a_denial_is_told_with_the_setting_that_would_allow_it(desk: Any, serve: Any) -> None:
    escalated = {"cmd": "ls", "sandbox_permissions": "require_escalated", "justification": "?"}
    serve([[Call("exec_command", escalated)], "understood"])
    ran = desk.run("exec", "--json", "-s", "workspace-write", "go")
    assert ran.code == 0
    (denial,) = ran.result["denials"]
    assert denial["tool"] == "exec_command"
    assert "on_ask" in denial["reason"]
    (command,) = ran.items("command_execution")
    assert command["status"] == "declined"


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_the_tree_and_are_recorded(
    desk: Any, serve: Any, number: signal.Signals, code: int
) -> None:
    mark = f"31{os.getpid() % 100000}"
    serve([[Call("exec_command", {"cmd": f"sleep {mark}", "yield_time_ms": 30000})], "never"])
    with desk.start("exec", "--json", "-s", "workspace-write", "go") as process:
        assert wait_for(lambda: _is_running(mark))
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    result = json.loads(out.splitlines()[-1])
    assert (result["type"], result["status"], result["exit_code"]) == (
        "result", "interrupted", code,
    )  # fmt: skip
    assert not _is_running(mark)
    (rollout,) = desk.home.rglob("rollout-*.jsonl")
    last = [json.loads(line)["payload"] for line in rollout.read_text().splitlines()]
    outputs = [item["output"] for item in last if item.get("type") == "function_call_output"]
    assert "aborted by user" in outputs[0]
    assert "<turn_aborted>" in rollout.read_text()


def wait_for(condition: Any, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _is_running(mark: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"sleep" in words[0] and mark.encode() in words:
            return True
    return False


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_run(desk: Any, serve: Any) -> None:
    serve([[Call("exec_command", {"cmd": f"echo {n}"})] for n in range(200)])
    with desk.start("exec", "--json", "-s", "workspace-write", "go") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141


def test_the_log_is_private_and_holds_no_secret(desk: Any, serve: Any, tmp_path: Path) -> None:
    secret = "sk-verysecret-1234567890"
    serve(["done", "done"], env_key="SOME_API_KEY")
    log = tmp_path / "run.log"
    env = {"SOME_API_KEY": secret, "TOOLREST_LOG": str(log)}
    ran = desk.run("exec", "--json", f"the key is {secret}", env=env)
    assert ran.code == 0
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert '"agent_message"' in log.read_text()
    assert desk.run("exec", "-v", "go", env={"SOME_API_KEY": secret}).code == 0
    (own,) = (desk.home / "log").iterdir()
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    for file in desk.home.rglob("*"):
        if file.is_file():
            assert secret not in file.read_text(errors="replace"), file
    assert secret not in log.read_text() + ran.out + ran.err


@pytest.mark.needs("sandbox")
def test_more_folders_may_be_written(desk: Any, serve: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    serve([[Call("exec_command", {"cmd": f"echo x > {other}/f"})], "done"])
    desk.run("exec", "-s", "workspace-write", "--add-dir", str(other), "go")
    assert (other / "f").read_text() == "x\n"


def test_project_instructions_need_trust(desk: Any, serve: Any) -> None:
    server = serve(["one", "two"])
    (desk.workspace / "AGENTS.md").write_text("use tabs")
    first = desk.run("exec", "go")
    assert "AGENTS.md is not used" in first.err
    desk.run("trust")
    assert "AGENTS.md" not in desk.run("exec", "go").err
    sent = [json.dumps(request.body["input"]) for request in server.requests]
    assert ["use tabs" in text for text in sent] == [False, True]


def test_every_call_is_an_item(desk: Any, serve: Any) -> None:
    (desk.workspace / "there.txt").write_text("text\n")
    folder = desk.home / "tools"
    folder.mkdir(mode=0o700)
    (folder / "mine.py").write_text(
        "from toolrest import tool\n@tool(mutating=False)\ndef mine(x: str) -> str:\n"
        "    'A tool.'\n    return x * 2\n"
    )
    step = {"step": "one", "status": "completed"}
    calls = [
        (Call("read_file", {"file_path": "there.txt"}), ("tool_call", "completed")),
        (Call("read_file", {"file_path": "gone.txt"}), ("tool_call", "failed")),
        (Call("mine", {"x": "ab"}), ("tool_call", "completed")),
        (Call("mine", {"y": 1}), ("tool_call", "failed")),
        (Call("nonesuch", {}), ("tool_call", "failed")),
        (Call("webfetch", {"url": "https://example.org"}), ("tool_call", "declined")),
        (Call("exec_command", {"nothing": 1}), ("tool_call", "failed")),
        (Call("exec_command", {"cmd": "rm -rf $X/y"}), ("command_execution", "declined")),
        (Call("write_stdin", {"session_id": 7}), ("tool_call", "failed")),
        (Call("update_plan", {"plan": "no"}), ("tool_call", "failed")),
        (Call("update_plan", {"plan": [step]}), ("todo_list", None)),
    ]
    serve([[call for call, _ in calls], "done"])
    ran = desk.run("exec", "--json", "go")
    assert ran.code == 0
    done = [line["item"] for line in ran.lines if line["type"] == "item.completed"]
    kinds = [(item["type"], item.get("status")) for item in done if item["type"] != "agent_message"]
    assert sorted(kinds, key=str) == sorted((kind for _, kind in calls), key=str)
    started = [line["item"]["id"] for line in ran.lines if line["type"] == "item.started"]
    assert sorted(started) == sorted(item["id"] for item in done if item["type"] != "agent_message")
    mine = next(item for item in done if item.get("arguments") == {"x": "ab"})
    assert mine == {
        "id": mine["id"],
        "type": "tool_call",
        "tool": "mine",
        "arguments": {"x": "ab"},
        "status": "completed",
        "output": "abab",
    }
    gone = next(item for item in done if item.get("arguments") == {"file_path": "gone.txt"})
    assert "No such file" in gone["error"]["message"]


def test_a_search_of_the_models_server_is_an_item(desk: Any, serve: Any) -> None:
    action = {"type": "search", "query": "tea"}
    done = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}
    serve([[Raw(done), "found"]])
    ran = desk.run("exec", "--json", "-c", "web_search=live", "go")
    assert ran.code == 0
    (item,) = ran.items("web_search")
    assert (item["query"], item["action"]) == ("tea", action)
    assert not ran.items("tool_call")
