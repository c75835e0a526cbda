"""Sub-agents through their tools: real sessions with scripted models, under one ceiling."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import Clock

from toolrest import Conversation, Toolrest
from toolrest.agent.subagents import subagents
from toolrest.agent.subagents.delegation import delegate
from toolrest.config.loader import default_config, load
from toolrest.errors import ConfigError
from toolrest.gate.approval.request import ApprovalRequest
from toolrest.gate.tool.decorator import tool
from toolrest.items import ToolOutput
from toolrest.policy.effects import Effects
from toolrest.testing import Call, Pause, Reply, Say, ScriptedModel
from toolrest.tools.agents.roles import Role, narrowed

Make = Callable[..., Toolrest]
Script = list[Any]


@pytest.fixture
async def parent(workspace: Path, toolrest_home: Path) -> AsyncIterator[Make]:
    """A session whose sub-agents speak from the scripts, one script each in turn."""
    made: list[Conversation] = []

    def make(*scripts: Script, on_ask: Any = None, tools: Any = (), **settings: Any) -> Toolrest:
        # `unasked` is the setting on_ask, which the argument of that name goes before.
        settings |= {"on_ask": settings.pop("unasked")} if "unasked" in settings else {}
        given = {key.replace("__", "."): value for key, value in settings.items()}
        given.setdefault("tool_security.audit_log_enabled", False)
        config = default_config(given, workspace=workspace)
        rest = Toolrest(workspace, config=config, on_ask=on_ask, tools=["all", *tools])
        models = iter([ScriptedModel(script) for script in scripts])
        agents = delegate(rest, lambda _: next(models), environ={"PATH": "/usr/bin:/bin"})
        made.append(Conversation(rest, ScriptedModel([]), agents=agents))
        return rest

    yield make
    for one in made:
        await one.aclose()


async def spawn(rest: Toolrest, message: str = "do it", **more: Any) -> str:
    output = await rest.call("spawn_agent", {"message": message, **more})
    assert not output.failed, output.text
    agent_id: str = json.loads(output.text)["agent_id"]
    return agent_id


async def wait(rest: Toolrest, *ids: str) -> dict[str, Any]:
    output = await rest.call("wait", {"ids": list(ids)})
    found: dict[str, Any] = json.loads(output.text)
    return found


@pytest.mark.usefixtures("any_sandbox")
async def test_a_child_works_and_reports(parent: Make, workspace: Path) -> None:
    rest = parent(
        [Call("exec_command", {"cmd": "echo made > by_child"}), Say("all done")],
        approval_policy="never",
    )
    agent_id = await spawn(rest, "make a file")
    assert await wait(rest, agent_id) == {
        "status": {agent_id: {"completed": "all done"}},
        "timed_out": False,
    }
    assert (workspace / "by_child").read_text() == "made\n"
    closed = await rest.call("close_agent", {"id": agent_id})
    assert json.loads(closed.text) == {"status": {"completed": "all done"}}
    assert await wait(rest, agent_id) == {"status": {agent_id: "shutdown"}, "timed_out": False}


async def test_a_child_remembers_through_close_and_resume(parent: Make) -> None:
    seen: list[Any] = []

    def second(request: Any) -> Any:
        seen.append(request)
        return Say("again")

    rest = parent([Say("first answer")], [second])
    agent_id = await spawn(rest, "the first task")
    await wait(rest, agent_id)
    await rest.call("close_agent", {"id": agent_id})
    refused = await rest.call("send_input", {"id": agent_id, "message": "more"})
    assert refused.text.startswith(f"agent with id {agent_id} is closed")
    resumed = await rest.call("resume_agent", {"id": agent_id})
    assert json.loads(resumed.text) == {"status": {"completed": "first answer"}}
    sent = await rest.call("send_input", {"id": agent_id, "message": "the second task"})
    assert "submission_id" in json.loads(sent.text)
    found = await wait(rest, agent_id)
    assert found["status"] == {agent_id: {"completed": "again"}}
    said = json.dumps(list(seen[0].items))
    assert "the first task" in said
    assert "first answer" in said


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("spawn_agent", {"message": "  "}, "Empty message can't be sent to an agent"),
        ("spawn_agent", {"message": "x", "agent_type": "wizard"}, "unknown agent_type 'wizard'"),
        ("send_input", {"id": "nope", "message": "x"}, "invalid agent id nope"),
        ("wait", {"ids": []}, "ids must be non-empty"),
        ("wait", {"ids": [str(uuid.uuid4())], "timeout_ms": 0}, "timeout_ms must be greater"),
        ("wait", {"ids": ["x"]}, "invalid agent id x"),
        ("close_agent", {"id": str(uuid.UUID(int=7))}, f"agent with id {uuid.UUID(int=7)} not"),
        ("resume_agent", {"id": str(uuid.UUID(int=7))}, f"agent with id {uuid.UUID(int=7)} not"),
    ],
)
async def test_what_cannot_be_done_is_said(
    parent: Make, name: str, arguments: dict[str, Any], words: str
) -> None:
    output = await parent().call(name, arguments)
    assert output.failed
    assert output.text.startswith(words)


async def test_unknown_ids_are_final(parent: Make) -> None:
    stranger = str(uuid.uuid4())
    assert await wait(parent(), stranger) == {
        "status": {stranger: "not_found"},
        "timed_out": False,
    }


async def test_without_a_manager_nobody_offers_agents(workspace: Path) -> None:
    async with Toolrest(workspace) as rest:
        assert "spawn_agent" not in {tool.name for tool in rest.tools}
        output = await rest.call("spawn_agent", {"message": "x"})
        assert output.text == "collab manager unavailable"


async def test_a_limit_and_its_room(parent: Make) -> None:
    stuck = [Reply([Pause(600)])]
    rest = parent(stuck, stuck, [Say("ok")], agents__max_agents=2)
    first = await spawn(rest)
    await spawn(rest)
    full = await rest.call("spawn_agent", {"message": "third"})
    assert full.text.startswith("collab spawn failed: agent thread limit reached (max 2)")
    await rest.call("close_agent", {"id": first})
    third = await spawn(rest)
    assert (await wait(rest, third))["status"] == {third: {"completed": "ok"}}


@pytest.mark.slow
async def test_closing_a_stuck_child_is_quick(
    parent: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert subagents.CLOSE_SECONDS < 2
    for module in ("threads", "call.turn", "call.deadlines"):
        monkeypatch.setattr(f"toolrest.gate.{module}.GRACE_SECONDS", 900)
    entered, release = asyncio.Event(), asyncio.Event()
    left: list[str] = []

    @tool(effects=Effects.none())
    async def stubborn() -> str:
        """Refuse to end for a while."""
        entered.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        left.append("late")
        return ""

    rest = parent([Call("stubborn", {}), Say("never")], tools=[stubborn])
    agent_id = await spawn(rest)
    await asyncio.wait_for(entered.wait(), 60)
    output = await rest.call("close_agent", {"id": agent_id})
    assert not left, "it was not waited for"
    release.set()
    assert json.loads(output.text) == {"status": "running"}


async def test_interrupting_turns_a_child_to_something_else(parent: Make) -> None:
    began = asyncio.Event()

    def slow(request: Any) -> Any:
        began.set()
        return Reply([Pause(600)])

    rest = parent([slow, Say("the new thing")])
    agent_id = await spawn(rest, "the old thing")
    await asyncio.wait_for(began.wait(), 60)
    await rest.call("send_input", {"id": agent_id, "message": "something else", "interrupt": True})
    assert (await wait(rest, agent_id))["status"] == {agent_id: {"completed": "the new thing"}}


async def test_a_budget_leaves_a_partial_result(parent: Make) -> None:
    endless = [[Say(f"step {n}"), Call("list_dir", {"dir_path": "."})] for n in range(9)]
    rest = parent(endless, agents__max_turns=3)
    agent_id = await spawn(rest)
    found = await wait(rest, agent_id)
    assert "max_turns" in found["status"][agent_id]["errored"]
    partial = found["partial"][agent_id]
    assert partial["last_message"] == "step 2"
    assert (partial["reason"], partial["model_requests"]) == ("budget", 3)


async def test_the_clock_of_a_child(parent: Make, clock: Clock) -> None:
    thinking = asyncio.Event()

    def late(request: Any) -> Any:
        thinking.set()
        return Reply([Pause(600)])

    first = [Say("so far"), Call("list_dir", {"dir_path": "."})]
    rest = parent([first, late], agents__max_seconds=300.0)
    agent_id = await spawn(rest)
    await asyncio.wait_for(thinking.wait(), 60)
    clock.skip(300)
    found = await wait(rest, agent_id)
    assert found["partial"][agent_id]["reason"] == "timeout"
    assert found["partial"][agent_id]["last_message"] == "so far"


async def test_questions_name_the_child(parent: Make) -> None:
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    rest = parent(
        [Call("exec_command", {"cmd": "touch x"}), Say("was refused")],
        on_ask=approve,
        approval_policy="untrusted",
    )
    agent_id = await spawn(rest, agent_type="worker")
    assert (await wait(rest, agent_id))["status"] == {agent_id: {"completed": "was refused"}}
    assert [(request.agent, request.tool) for request in asked if request.agent] == [
        ("root/worker-1", "exec_command")
    ]


async def test_general_is_the_default_role(parent: Make) -> None:
    rest = parent([Say("one")])
    agent_id = await spawn(rest, agent_type="general")
    assert (await wait(rest, agent_id))["status"] == {agent_id: {"completed": "one"}}


@pytest.mark.slow
async def test_where_nobody_is_asked_a_child_is_refused_what_its_parent_is(
    parent: Make, workspace: Path
) -> None:
    call = {"cmd": "touch made"}
    rest = parent(
        [Call("exec_command", call), Say("end")],
        on_ask="deny",
        unasked="allow",
        approval_policy="untrusted",
    )
    assert (await rest.call("exec_command", call)).failed
    agents = rest.session.agents
    await wait(rest, await agents.spawn("do it", "default"))
    assert not (workspace / "made").exists()


async def test_a_role_that_asks_cannot_leave_where_its_parent_cannot(
    parent: Make, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    call = {"cmd": f"touch {outside}", "sandbox_permissions": "require_escalated"}
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    rest = parent(
        [Call("exec_command", {**call, "justification": "why not"}), Say("end")],
        on_ask=approve,
        approval_policy="never",
        agents__roles__eager__approval_policy="on-request",
    )
    await wait(rest, await spawn(rest, agent_type="eager"))
    assert not asked
    assert not outside.exists()


async def test_commands_count_for_parent_and_children(parent: Make) -> None:
    rest = parent(
        [
            Call("exec_command", {"cmd": "true"}),
            Call("exec_command", {"cmd": "true"}),
            Say("end"),
        ],
        approval_policy="never",
        tool_security__max_shell_commands_per_session=2,
    )
    await rest.call("exec_command", {"cmd": "true"})
    agent_id = await spawn(rest)
    await wait(rest, agent_id)
    output = await rest.call("exec_command", {"cmd": "true"})
    assert "max_shell_commands_per_session" in output.text


async def test_an_explorer_cannot_write_and_a_child_has_no_agents(
    parent: Make, workspace: Path
) -> None:
    offered: list[Any] = []

    def first(request: Any) -> Any:
        offered.append(json.dumps(list(request.tools)))
        return Call("exec_command", {"cmd": "echo x > written"})

    rest = parent([first, Say("could not")], approval_policy="never")
    agent_id = await spawn(rest, agent_type="explorer")
    await wait(rest, agent_id)
    assert not (workspace / "written").exists()
    assert "spawn_agent" not in offered[0]


async def test_a_child_obeys_the_mode_of_its_parent(parent: Make, workspace: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: by_child\n+x\n*** End Patch"
    rest = parent(
        [Call("apply_patch", {"input": patch}), Say("could not")],
        [Call("apply_patch", {"input": patch}), Say("done")],
        approval_policy="never",
    )
    for mode, made in (("read-only", False), ("auto", True)):
        rest.session.mode.name = mode  # type: ignore[assignment]
        await wait(rest, await spawn(rest))
        assert (workspace / "by_child").exists() == made


@pytest.mark.slow
async def test_fifty_at_once(parent: Make) -> None:
    count = 50
    rest = parent(
        *([Call("list_dir", {"dir_path": "."}), Say("seen")] for _ in range(count)),
        agents__max_agents=count,
    )
    ids = await asyncio.gather(*(spawn(rest) for _ in range(count)))
    for agent_id in ids:
        assert (await wait(rest, agent_id))["status"] == {agent_id: {"completed": "seen"}}


MODES = ["read-only", "workspace-write", "danger-full-access"]
POLICIES = ["untrusted", "on-failure", "on-request", "never", "auto", "strict", "dangerous"]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("exec_command", {"cmd": "echo x > inside"}),
    ("exec_command", {"cmd": "ls"}),
    ("exec_command", {"cmd": "rm -rf /"}),
    ("read_file", {"file_path": "~/.ssh/id_rsa"}),
    ("write_file", {"path": "inside", "content": "x"}),
    ("list_dir", {"dir_path": "."}),
]


@given(
    sandbox=st.sampled_from(MODES),
    policy=st.sampled_from(POLICIES),
    own_sandbox=st.sampled_from([None, *MODES]),
    own_policy=st.sampled_from([None, *POLICIES]),
    tools=st.sampled_from(
        [None, ("read_file",), ("*",), ("exec_*", "l*"), ("exec_command",), ("f*",), ("files",)]
    ),
    own_tools=st.sampled_from(
        [None, ("*",), ("exec_command", "list_dir"), ("e*c_*", "r*"), ("files",)]
    ),
    off=st.sampled_from([(), ("exec_command",), ("*_file",)]),
)
def test_no_role_widens_anything(
    sandbox: str,
    policy: str,
    own_sandbox: str | None,
    own_policy: str | None,
    tools: tuple[str, ...] | None,
    own_tools: tuple[str, ...] | None,
    off: tuple[str, ...],
) -> None:
    from toolrest.gate.tool.registry import LazyTool
    from toolrest.gate.tool.tool import Tool
    from toolrest.tools.catalog import is_on

    given = {
        "sandbox_mode": sandbox,
        "approval_policy": policy,
        "tools.enabled": list(tools) if tools else None,
        "tools.disabled": list(off),
    }
    config = default_config({key: value for key, value in given.items() if value is not None})
    role = Role("r", "", sandbox_mode=own_sandbox, approval_policy=own_policy, enabled=own_tools)
    child = narrowed(config, role).value
    assert MODES.index(child.sandbox_mode) <= MODES.index(sandbox)
    for name in ("exec_command", "read_file", "list_dir", "write_file", "shell", "e1c_x", "rx"):
        tool = LazyTool(name, "read", Tool)
        if is_on(tool, child.tools):
            assert is_on(tool, config.value.tools), name


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("policy", ["never", "on-request", "strict"])
@pytest.mark.parametrize("sandbox", MODES)
async def test_no_child_call_runs_that_the_ceiling_denies(
    parent: Make, policy: str, sandbox: str
) -> None:
    """What the parent is refused, its child is refused, whatever role it has."""
    seen: list[list[str]] = []

    def collect(request: Any) -> Any:
        outputs = [item for item in request.items if item["type"] == "function_call_output"]
        seen.append([json.dumps(item["output"]) for item in outputs])
        return Say("end")

    script: Script = [[Call(name, args) for name, args in CALLS], collect]
    widest = {"sandbox_mode": "danger-full-access", "approval_policy": "never"}
    rest = parent(
        script, approval_policy=policy, sandbox_mode=sandbox, agents__roles={"wide": widest}
    )
    own: list[ToolOutput] = [await rest.call(name, args) for name, args in CALLS]
    agent_id = await spawn(rest, agent_type="wide") if policy != "strict" else ""
    if not agent_id:
        return
    await wait(rest, agent_id)
    for mine, childs, (name, args) in zip(own, seen[0], CALLS, strict=True):
        refused = mine.failure is not None and mine.failure.kind in (
            "policy_denied",
            "approval_denied",
        )
        if refused:
            assert json.dumps(mine.text)[1:60] in childs, (name, args, childs)


async def test_the_users_hooks_hold_for_a_childs_calls(parent: Make, workspace: Path) -> None:
    stop = [{"command": ["/bin/sh", "-c", "echo not today >&2; exit 2"], "matcher": "Bash"}]
    rest = parent(
        [Call("exec_command", {"cmd": "touch by_child"}), Say("could not")],
        approval_policy="never",
        hooks__PreToolUse=stop,
    )
    agent_id = await spawn(rest, "make a file")
    await wait(rest, agent_id)
    assert not (workspace / "by_child").exists()


OWN_TOOL = """
from toolrest import tool

@tool
def lookup(q: str) -> str:
    "Look up."
    return q
"""


def add_own_tool(home: Path) -> None:
    (home / "tools").mkdir(0o700, parents=True)
    (home / "tools" / "mine.py").write_text(OWN_TOOL)


async def test_settings_that_name_a_tool_of_the_users_home(
    workspace: Path, toolrest_home: Path
) -> None:
    """Failed before: the child did not have the parent's tools yet when it checked the name."""
    add_own_tool(toolrest_home)
    (toolrest_home / "config.toml").write_text('[tools]\ndisabled = ["lookup"]\n')
    config = load(workspace=workspace)
    rest = Toolrest(workspace, config=config, on_ask="deny")
    agents = delegate(rest, lambda _: ScriptedModel(["done"]), environ={"PATH": "/usr/bin:/bin"})
    async with Conversation(rest, ScriptedModel([]), agents=agents):
        await spawn(rest)


async def test_all_built_in_tools_are_not_those_of_the_users_home(
    workspace: Path, toolrest_home: Path
) -> None:
    """Failed before: `tools=["all"]` offered them."""
    add_own_tool(toolrest_home)
    for named, offered in ((["all"], False), (["lookup"], True), (["user"], True), (None, True)):
        async with Toolrest(workspace, config=load(workspace=workspace), tools=named) as rest:
            assert ("lookup" in {tool.name for tool in rest.tools}) == offered, named


def test_a_role_may_name_a_model_with_its_provider() -> None:
    config = default_config({"model": "openai:gpt-5.5"})
    child = narrowed(config, Role("x", "", model="ollama:qwen3:8b"))
    assert (child.value.model_provider, child.value.model) == ("ollama", "qwen3:8b")
    assert narrowed(config, Role("x", "")).value.model == "gpt-5.5"
    with pytest.raises(ConfigError, match="did you mean anthropic:claude-5"):
        narrowed(config, Role("x", "", model="antropic:claude-5"))
