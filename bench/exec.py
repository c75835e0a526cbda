"""ms per exec_command through the whole gate, against starting the same program directly.

In one run, in turns: the gate sandboxed and not, `subprocess.run` of the same argv, and bubblewrap
with the very arguments that the sandbox uses.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

CALLS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
LINE = "true"
FD_OPTIONS = ("--seccomp", "--args", "--file", "--bind-data", "--ro-bind-data")


def median_ms(values: list[float]) -> float:
    return statistics.median(values) * 1000


async def main() -> None:
    from toolrest import Toolrest
    from toolrest.process.command import Command

    with tempfile.TemporaryDirectory() as base:
        workspace = os.path.join(base, "work")
        os.mkdir(workspace)
        env = {**os.environ, "TOOLREST_HOME": os.path.join(base, "home")}

        def session(mode: str) -> Toolrest:
            return Toolrest(workspace, sandbox_mode=mode, env=env, model="bench")

        async with session("workspace-write") as inside, session("danger-full-access") as outside:
            argv = ["/bin/bash", "-c", LINE]
            numbers = iter(range(10**9))

            async def call(rest: Toolrest) -> None:
                # A comment makes each call different: a loop of the same one would be stopped.
                arguments = {"cmd": f"{LINE} # {next(numbers)}", "login": False, "shell": "bash"}
                output = await rest.call("exec_command", arguments)
                assert "exited with code 0" in output.text, output.text

            await call(inside)
            await call(outside)
            runner: Any = inside._gate.services.runner
            variables, _, _ = runner.environment(unified=True)
            confined = runner.confine(Command(tuple(argv), workspace, variables), outside=False)
            seen: dict[str, list[float]] = {}

            async def timed(name: str, work: Any) -> None:
                start = time.perf_counter()
                result = work()
                if asyncio.iscoroutine(result):
                    await result
                seen.setdefault(name, []).append(time.perf_counter() - start)

            def plain() -> None:
                subprocess.run(argv, capture_output=True, check=True, stdin=subprocess.DEVNULL)

            def bare() -> None:
                run_bare(confined.command)

            for _ in range(CALLS):
                await timed("subprocess.run", plain)
                await timed("exec_command, no sandbox", lambda: call(outside))
                await timed("bwrap, same arguments", bare)
                await timed("exec_command, sandboxed", lambda: call(inside))
            confined.release()
    report({name: median_ms(values) for name, values in seen.items()})


def run_bare(command: Any) -> None:
    """The launcher as it is; its memory files get whatever descriptors are free here."""
    argv = list(command.argv)
    fds = []
    for number, content in command.files:
        fd = os.memfd_create("bench")
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        fds.append(fd)
        for index, word in enumerate(argv[1:], 1):
            if word == str(number) and argv[index - 1] in FD_OPTIONS:
                argv[index] = str(fd)
    try:
        subprocess.run(
            argv, env=dict(command.env), cwd=command.cwd, pass_fds=fds,
            capture_output=True, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        for fd in fds:
            os.close(fd)


def report(found: dict[str, float]) -> None:
    print(f"ms per command, median of {CALLS}")
    for name, base in (
        ("subprocess.run", None),
        ("exec_command, no sandbox", "subprocess.run"),
        ("bwrap, same arguments", None),
        ("exec_command, sandboxed", "bwrap, same arguments"),
    ):
        extra = ""
        if base is not None:
            more = found[name] - found[base]
            extra = f"   +{more:.2f} ms, {found[name] / found[base]:.2f}x {base}"
        print(f"  {name:<26} {found[name]:7.2f}{extra}")


if __name__ == "__main__":
    asyncio.run(main())
