"""Runs outside the sandbox, as a user of the test's choice: one session, command after command.

argv: a JSON object with the policy's values, `backend`, and `commands`; prints one result each.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.policy import SandboxPolicy


async def run(owner: Owner, command: Command) -> dict[str, Any]:
    child = await owner.start(command, merge=True)
    with os.fdopen(child.outputs[0], "rb") as stream:
        reading = asyncio.create_task(asyncio.to_thread(stream.read))
        ended = await child.wait()
        await child.kill()
        text = (await reading).decode(errors="replace")
    return {"text": text, "code": ended.exit_code if ended else None}


async def session(wish: dict[str, Any]) -> list[dict[str, Any]]:
    backend, registry = wish.pop("backend"), wish.pop("registry")
    commands, env, cwd = wish.pop("commands"), wish.pop("env"), wish.pop("cwd", None)
    policy = SandboxPolicy.build(**wish)
    sandbox = SessionSandbox(policy, backend=backend, registry=registry)
    results: list[dict[str, Any]] = []
    owner = Owner()
    try:
        for argv in commands:
            command = Command(tuple(argv), cwd or policy.workspace, env)
            confined = sandbox.confine(command, late=True)
            try:
                results.append({"backend": confined.backend} | await run(owner, confined.command))
            finally:
                confined.release()
    except SandboxUnavailable as error:
        results.append({"refused": str(error)})
    finally:
        await owner.aclose()
    return results


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(session(json.loads(sys.argv[1])))))
