"""Hooks as their users meet them: real programs around real calls."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.clock import Clock

from toolrest import ApprovalRequest, ConfigError, Effects, Toolrest, tool
from toolrest.events import Event, HookRan, ToolCallDecision
from toolrest.gate.approval.request import ReviewDecision

Script = Callable[..., list[str]]


@pytest.fixture
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    """Writes a hook in Python; `told` holds what came on standard input."""
    folder = tmp_path_factory.mktemp("hooks")

    def write(body: str, name: str = "hook.py") -> list[str]:
        path = folder / name
        log = folder / f"{name}.log"
        path.write_text(
            "import json, os, sys, time\n"
            "told = json.load(sys.stdin)\n"
            f"open({str(log)!r}, 'a').write(json.dumps(told) + chr(10))\n" + body
        )
        return [sys.executable, "-I", "-S", str(path)]

    return write


def log_of(command: list[str]) -> list[Any]:
    path = Path(command[-1] + ".log")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def hook(command: list[str], **more: Any) -> dict[str, Any]:
    return {"command": command, **more}


@tool(mutating=False)
async def echo(text: str) -> str:
    """Say it back."""
    return f"said {text}"


@tool(effects=Effects(calls=("elsewhere",)))
async def outward(text: str) -> str:
    """Ask another machine."""
    return f"sent {text}"


def printing(reply: Any) -> str:
    return f"print(json.dumps({reply!r}))"


def deciding(choice: str, **more: Any) -> str:
    inner = {"hookEventName": "PreToolUse", "permissionDecision": choice, **more}
    return printing({"hookSpecificOutput": inner})


async def call_with(
    workspace: Path, hooks: dict[str, Any], name: str = "echo", text: str = "hi", **options: Any
) -> tuple[Any, list[Event]]:
    events: list[Event] = []
    settings = {"hooks": hooks}
    async with Toolrest(workspace, tools=[echo, outward], settings=settings, **options) as rest:
        rest.subscribe(events.append)
        output = await rest.call(name, {"text": text})
    return output, events


def ran(events: list[Event]) -> list[HookRan]:
    return [event for event in events if isinstance(event, HookRan)]


def decided(events: list[Event]) -> list[tuple[str, str, str]]:
    found = [event for event in events if isinstance(event, ToolCallDecision)]
    return [(event.verdict, event.rule, event.source) for event in found]


async def test_a_hook_is_told_of_the_call(tmp_path: Path, script: Script) -> None:
    command = script("")
    output, _ = await call_with(tmp_path, {"PreToolUse": [hook(command)]})
    assert output.text == "said hi"
    (told,) = log_of(command)
    assert told["hook_event_name"] == "PreToolUse"
    assert told["tool_name"] == "echo"
    assert told["tool_input"] == {"text": "hi"}
    assert told["cwd"] == str(tmp_path)
    assert told["permission_mode"] == "on-request"
    assert told["session_id"]
    assert told["tool_use_id"]
    assert told["turn_id"]


# R-13, row by row: what the hook does, what becomes of the call, and how that is told.
OUTCOMES: dict[str, tuple[str, str, str]] = {
    "exit 0": ("", "continue", "continue"),
    "an empty object": ("print('{}')", "continue", "continue"),
    "unknown fields": ("print('{\"new\": 1}')", "continue", "continue"),
    "exit 2": ("print('not here', file=sys.stderr); sys.exit(2)", "deny", "deny"),
    "exit 2 without a word": ("sys.exit(2)", "deny", "deny"),
    "exit 2 with a yes": (deciding("allow") + "\nsys.exit(2)", "deny", "deny"),
    "deny": (deciding("deny", permissionDecisionReason="not here"), "deny", "deny"),
    "decision block": (printing({"decision": "block", "reason": "not here"}), "deny", "deny"),
    "nested decision": (printing({"decision": {"behavior": "deny"}}), "deny", "deny"),
    "allow": (deciding("allow"), "allow", "allow"),
    "exit 1": ("sys.exit(1)", "error", "deny"),
    "exit 3": ("print('oh', file=sys.stderr); sys.exit(3)", "error", "deny"),
    "a crash": ("raise RuntimeError('oh')", "error", "deny"),
    "a signal": ("os.kill(os.getpid(), 9)", "error", "deny"),
    "no JSON": ("print('all fine')", "error", "deny"),
    "half of JSON": ("print('{\"decision\": ')", "error", "deny"),
    "a list": ("print('[]')", "error", "deny"),
    "deep JSON": ("print('[' * 100000)", "error", "deny"),
    "an unknown decision": (deciding("maybe"), "error", "deny"),
    "a decision of a wrong type": (deciding("allow", updatedInput="x"), "error", "deny"),
    "another event": (
        printing({"hookSpecificOutput": {"hookEventName": "Stop", "permissionDecision": "allow"}}),
        "error",
        "deny",
    ),
    "too much output": ("print('x' * 300_000)", "error", "deny"),
    "no end": ("time.sleep(60)", "error", "deny"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTCOMES)
async def test_how_a_hook_ends(tmp_path: Path, script: Script, name: str) -> None:
    body, outcome, effect = OUTCOMES[name]
    seconds = 0.5 if name == "no end" else 30
    rows = [hook(script(body), timeout_sec=seconds)]
    output, events = await call_with(tmp_path, {"PreToolUse": rows})
    (told,) = ran(events)
    assert (told.outcome, told.effect) == (outcome, effect)
    if effect != "deny":
        assert output.text == "said hi"
        return
    assert output.failure is not None
    assert output.failure.kind == "policy_denied"
    rule = "hook_error" if outcome == "error" else "hook"
    assert decided(events) == [("deny", rule, "hook")]
    assert ("hook_error" in output.text) == (outcome == "error")
    assert "said" not in output.text
    if "not here" in body:
        assert "not here" in output.text


@pytest.mark.parametrize("command", [["/no/such/program"], ["no-such-program-anywhere"]])
async def test_a_hook_that_cannot_start_blocks(tmp_path: Path, command: list[str]) -> None:
    output, events = await call_with(tmp_path, {"PreToolUse": [hook(command)]})
    assert "hook_error" in output.text
    assert command[0] in output.text
    assert ran(events)[0].outcome == "error"


@pytest.mark.parametrize(
    ("on_error", "on_ask", "runs"),
    [("block", "allow", False), ("continue", "deny", True), ("ask", "deny", False)],
)
async def test_on_error(
    tmp_path: Path, script: Script, on_error: str, on_ask: Any, runs: bool
) -> None:
    rows = [hook(script("sys.exit(1)"), on_error=on_error)]
    output, events = await call_with(tmp_path, {"PreToolUse": rows}, on_ask=on_ask)
    assert (output.text == "said hi") == runs
    assert any(event.type == "warning" for event in events) == (on_error == "continue")


async def test_a_broken_hook_may_ask(tmp_path: Path, script: Script) -> None:
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    rows = [hook(script("sys.exit(1)"), on_error="ask")]
    output, _ = await call_with(tmp_path, {"PreToolUse": rows}, on_ask=approve)
    assert output.text == "said hi"
    assert "exited with 1" in asked[0].reason


async def test_a_hook_wants_a_question(tmp_path: Path, script: Script) -> None:
    rows = [hook(script(deciding("ask", permissionDecisionReason="look first")))]
    output, _ = await call_with(tmp_path, {"PreToolUse": rows})
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"
    assert "look first" in output.text
    output, _ = await call_with(tmp_path, {"PreToolUse": rows}, approval_policy="never")
    assert output.failure is not None
    assert output.failure.kind == "policy_denied"


async def test_a_yes_answers_a_question_but_lifts_no_denial(tmp_path: Path, script: Script) -> None:
    rows = {"PreToolUse": [hook(script(deciding("allow")))]}
    output, events = await call_with(tmp_path, rows, "outward")
    assert output.text == "sent hi"
    assert decided(events) == [("allow", "hook", "policy")]
    secret = tmp_path / ".env"
    secret.write_text("A=1")
    async with Toolrest(tmp_path, settings={"hooks": rows}) as rest:
        output = await rest.call("read_file", {"file_path": str(secret)})
        assert output.failure is not None
        assert output.failure.kind == "policy_denied"
        # What leaves the sandbox is for a person, not for a hook that only saw the input.
        leaving = {
            "cmd": "echo hi",
            "sandbox_permissions": "require_escalated",
            "justification": "because",
        }
        output = await rest.call("exec_command", leaving)
        assert output.failure is not None
        assert output.failure.kind == "approval_denied"


async def test_the_strictest_of_several_counts(tmp_path: Path, script: Script) -> None:
    allow, ask, deny = (
        hook(script(deciding(choice), f"{choice}.py")) for choice in ("allow", "ask", "deny")
    )
    output, events = await call_with(tmp_path, {"PreToolUse": [allow, ask]}, on_ask="allow")
    assert output.text == "said hi"
    assert ("ask", "hook", "policy") in decided(events)
    output, _ = await call_with(tmp_path, {"PreToolUse": [allow, deny, ask]}, on_ask="allow")
    assert "blocked by a PreToolUse hook" in output.text
    assert len(log_of(ask["command"])) == 1, "nothing runs after a denial"


# R-14


async def test_a_changed_input_is_what_runs(tmp_path: Path, script: Script) -> None:
    first = script(deciding("allow", updatedInput={"text": "other"}), "first.py")
    second = script("", "second.py")
    rows = {"PreToolUse": [hook(first), hook(second)]}
    output, events = await call_with(tmp_path, rows)
    first_line, note = output.text.splitlines()
    assert first_line == "said other"
    assert note == "[toolrest] a hook of the user changed the arguments of this call"
    assert log_of(second)[0]["tool_input"] == {"text": "other"}
    (decision,) = [event for event in events if isinstance(event, ToolCallDecision)]
    assert json.loads(decision.arguments) == {"text": "other"}


async def test_a_changed_input_is_validated(tmp_path: Path, script: Script) -> None:
    rows = {"PreToolUse": [hook(script(deciding("allow", updatedInput={"text": 3})))]}
    output, events = await call_with(tmp_path, rows)
    assert "gave an input that is not valid" in output.text
    assert "`text`" in output.text
    assert decided(events) == [("deny", "hook_error", "hook")]


async def test_a_changed_input_meets_the_policy(tmp_path: Path, script: Script) -> None:
    plain, secret = tmp_path / "plain.txt", tmp_path / ".env"
    plain.write_text("plain")
    secret.write_text("KEY=1")
    rows = [hook(script(deciding("allow", updatedInput={"file_path": str(secret)})))]
    async with Toolrest(tmp_path, settings={"hooks": {"PreToolUse": rows}}) as rest:
        output = await rest.call("read_file", {"file_path": str(plain)})
    assert output.failure is not None
    assert output.failure.kind == "policy_denied"
    assert "KEY" not in output.text


async def test_an_earlier_yes_is_no_yes_to_another_input(tmp_path: Path, script: Script) -> None:
    allow = script(deciding("allow"), "allow.py")
    change = script(
        printing({"hookSpecificOutput": {"updatedInput": {"text": "other"}}}), "change.py"
    )
    rows = {"PreToolUse": [hook(allow), hook(change)]}
    output, _ = await call_with(tmp_path, rows, "outward")
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"


# R-12


@pytest.mark.slow
async def test_every_tool_is_seen_before_and_after(tmp_path: Path, script: Script) -> None:
    pre, post = script("", "pre.py"), script("", "post.py")
    (tmp_path / "a.txt").write_text("a\n")
    patch = "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch\n"
    made: dict[str, dict[str, Any]] = {
        "echo": {"text": "x"},
        "outward": {"text": "x"},
        "read_file": {"file_path": str(tmp_path / "a.txt")},
        "list_dir": {"dir_path": str(tmp_path)},
        "grep_files": {"pattern": "a"},
        "update_plan": {"plan": [{"step": "s", "status": "pending"}]},
        "exec_command": {"cmd": "true", "login": False},
        "shell": {"command": ["true"]},
        "shell_command": {"command": "true", "login": False},
        "write_stdin": {"session_id": 12345},
        "apply_patch": {"input": patch.format("b.txt")},
    }
    hooks = {"PreToolUse": [hook(pre)], "PostToolUse": [hook(post)]}
    async with Toolrest(
        tmp_path, tools=[echo, outward, "all"], settings={"hooks": hooks}, on_ask="allow"
    ) as rest:
        names = [tool.name for tool in rest.tools]
        called = [name for name in names if name in made]
        for name in called:
            await rest.call(name, made[name])
        intercepted = {"cmd": f"apply_patch <<'EOF'\n{patch.format('c.txt')}EOF", "login": False}
        assert "Success" in (await rest.call("exec_command", intercepted)).text
    called.append("exec_command")
    assert {"echo", "read_file", "exec_command", "write_stdin", "apply_patch"} <= set(called)
    assert [told["tool_name"] for told in log_of(pre)] == called
    assert [told["tool_name"] for told in log_of(post)] == called
    assert (tmp_path / "c.txt").exists()


@pytest.mark.parametrize(
    ("matcher", "matching"),
    [
        ("*", {"read_file", "exec_command", "apply_patch", "patch in a command"}),
        (".*", {"read_file", "exec_command", "apply_patch", "patch in a command"}),
        ("Bash", {"exec_command", "patch in a command"}),
        ("bash", {"exec_command", "patch in a command"}),
        ("Write|Edit", {"apply_patch", "patch in a command"}),
        ("apply_patch", {"apply_patch", "patch in a command"}),
        ("read_.*", {"read_file"}),
        ("read_*", {"read_file"}),
        ("read", set()),
        ("exec_command|read_file", {"read_file", "exec_command"}),
    ],
)
async def test_matchers(tmp_path: Path, script: Script, matcher: str, matching: set[str]) -> None:
    command = script("sys.exit(2)")
    patch = "*** Begin Patch\n*** Add File: b.txt\n+x\n*** End Patch\n"
    (tmp_path / "a.txt").write_text("a\n")
    made: dict[str, tuple[str, dict[str, Any]]] = {
        "read_file": ("read_file", {"file_path": str(tmp_path / "a.txt")}),
        "exec_command": ("exec_command", {"cmd": "true", "login": False}),
        "apply_patch": ("apply_patch", {"input": patch}),
        "patch in a command": ("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}EOF"}),
    }
    rows = {"PreToolUse": [hook(command, matcher=matcher)]}
    blocked = set()
    async with Toolrest(tmp_path, settings={"hooks": rows}, on_ask="allow") as rest:
        for label, (name, arguments) in made.items():
            output = await rest.call(name, arguments)
            if "blocked by a PreToolUse hook" in output.text:
                blocked.add(label)
            (tmp_path / "b.txt").unlink(missing_ok=True)
    expected = (
        matching if matcher != "exec_command|read_file" else matching | {"patch in a command"}
    )
    assert blocked == expected


@pytest.mark.slow
async def test_calls_keep_their_order_while_hooks_take_their_time(
    tmp_path: Path, script: Script
) -> None:
    target = tmp_path / "a.txt"
    seen: list[str] = []

    @tool(writes="path")
    async def note(path: str, text: str) -> str:
        """Write one text."""
        seen.append(text)
        return text

    slow_first = script("time.sleep(0.6 if told['tool_input']['text'] == 'one' else 0)")
    settings = {"hooks": {"PreToolUse": [hook(slow_first)]}}
    async with Toolrest(tmp_path, tools=[note], settings=settings) as rest:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for text in ("one", "two", "three"):
                group.create_task(rest.call("note", {"path": str(target), "text": text}))
        assert seen == ["one", "two", "three"]


async def test_a_tool_that_calls_a_tool_is_hooked_twice(tmp_path: Path, script: Script) -> None:
    rests: list[Toolrest] = []

    @tool(mutating=False)
    async def outer(text: str) -> str:
        """Call another."""
        return (await rests[0].call("echo", {"text": text})).text

    command = script("")
    settings = {"hooks": {"PreToolUse": [hook(command)]}}
    async with Toolrest(tmp_path, tools=[outer, echo], settings=settings) as rest:
        rests.append(rest)
        assert (await rest.call("outer", {"text": "x"})).text == "said x"
    assert [told["tool_name"] for told in log_of(command)] == ["outer", "echo"]


# After the call


async def test_a_result_may_be_withheld_replaced_or_added_to(
    tmp_path: Path, script: Script
) -> None:
    block = script("print('secret plan', file=sys.stderr); sys.exit(2)", "block.py")
    output, _ = await call_with(tmp_path, {"PostToolUse": [hook(block)]})
    assert output.text == "PostToolUse hook blocked the tool result: secret plan\n[toolrest] " + (
        "the call itself has run; only its result is withheld"
    )
    assert log_of(block)[0]["tool_response"]["text"] == "said hi"
    change = script(printing({"hookSpecificOutput": {"updatedToolOutput": "other"}}), "change.py")
    output, _ = await call_with(tmp_path, {"PostToolUse": [hook(change)]})
    assert output.text.startswith("other\n")
    add = script(
        printing({"hookSpecificOutput": {"additionalContext": "run the linter\nsoon"}}), "add.py"
    )
    output, _ = await call_with(tmp_path, {"PostToolUse": [hook(add)]})
    assert output.text == "said hi\n[toolrest] run the linter\n[toolrest] soon"
    broken = script("sys.exit(9)", "broken.py")
    output, events = await call_with(tmp_path, {"PostToolUse": [hook(broken)]})
    assert "said" not in output.text
    assert ran(events)[0].outcome == "error"


async def test_failed_calls_are_told_to_hooks_too(tmp_path: Path, script: Script) -> None:
    command = script("")
    settings = {"hooks": {"PostToolUse": [hook(command)]}}
    async with Toolrest(tmp_path, settings=settings) as rest:
        await rest.call("read_file", {"file_path": str(tmp_path / "missing")})
    (told,) = log_of(command)
    assert told["tool_response"]["success"] is False
    assert told["tool_response"]["failure"] == "execution_failed"


async def test_a_hook_may_end_the_turn(tmp_path: Path, script: Script) -> None:
    rows = [hook(script(printing({"continue": False, "stopReason": "enough"})))]
    async with Toolrest(tmp_path, tools=[echo], settings={"hooks": {"PreToolUse": rows}}) as rest:
        async with rest.turn() as turn:
            from toolrest.items import FunctionCall

            output = await turn.start(FunctionCall("1", "echo", {"text": "x"})).output()
        assert "enough" in output.text
        assert turn.failure is not None


# At a question


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (printing({"hookSpecificOutput": {"decision": {"behavior": "allow"}}}), None),
        (printing({"hookSpecificOutput": {"decision": {"behavior": "deny"}}}), "approval_denied"),
        ("sys.exit(2)", "approval_denied"),
        ("sys.exit(1)", "approval_denied"),
        ("", "asked"),
        (printing({"hookSpecificOutput": {"updatedInput": {"text": "x"}}}), "approval_denied"),
    ],
)
async def test_a_hook_answers_a_question(
    tmp_path: Path, script: Script, body: str, kind: str | None
) -> None:
    asked: list[ApprovalRequest] = []

    def deny(request: ApprovalRequest) -> ReviewDecision:
        asked.append(request)
        return "denied"

    command = script(body)
    rows = {"PermissionRequest": [hook(command)]}
    output, events = await call_with(tmp_path, rows, "outward", on_ask=deny)
    (told,) = log_of(command)
    assert told["risk"] == "execute"
    assert told["leaves_sandbox"] is False
    assert told["reason"]
    assert bool(asked) == (kind == "asked")
    if kind is None:
        assert output.text == "sent hi"
        assert decided(events)[-1] == ("allow", "table.execute", "hook")
    else:
        assert output.failure is not None
        assert output.failure.kind == "approval_denied"


@pytest.mark.needs("sandbox")
async def test_a_hooks_yes_is_none_to_a_second_try_outside(tmp_path: Path, script: Script) -> None:
    """It was asked about inside the sandbox, and stays inside until the approver is asked again."""
    name = f"toolrest-must-not-be-there-{secrets.token_hex(8)}"
    outside = Path("/usr/local", name)  # /tmp is the sandbox's own
    body = (
        "if not told['leaves_sandbox']:\n"
        "    print(json.dumps({'hookSpecificOutput': {'decision': {'behavior': 'allow'}}}))"
    )
    command = script(body)
    rows = {"PermissionRequest": [hook(command)]}
    options: Any = {"approval_policy": "untrusted", "settings": {"hooks": rows}}
    async with Toolrest(tmp_path, **options) as rest:
        call = {"command": ["python3", "-c", f"open({str(outside)!r}, 'w')"]}
        output = await rest.call("shell", call)
    assert [told["leaves_sandbox"] for told in log_of(command)] == [False, True]
    assert output.failure is not None
    assert not outside.exists()


async def test_no_question_no_hook(tmp_path: Path, script: Script) -> None:
    command = script("sys.exit(2)")
    output, _ = await call_with(tmp_path, {"PermissionRequest": [hook(command)]})
    assert output.text == "said hi"
    assert log_of(command) == []


# The program itself


async def test_a_hook_gets_no_secrets_and_no_planted_programs(
    tmp_path: Path, script: Script
) -> None:
    planted = tmp_path / "bin"
    planted.mkdir()
    (planted / "jq").write_text("#!/bin/sh\n")
    (planted / "jq").chmod(0o755)
    command = script("print(json.dumps({'systemMessage': json.dumps(dict(os.environ))}))")
    env = {
        **os.environ,
        "PATH": f"{planted}:{os.environ['PATH']}",
        "OPENAI_API_KEY": "sk-12345678",
        "MY_TOKEN": "tokentoken",
        "PLAIN": "plain",
    }
    _, events = await call_with(tmp_path, {"PreToolUse": [hook(command)]}, env=env)
    (message,) = [event.message for event in events if event.type == "warning"]  # type: ignore[attr-defined]
    seen = json.loads(message)
    assert "OPENAI_API_KEY" not in seen
    assert "MY_TOKEN" not in seen
    assert seen["PLAIN"] == "plain"
    assert str(planted) not in seen["PATH"].split(":")
    assert seen["TOOLREST_PROJECT_DIR"] == str(tmp_path)


async def test_a_hook_that_takes_too_long_is_gone_with_all_its_children(
    tmp_path: Path, script: Script, clock: Clock
) -> None:
    mark = tmp_path / "pid"
    body = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '900'])\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(900)"
    )
    rows = {"PreToolUse": [hook(script(body), timeout_sec=300.5)]}
    call = asyncio.ensure_future(call_with(tmp_path, rows))
    while not (mark.exists() and mark.read_text()):
        await asyncio.sleep(0.01)
    clock.skip(300.5)
    output, _ = await call
    assert "did not end within 300.5 s" in output.text
    assert not Path(f"/proc/{mark.read_text()}").exists()


async def test_cancelling_a_call_ends_its_hook(tmp_path: Path, script: Script) -> None:
    mark = tmp_path / "pid"
    body = f"open({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(300)"
    settings = {"hooks": {"PreToolUse": [hook(script(body))]}}
    async with Toolrest(tmp_path, tools=[echo], settings=settings) as rest:
        task = asyncio.create_task(rest.call("echo", {"text": "x"}, call_id="c"))
        while not (mark.exists() and mark.read_text()):
            await asyncio.sleep(0.01)
        output = await rest.cancel("c")
        assert output.failure is not None
        assert output.failure.kind == "aborted"
        assert not Path(f"/proc/{mark.read_text()}").exists()
        await task


def test_a_hook_that_a_model_could_change_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "guard.py"
    inside.write_text("")
    for command, part in [
        ([str(inside)], "a model could change what it does"),
        ([sys.executable, str(inside)], "a model could change what it does"),
        ([sys.executable, "guard.py"], "write the whole path"),
        (["./guard.py"], "write the whole path"),
    ]:
        with pytest.raises(ConfigError, match=r"hooks\.PreToolUse") as caught:
            Toolrest(tmp_path, settings={"hooks": {"PreToolUse": [{"command": command}]}})
        assert part in str(caught.value)
    kept = tmp_path / ".toolrest"
    kept.mkdir()
    (kept / "guard.py").write_text("")
    rows = [{"command": [sys.executable, str(kept / "guard.py")]}]
    Toolrest(tmp_path, settings={"hooks": {"PreToolUse": rows}})


def test_settings_that_would_guard_nothing_are_errors(tmp_path: Path) -> None:
    for row, part in [
        ({"command": []}, "hooks.PreToolUse.command"),
        ({"command": "guard"}, "hooks.PreToolUse.command"),
        ({"command": ["x"], "matcher": "(Edit"}, "not a regular expression"),
        ({"command": ["x"], "matcher": "(a+)+b"}, "repeats a repeat"),
        ({"command": ["x"], "on_error": "ignore"}, "on_error"),
        ({"command": ["x"], "timeout_sec": 0}, "timeout_sec"),
        ({"command": ["x"], "comand": 1}, "unknown key"),
    ]:
        with pytest.raises(ConfigError) as caught:
            Toolrest(tmp_path, settings={"hooks": {"PreToolUse": [row]}})
        assert part in str(caught.value)


async def test_hooks_are_in_the_audit_log(
    tmp_path: Path, script: Script, toolrest_home: Path
) -> None:
    rows = {"PreToolUse": [hook(script("sys.exit(2)"))]}
    await call_with(tmp_path, rows, home=toolrest_home)
    (log,) = (toolrest_home / "audit").glob("*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (told,) = [line for line in lines if line.get("type") == "hook"]
    assert (told["event"], told["outcome"], told["exit_code"]) == ("PreToolUse", "deny", 2)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_session_start_and_stop(tmp_path: Path, script: Script) -> None:
    start = script("print('the build is red')", "start.py")
    stop = script("print('tests fail', file=sys.stderr); sys.exit(2)", "stop.py")
    broken = script("sys.exit(1)", "broken.py")
    settings = {"hooks": {"SessionStart": [hook(start)], "Stop": [hook(stop)]}}
    async with Toolrest(tmp_path, settings=settings) as rest:
        begun = await rest.hooks.session_start("resume")
        assert begun.context == "the build is red"
        assert not begun.denies
        assert log_of(start)[0]["source"] == "resume"
        ended = await rest.hooks.stop("done", again=True)
        assert ended.denies
        assert ended.reason == "tests fail"
        assert log_of(stop)[0]["stop_hook_active"] is True
    settings = {"hooks": {"SessionStart": [hook(broken)], "Stop": [hook(broken)]}}
    async with Toolrest(tmp_path, settings=settings) as rest:
        assert (await rest.hooks.session_start()).denies
        assert not (await rest.hooks.stop()).denies, "a broken hook keeps no session going"
    async with Toolrest(tmp_path) as rest:
        assert not (await rest.hooks.session_start()).denies
