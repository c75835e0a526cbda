"""A session that a test ends with SIGKILL: argv is a workspace and the command lines to run."""

from __future__ import annotations

import asyncio
import os
import sys

from toolrest import Toolrest


async def main(workspace: str, lines: list[str]) -> None:
    settings = {"checkpoints": {"enabled": False}}
    async with Toolrest(workspace, sandbox_mode="workspace-write", settings=settings) as rest:
        for number, line in enumerate(lines):
            arguments = {"cmd": line, "login": False, "yield_time_ms": 30_000}
            output = await rest.call("exec_command", arguments)
            say(f"{number} {output.text}")
        say("done")
        await asyncio.to_thread(sys.stdin.read)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.chdir("/")
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
