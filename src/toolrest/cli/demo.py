"""`toolrest demo`: a scripted model's calls through the real gate, as a timeline."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import textwrap
from typing import Any

import click

from toolrest.events import (
    ApprovalRequested,
    Event,
    PlanUpdate,
    ToolCallBegin,
    ToolCallDecision,
    ToolCallEnd,
)
from toolrest.policy.display import display_safe

GREETER = '''\
# greets people
import sys


def greet(name):
    """Say hello."""
    if not name:
        raise ValueError("who?")
    return f"hello {name}"


print(greet(sys.argv[1]))
'''


PATCH = """*** Begin Patch
*** Update File: greet.py
@@ def greet(name):
-    return f"hello {name}"
+    return f"good morning, {name}"
*** End Patch"""


def _command(line: str) -> str:
    return json.dumps({"cmd": line, "login": False})


def _call(number: int, name: str, arguments: str, kind: str = "function_call") -> dict[str, str]:
    field = "input" if kind == "custom_tool_call" else "arguments"
    return {"type": kind, "call_id": f"call_{number}", "name": name, field: arguments}


def _script(secret: str) -> list[tuple[str, list[dict[str, str]]]]:
    """What the model says, step by step: a line for the reader and the calls."""
    plan = {"plan": [{"step": "look around", "status": "in_progress"},
                     {"step": "explain greet.py", "status": "pending"}]}  # fmt: skip
    around = {"file_path": "greet.py", "mode": "indentation", "indentation": {"anchor_line": 8}}
    wrong = {"file_path": "greet.py", "offset": "3", "limit": None}
    return [
        ("The model writes down a plan.", [_call(1, "update_plan", json.dumps(plan))]),
        (
            "It looks around. Readers run together; the answers come back in call order.",
            [
                _call(2, "list_dir", '{"dir_path": "."}'),
                _call(3, "read_file", json.dumps(around)),
                _call(4, "count_lines", '{"path": "greet.py"}'),
            ],
        ),
        (
            "It runs the program, changes it with a patch, and runs it again, in the sandbox.",
            [
                _call(20, "exec_command", _command("python3 greet.py you")),
                _call(21, "apply_patch", json.dumps({"input": PATCH})),
                _call(22, "exec_command", _command("python3 greet.py you")),
            ],
        ),
        (
            "It tries to leave the workspace. The kernel says no, or somebody has to say yes.",
            [
                _call(23, "exec_command", _command("python3 -c \"open('/etc/demo', 'w')\"")),
                _call(24, "exec_command", _command("echo $DEMO_API_KEY; cat .env")),
                _call(25, "exec_command", _command("rm -rf $NOT_SET/*")),
            ],
        ),
        (
            "It makes mistakes. Each gets an answer it can act on.",
            [
                _call(5, "raed_file", "{}"),
                _call(6, "read_file", json.dumps(wrong)),
                _call(7, "read_file", "*** not json", "custom_tool_call"),
            ],
        ),
        (
            "It reaches for things it may not have.",
            [
                _call(8, "read_file", '{"file_path": ".env"}'),
                _call(9, "read_file", '{"file_path": "notes/../link-to-passwords"}'),
                _call(10, "read_file", '{"file_path": "/proc/self/environ"}'),
                _call(11, "deploy", '{"where": "production"}'),
                _call(12, "shout", json.dumps({"text": f"the key is {secret}"})),
            ],
        ),
        ("It prints far too much.", [_call(13, "shout", json.dumps({"text": "word " * 5000}))]),
    ]


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON lines instead.")
def command(as_json: bool) -> None:
    """Play a short scripted conversation: real tools, real gate, a temporary folder.

    Nothing of yours is read or written: the workspace and Toolrest's home are temporary.
    """
    with tempfile.TemporaryDirectory(prefix="toolrest-demo-") as folder:
        asyncio.run(_play(folder, as_json))


async def _play(folder: str, as_json: bool) -> None:
    from toolrest.agent.rest import Toolrest
    from toolrest.gate.context import Context
    from toolrest.gate.tool import tool

    timeline = Timeline()
    secret = "sk-demo-4f9a1c7be2d84e55"  # noqa: S105 - made up, to show that it does not get out
    workspace = _workspace(folder, secret)

    @tool(reads="path")
    async def count_lines(path: str, ctx: Context) -> str:
        """Count the lines of a text file."""
        return str(len((await ctx.read_text(path)).splitlines()))

    @tool(mutating=False)
    def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper() if "sk-" not in text else text

    @tool
    def deploy(where: str) -> str:
        """Deploy the project. Declares no effects, so it has to ask."""
        return f"deployed to {where}"

    own = {"TOOLREST_HOME": os.path.join(folder, "home"), "DEMO_API_KEY": secret, "HOME": folder}
    env = {"PATH": os.environ.get("PATH", os.defpath), **own}
    seen: list[Event] = []
    async with Toolrest(workspace, tools=[count_lines, shout, deploy], env=env) as rest:
        rest.subscribe(seen.append)
        for said, calls in _script(secret):
            answers = await rest.answer(calls)
            if as_json:
                _print_events(seen)
            else:
                click.secho(f"\n{said}", bold=True)
                timeline.show(seen)
                for answer in answers:
                    _print_answer(answer)
            seen.clear()
        log = rest.config.audit_folder
    if not as_json:
        _print_audit(log)


def _workspace(folder: str, secret: str) -> str:
    workspace = os.path.join(folder, "project")
    os.makedirs(os.path.join(workspace, "notes"))
    files = {"greet.py": GREETER, ".env": f"DEMO_API_KEY={secret}\n", "notes/todo.md": "- greet\n"}
    for name, text in files.items():
        with open(os.path.join(workspace, name), "w") as file:
            file.write(text)
    os.symlink("/etc/shadow", os.path.join(workspace, "link-to-passwords"))
    return workspace


class Timeline:
    """Prints events as lines, with the time since the first one."""

    def __init__(self) -> None:
        self._start: float | None = None

    def show(self, events: list[Event]) -> None:
        """One line an event."""
        for event in events:
            if self._start is None:
                self._start = event.time
            line = _line(event)
            if line is not None:
                click.echo(f"{(event.time - self._start) * 1000:7.1f} ms  {line}")


def _line(event: Event) -> str | None:
    if isinstance(event, ToolCallBegin):
        return f"{event.call_id:<8} {_safe(event.tool)} {_short(event.arguments)}"
    if isinstance(event, ToolCallDecision):
        why = f": {event.reason}" if event.reason else ""
        return _short(
            f"{event.call_id:<8} {event.verdict} by {event.rule} ({event.risk}){why}", 120
        )
    if isinstance(event, ApprovalRequested):
        return f"{event.call_id:<8} asks, and nobody is there to answer"
    if isinstance(event, PlanUpdate):
        return "plan     " + ", ".join(f"{step['step']} ({step['status']})" for step in event.plan)
    if isinstance(event, ToolCallEnd):
        result = "ok" if event.failure is None else event.failure
        return f"{event.call_id:<8} {result}, {event.bytes} bytes, {event.duration * 1000:.1f} ms"
    return None


def _safe(text: str) -> str:
    return display_safe(text)


def _short(text: str, width: int = 88) -> str:
    text = _safe(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def _visible(line: str, width: int = 150) -> str:
    """A line of output with its spaces as they are and nothing that moves the cursor."""
    line = "".join(char if char.isprintable() else display_safe(char) for char in line[:width])
    return line if len(line) < width else line[: width - 1] + "…"


def _print_events(events: list[Event]) -> None:
    for event in events:
        click.echo(json.dumps(event.to_json(), ensure_ascii=False))


def _print_answer(answer: dict[str, Any]) -> None:
    lines = str(answer["output"]).splitlines()
    if len(lines) > 8:
        lines = [*lines[:5], f"… {len(lines) - 7} more lines …", *lines[-2:]]
    body = "\n".join(_visible(line) for line in lines)
    click.secho(f"  → {answer['call_id']} ({answer['type']})", fg="cyan")
    click.echo(textwrap.indent(body, "    "))


def _print_audit(folder: str) -> None:
    from toolrest.gate.audit_read import verify

    (name,) = [name for name in os.listdir(folder) if name.endswith(".jsonl")]
    click.secho("\nThe audit log has a line for every decision and result.", bold=True)
    click.echo(f"  {name}: {verify(os.path.join(folder, name))}")
