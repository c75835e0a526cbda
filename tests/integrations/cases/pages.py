"""The programs of docs/integrations.md, run as they stand there."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import Any

from tests.docs.blocks import fragment
from tests.integrations.cases.common import Place

from toolrest.testing import Call, ScriptedServer


def reply(place: Place, body: dict[str, Any]) -> Call | str:
    """An ordinary call, then a dangerous one, then the answer: as many as have their outputs."""
    said = str(body["input"] if "input" in body else body["messages"])
    replies = (
        Call("exec_command", {"cmd": place.ordinary()}, "c1"),
        Call("exec_command", place.dangerous(), "c2"),
        "The tests pass.",
    )
    return replies[said.count("'function_call_output'") + said.count("'role': 'tool'")]


def run_program(name: str, prints: str, yes: str = "y", no: str = "n") -> None:
    """Run the page's program of this name with either answer; both times it prints this.

    The model is a scripted server. What is asserted: its ordinary call ran in the sandbox, the
    dangerous one only if it was approved.
    """
    program = fragment("docs/integrations.md", f"# {name}\n")
    for answer in (yes, no):
        place = Place()
        script = place.root / name
        script.write_text(program)
        with ScriptedServer([partial(reply, place)] * 9) as server:
            done = subprocess.run(
                [sys.executable, script],
                cwd=place.workspace,
                input=f"{answer}\n",
                capture_output=True,
                text=True,
                env={
                    **os.environ,
                    "OPENAI_BASE_URL": server.url,
                    "OPENAI_API_KEY": "sk-none-0123456789",
                    "OPENAI_AGENTS_DISABLE_TRACING": "1",
                    "INSPECT_LOG_DIR": str(place.root),
                },
            )
        assert done.returncode == 0, done.stdout + done.stderr
        place.was_confined()
        assert place.touched() is (answer == yes), done.stdout + done.stderr
        assert prints in done.stdout, done.stdout + done.stderr
