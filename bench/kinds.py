"""What each kind of sandbox costs: the first command of a session, and every further one.

    python bench/kinds.py [CALLS] [--plot docs/kinds.svg]

In one run, in turns: each round runs one command in each kind that this machine has. The kinds and
what they need are those of the conformance suite (tests/sandbox/kinds/kinds.py); for containers
`podman run` for each command is measured beside `exec` in the session's container.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.sandbox.kinds.kinds import FORCED, KINDS, Missing, furnish

from toolrest.agent.setup.runner import standalone_runner
from toolrest.config.loader import load
from toolrest.running.runner import Runner

Row = tuple[str, float, float]
COMMAND = ("/bin/sh", "-c", "exit 0")


def opened(name: str, settings: dict[str, Any], base: str) -> Runner:
    workspace, home = os.path.join(base, name), os.path.join(base, f"{name}-home")
    os.mkdir(workspace)
    furnish(name, Path(home))
    env = {**os.environ, "TOOLREST_HOME": home}
    flags = {"sandbox_mode": "workspace-write", **settings}
    config = load(workspace=workspace, home=home, flags=flags, env=env)
    return standalone_runner(config, env, backend=FORCED.get(name))


async def timed(runner: Runner) -> float:
    began = time.perf_counter()
    done = await runner.run(COMMAND, runner.files.cwd, seconds=60, outside=False)
    if done.result.exit_code != 0:
        raise RuntimeError(done.result.stderr or done.result.error)
    return (time.perf_counter() - began) * 1000


def cold_run(options: dict[str, Any]) -> float:
    argv = [options["engine"], *options["engine_args"], "run", "--rm", "--network", "none"]
    began = time.perf_counter()
    subprocess.run([*argv, *options["run_args"], options["image"], *COMMAND], check=True)
    return (time.perf_counter() - began) * 1000


async def measure(calls: int) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
        runners: dict[str, Runner] = {}
        first: dict[str, float] = {}
        times: dict[str, list[float]] = {}
        engine: dict[str, Any] | None = None
        for name, chosen in KINDS.items():
            try:
                settings = chosen()
                runners[name] = opened(name, settings, base)
                first[name] = await timed(runners[name])
                times[name] = []
                engine = settings["sandbox"] if name == "docker" else engine
            except Missing as error:
                print(f"{name}: not here: {error}")
        for _ in range(calls):
            for name, runner in runners.items():
                times[name].append(await timed(runner))
        for name, runner in runners.items():
            rows.append((name, first[name], statistics.median(times[name])))
            await runner.aclose()
        if engine is not None:
            cold = [cold_run(engine) for _ in range(min(calls, 10))]
            rows.append(("docker, run each time", cold[0], statistics.median(cold)))
    return rows


def plot(rows: list[Row]) -> str:
    """Bars on a logarithmic scale, as an SVG."""
    from math import log10

    height, width, left = 26 * len(rows) + 50, 640, 150

    def x(ms: float) -> float:
        return left + (width - left - 70) * max(log10(max(ms, 1)) / 4, 0.004)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11">',
        '<text x="4" y="14">ms, logarithmic; light: a session\'s first command,'
        " dark: every further one</text>",
    ]
    for number, (name, start, each) in enumerate(rows):
        y = 28 + 26 * number
        parts.append(f'<text x="4" y="{y + 13}">{name}</text>')
        for top, ms, colour in ((y, start, "#9ecae1"), (y + 9, each, "#3182bd")):
            parts.append(
                f'<rect x="{left}" y="{top}" width="{x(ms) - left:.0f}" height="8"'
                f' fill="{colour}"/><text x="{x(ms) + 4:.0f}" y="{top + 8}" font-size="9">'
                f"{ms:.0f}</text>"
            )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    rows = asyncio.run(measure(numbers[0] if numbers else 20))
    print(f"{'':24}{'first':>8}{'each':>8}  ms")
    for name, start, each in rows:
        print(f"{name:24}{start:8.0f}{each:8.1f}")
    if "--plot" in sys.argv:
        with open(sys.argv[sys.argv.index("--plot") + 1], "w", encoding="utf-8") as file:
            file.write(plot(rows))


if __name__ == "__main__":
    main()
