"""A session that a test ends with SIGKILL: argv is a workspace and the command lines to run.

With `fork` as the first line it forks while a command runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from toolrest import Toolrest

FORK = "fork"


async def main(workspace: str, lines: list[str]) -> None:
    settings = {"checkpoints": {"enabled": False}}
    home = os.environ["TOOLREST_HOME"]
    async with Toolrest(
        workspace, home=home, sandbox_mode="workspace-write", settings=settings
    ) as rest:
        if lines[0] == FORK:
            asyncio.get_running_loop().create_task(forked(workspace))
            del lines[0]
        for number, line in enumerate(lines):
            arguments = {"cmd": line, "login": False, "yield_time_ms": 30_000}
            output = await rest.call("exec_command", arguments)
            say(f"{number} {output.text}")
        say("done")
        await asyncio.to_thread(sys.stdin.read)


async def forked(workspace: str) -> None:
    """As soon as there is a placeholder, a copy of this process that outlives it for a while."""
    while not os.path.lexists(os.path.join(workspace, ".vscode")):
        await asyncio.sleep(0)
    if os.fork() == 0:
        time.sleep(1)
        os._exit(0)
    say("forked")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.chdir("/")
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
