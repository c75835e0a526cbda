"""The examples run as they are, ours on three wires, the others' where they are installed."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolrest import Agent
from toolrest.testing import Call, ScriptedModel, ScriptedServer
from toolrest.testing.server import ServerWire

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MODEL = "openai:gpt-5.5"
WIRES: dict[ServerWire, str] = {
    "responses": MODEL,
    "chat": "ollama:qwen3:8b",
    "anthropic": "anthropic:claude-sonnet-4-5",
}
OTHERS = {"with_pydantic_ai": "pydantic_ai", "with_openai_agents": "agents"}
CITIES = [
    {"name": "Oslo", "country": "Norway", "people": 700000},
    {"name": "Bergen", "country": "Norway", "people": 290000},
]
OSLO = Call("weather", {"city": "Oslo"})
REFUND = Call("refund", {"order": "A7", "amount": 20})

# The script of the model, what is typed, and what is printed.
RUNS: dict[str, tuple[list[Any], str, str]] = {
    "chat": ([OSLO, "Yes.", Call("weather", {"city": "Bergen"}), "Always."], "", "Yes.\nAlways.\n"),
    "streaming": ([OSLO, "Yes."], "", r"\[(weather: )?rain in Oslo\]\nYes\.\n"),
    "approval": ([REFUND, "Done."], "y\n", r".*refund .*A7.* \[y/n\] Done\.\n"),
}


def run(
    path: Path, server: ScriptedServer, folder: Path, typed: str = "", model: str = MODEL
) -> subprocess.CompletedProcess[str]:
    """Run an example as a program; only the model's name is another one."""
    program = folder / path.name
    program.write_text(path.read_text().replace(MODEL, model))
    host = server.url.removesuffix("/v1")
    env = {
        **os.environ,
        "OPENAI_BASE_URL": server.url,
        "ANTHROPIC_BASE_URL": host,
        "OLLAMA_HOST": host,
        "OPENAI_API_KEY": "sk-none-0123456789",
        "ANTHROPIC_API_KEY": "sk-none-0123456789",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }
    return subprocess.run(
        [sys.executable, str(program)],
        input=typed,
        capture_output=True,
        text=True,
        env=env,
        cwd=folder,
        timeout=100,
    )


def last(server: ScriptedServer) -> dict[str, Any]:
    """What the model was asked last; clients may also ask for the list of models."""
    return [request.body for request in server.requests if request.body][-1]


def check(path: Path, folder: Path, model: str = MODEL) -> None:
    script, typed, printed = RUNS[path.stem]
    with ScriptedServer(list(script)) as server:
        done = run(path, server, folder, typed, model)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(printed, done.stdout, re.DOTALL), done.stdout
    assert not server.refused


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", RUNS)
def test_ours(tmp_path: Path, name: str, wire: ServerWire) -> None:
    check(EXAMPLES / f"{name}.py", tmp_path, WIRES[wire])


STOCK = {"item": "lamp"}
PRINTED = {"typed_output": "Oslo 700000\nBergen 290000\n", "sub_agent": "Yes, you can.\n"}


@pytest.mark.parametrize("wire", WIRES)
def test_typed_output(tmp_path: Path, wire: ServerWire) -> None:
    wrong = {"result": [{"name": "Oslo"}]}
    with ScriptedServer([json.dumps(wrong), json.dumps({"result": CITIES})]) as server:
        done = run(EXAMPLES / "typed_output.py", server, tmp_path, model=WIRES[wire])
    assert done.stdout == PRINTED["typed_output"], done.stderr
    assert "Field required" in json.dumps(last(server))


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
def test_a_sub_agent(tmp_path: Path, wire: ServerWire) -> None:
    script: list[Any] = [
        Call("clerk", {"prompt": "Lamps?"}),
        Call("stock", STOCK),
        "3.",
        "Yes, you can.",
    ]
    with ScriptedServer(script) as server:
        done = run(EXAMPLES / "sub_agent.py", server, tmp_path, model=WIRES[wire])
    assert done.stdout == PRINTED["sub_agent"], done.stderr


@pytest.mark.needs("namespaces")  # an allow list of hosts needs a network of its own
def test_a_sandboxed_command(tmp_path: Path) -> None:
    with ScriptedServer([]) as server:
        done = run(EXAMPLES / "sandboxed_command.py", server, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made-here").exists()
    assert not Path("/etc/not-here").exists()


@pytest.mark.slow
def test_the_names_of_0_2(tmp_path: Path) -> None:
    """Programs for 0.2 run unchanged; those in `examples` are the same as then."""
    program = str(ROOT / "tests/data/examples-0.2/agent_session.py")
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, cwd=tmp_path, timeout=100
    )
    assert done.returncode == 0, done.stderr
    first, *events = done.stdout.splitlines()
    assert first == "completed It is 42. 1"
    assert (events[0], events[-1]) == ("turn_started", "task_complete")
    warned = [sys.executable, "-W", "error::DeprecationWarning", program]
    done = subprocess.run(warned, capture_output=True, text=True, cwd=tmp_path, timeout=100)
    assert "toolrest.AgentSession is Conversation now" in done.stderr


async def test_the_attributes_of_0_2(tmp_path: Path) -> None:
    async with Agent(ScriptedModel(["Hello."])).session() as chat:
        await chat.run("Hi")
        with pytest.warns(DeprecationWarning, match="is the Conversation itself now"):
            session = chat.session
        with pytest.warns(DeprecationWarning, match="is Conversation.id now"):
            assert session.thread_id == chat.id
        assert [item["type"] for item in session.history] == ["message"] * len(chat.history)


def test_a_test_of_a_tool() -> None:
    _load(EXAMPLES / "test_of_a_tool.py").test_weather()


@pytest.mark.slow
@pytest.mark.parametrize("yes", [True, False])
@pytest.mark.parametrize("wire", WIRES)
def test_deferred_approval_over_http(tmp_path: Path, wire: ServerWire, yes: bool) -> None:
    text = deferred(tmp_path, EXAMPLES / "deferred_approval.py", WIRES[wire], yes=yes)
    assert text == "Settled."


def deferred(folder: Path, source: Path, model: str = MODEL, *, yes: bool) -> str:
    """Ask, then answer; each request is served by a process of its own."""
    served = folder / "served.py"
    served.write_text(source.read_text() + SERVED)
    with ScriptedServer([REFUND, "Settled."]) as server:
        asked = run(served, server, folder, "/ask?prompt=Refund\n", model)
        assert asked.returncode == 0, asked.stderr
        first = json.loads(asked.stdout)
        [waiting] = first["pending"]
        assert (waiting["tool"], json.loads(waiting["arguments"])["amount"]) == ("refund", 20)
        path = f"/approve/{first['session']}/{waiting['id']}?yes={str(yes).lower()}\n"
        done = run(served, server, folder, path, model)
    assert done.returncode == 0, done.stderr
    answered = json.loads(done.stdout)
    assert answered["pending"] == []
    assert ("refunded 20 for A7" in json.dumps(last(server))) is yes
    text: str = answered["text"]
    return text


SERVED = """
import asyncio, json, sys

async def post(path):
    sent, scope = [], {"type": "http", "method": "POST", "headers": [], "http_version": "1.1"}
    path, _, query = path.partition("?")
    scope |= {"path": path, "raw_path": path.encode(), "query_string": query.encode()}
    scope |= {"scheme": "http", "server": ("here", 80), "client": ("here", 1), "root_path": ""}
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}
    async def send(message):
        sent.append(message.get("body", b""))
    await app(scope, receive, send)
    print(b"".join(sent).decode())

asyncio.run(post(sys.stdin.readline().strip()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_loops_with_the_vendors_packages(tmp_path: Path, name: str) -> None:
    with ScriptedServer([OSLO, "Yes."]) as server:
        done = run(EXAMPLES / "loops" / f"{name}.py", server, tmp_path)
    assert done.stdout == "Yes.\n", done.stderr
    assert "rain in Oslo" in json.dumps(last(server))


def installed() -> list[Path]:
    """The folders of the others that can run here; none does in our own environment."""
    found = (folder for folder, package in OTHERS.items() if importlib.util.find_spec(package))
    return [EXAMPLES / "others" / folder for folder in found]


def test_the_others_do_the_same(tmp_path: Path) -> None:
    for folder in installed():
        for name in RUNS:
            check(folder / f"{name}.py", tmp_path)
        for name, printed in PRINTED.items():
            with ScriptedServer([partial(reply, name)] * 8) as server:
                done = run(folder / f"{name}.py", server, tmp_path)
            assert done.stdout == printed, done.stderr
        _load(folder / "test_of_a_tool.py").test_weather()
        text = deferred(tmp_path, folder / "deferred_approval.py", yes=True)
        assert text == "Settled."


def reply(task: str, body: dict[str, Any]) -> Any:
    """The reply to a request of a task; each library asks in its own way."""
    said = json.dumps(body)
    if task == "typed_output":
        if '"final_result"' in said:  # pydantic-ai asks for a call
            return Call("final_result", {"response": CITIES})
        return json.dumps({"response": CITIES})
    if "How many of an item" in said:
        return "There are 3." if "call_output" in said else Call("stock", STOCK)
    if "There are 3." in said:
        return "Yes, you can."
    if "ask_clerk" in said:
        return Call("ask_clerk", {"prompt": "Are there lamps?"})
    return Call("clerk", {"input": "Are there lamps?"})


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The table


def lines(path: Path) -> int:
    """Lines that are not blank, without docstrings."""
    text = path.read_text()
    left = {number for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(left)


def test_the_table_of_lines_is_true() -> None:
    rows = re.findall(
        r"^\| \[(\w+)\.py\]\(\w+\.py\) \|.*?\| (\d+) \| (\d+|–) \| (\d+|–) \|$",
        (EXAMPLES / "README.md").read_text(),
        re.MULTILINE,
    )
    assert {row[0] for row in rows} == {path.stem for path in EXAMPLES.glob("*.py")}
    for name, *counts in rows:
        files = [EXAMPLES, *(EXAMPLES / "others" / folder for folder in OTHERS)]
        found = [folder / f"{name}.py" for folder in files]
        assert counts == [str(lines(path)) if path.exists() else "–" for path in found], name
