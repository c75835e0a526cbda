"""ms per exec_command through the whole gate, against starting the same program directly.

In one run, block by block in turns: the gate sandboxed and not, `subprocess.run` of the same
argv, and bubblewrap with the very arguments that the sandbox uses. Every start has an argument of
its own, on both sides: a loop of the same call would be stopped. The command is a builtin that is
not known to only look, so that nothing is spared it. What saving the workspace before every turn
costs is a row of its own, here for an empty one; bench/checkpoint.py has full ones.

    python bench/exec.py [CALLS [BLOCK]]

Blocks have a pause between them: what one row leaves to be cleaned up, a mount namespace or what
has yet to go to disk, is not for the next one to pay. A BLOCK as large as CALLS has none inside.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from results import record
from sandbox import bare as start

CALLS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
BLOCK = int(sys.argv[2]) if len(sys.argv) > 2 else 10
PAUSE = 0.15
TARGET = 1.5


async def main() -> None:
    from toolrest import Toolrest
    from toolrest.process.command import Command

    with tempfile.TemporaryDirectory() as base:
        workspace, other = os.path.join(base, "work"), os.path.join(base, "bare")
        os.mkdir(workspace)
        os.mkdir(other)
        env = {**os.environ, "TOOLREST_HOME": os.path.join(base, "home")}

        def session(mode: str, *, place: str = workspace, saves: bool = False) -> Toolrest:
            settings = {"checkpoints": {"enabled": saves}}
            return Toolrest(
                place,
                sandbox_mode=mode,
                env=env,
                model="bench",
                settings=settings,
                home=env["TOOLREST_HOME"],
            )

        async with (
            session("workspace-write") as inside,
            session("danger-full-access") as outside,
            session("workspace-write", saves=True) as saving,
            session("workspace-write", place=other) as lent,
        ):
            numbers = iter(range(10**9))

            async def call(rest: Toolrest) -> None:
                arguments = {"cmd": f"set {next(numbers)}", "login": False, "shell": "bash"}
                output = await rest.call("exec_command", arguments)
                assert "exited with code 0" in output.text, output.text

            for rest in (inside, outside, saving, lent):
                await call(rest)
            # From a session of its own, in a folder of its own: what the sandbox prepares for
            # these arguments stays prepared, and would save the others the work.
            runner: Any = lent.session.runner.made
            variables, _, _ = runner.environment(unified=True)
            shell = runner.shells.named("bash")

            def argv() -> tuple[str, ...]:
                return tuple(shell.argv(f"set {next(numbers)}", login=False))

            command = Command(argv(), other, variables)
            confined = await runner.enclosure.wrap(command, outside=False)

            async def plain() -> None:
                subprocess.run(
                    argv(), env=variables, cwd=workspace,
                    capture_output=True, check=True, stdin=subprocess.DEVNULL,
                )  # fmt: skip

            async def bare() -> None:
                last = (*confined.command.argv[:-1], f"set {next(numbers)}")
                await start(replace(confined.command, argv=last))()

            rows: dict[str, Callable[[], Awaitable[None]]] = {
                "subprocess.run": plain,
                "exec_command, no sandbox": lambda: call(outside),
                "bwrap, same arguments": bare,
                "exec_command, sandboxed": lambda: call(inside),
                "the same with a checkpoint": lambda: call(saving),
            }
            seen = await measure(rows)
            confined.release()
    report(seen)


async def measure(rows: dict[str, Callable[[], Awaitable[None]]]) -> dict[str, list[float]]:
    seen: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(max(CALLS // BLOCK, 1)):
        for name, work in rows.items():
            await asyncio.sleep(PAUSE)
            for _ in range(BLOCK):
                start = time.perf_counter()
                await work()
                seen[name].append((time.perf_counter() - start) * 1000)
    return seen


def report(seen: dict[str, list[float]]) -> None:
    record(
        "exec",
        "One command",
        "ms",
        {
            name.replace("exec_command", "toolrest"): statistics.median(values)
            for name, values in seen.items()
        },
        "`true`-like commands through the whole gate, beside starting the same program directly. "
        "`bench/exec.py`.",
    )
    print(f"ms per command, {CALLS} calls each, in turns of {BLOCK}")
    print(f"  {'':<26} {'median':>7} {'p10':>7} {'min':>7}")
    for name, base in (
        ("subprocess.run", None),
        ("exec_command, no sandbox", "subprocess.run"),
        ("bwrap, same arguments", None),
        ("exec_command, sandboxed", "bwrap, same arguments"),
        ("the same with a checkpoint", "bwrap, same arguments"),
    ):
        ours = summary(seen[name])
        extra = ""
        if base is not None:
            more = [one - other for one, other in zip(ours, summary(seen[base]), strict=True)]
            words = " ".join(f"+{value:.2f}" for value in more)
            extra = f"   {words} over {base} (target +{TARGET})"
        print(f"  {name:<26} " + " ".join(f"{value:7.2f}" for value in ours) + extra)


def summary(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[len(ordered) // 10], ordered[0]


if __name__ == "__main__":
    asyncio.run(main())
