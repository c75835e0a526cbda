"""Runs sessions that are meant to be killed: one fork for each line on standard input.

A line is JSON: home, workspace, log, resume (a rollout or null). The child's pid is printed, and
a line when it has ended. Every call of the tool `effect` appends its own id to the log.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import Any

from toolrest import Context, tool
from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.testing import Call, Say, ScriptedModel


def say(words: object) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def script(count: int) -> Any:
    for number in range(count):
        yield [
            Say(f"step {number}"),
            Call("effect", {}),
            Call("update_plan", {"plan": [{"step": "go", "status": "pending"}]}),
            Call("effect", {}),
        ]
    yield "done"


async def session(job: dict[str, Any]) -> None:
    @tool
    def effect(ctx: Context) -> str:
        """Leave a trace that cannot be taken back."""
        log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(log, f"{ctx.call_id}\n".encode())
        os.close(log)
        return "done"

    config = default_config(
        {"tool_security.audit_log_enabled": False, "on_ask": "allow"},
        workspace=job["workspace"],
        home=job["home"],
    )
    agent = open_session(config, ScriptedModel(script(40)), resume=job["resume"])
    agent.rest.add_tool(effect)
    async with agent:
        if not job.get("quiet"):
            say("running")
        await agent.run("go")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # Once here, so that no fork has to load anything.
        log = os.path.join(folder, "log")
        job = {"home": folder, "workspace": folder, "log": log, "resume": None}
        asyncio.run(session(job | {"quiet": True}))
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(session(job))
            finally:
                os._exit(0)
        say(pid)
        os.waitpid(pid, 0)
        say("ended")


if __name__ == "__main__":
    main()
