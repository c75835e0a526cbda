"""What starting costs: importing, `--version`, a session with one tool; each by its floor.

And an agent with one tool that could send its first request, beside pydantic-ai's.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import record
from run import environment

ROUNDS = 15
HOME = tempfile.mkdtemp(prefix="toolrest-bench-")
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT["TOOLREST_HOME"] = HOME
ENVIRONMENT["OPENAI_API_KEY"] = "sk-none-0123456789"
TOOLREST = str(Path(sys.executable).parent / "toolrest")

FLOOR = "import asyncio, pydantic\nclass M(pydantic.BaseModel):\n    a: int\nM(a=1)\n"
SESSION = """
import asyncio
from toolrest import Toolrest, tool

@tool(mutating=False)
async def noop(a: int) -> str:
    "Nothing."
    return "ok"

async def main():
    async with Toolrest(".", tools=[noop]) as rest:
        await rest.call("noop", {"a": 1})

asyncio.run(main())
"""
AGENT = """
from toolrest import Agent, tool

@tool
def weather(city: str) -> str:
    "The weather in a city."
    return "rain"

agent = Agent("openai:gpt-5.5", tools=[weather])
assert agent.session().rest.specs("responses")
"""
THEIRS = """
from pydantic_ai import Agent

def weather(city: str) -> str:
    "The weather in a city."
    return "rain"

Agent("openai-responses:gpt-5.5", tools=[weather])
"""
MEMORY = "\nimport resource\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"

_SHOWN = {
    "python -c pass": "python -c pass",
    "toolrest --version": "toolrest --version",
    "session with one tool": "toolrest, a session with one tool",
    "Agent with one tool": "toolrest, an Agent with one tool",
    "pydantic-ai, the same": "pydantic-ai, an Agent with one tool",
}


def times(commands: dict[str, list[str]]) -> dict[str, float]:
    """Median ms of each command, taken in turns so that a noisy moment hits all of them.

    The first round only fills the byte-code caches, as the first use after an install does.
    """
    seen: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
            seen[name].append((time.perf_counter() - start) * 1000)
    return {name: statistics.median(values[1:]) for name, values in seen.items()}


def memory(code: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", code + MEMORY],
        check=True,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    return int(done.stdout.split()[-1]) / 1024


def main() -> None:
    python = sys.executable
    peer = environment("pydantic-ai-openai", ["pydantic-ai-slim[openai]"])
    theirs = {} if peer is None else {"pydantic-ai, the same": [str(peer), "-c", THEIRS]}
    found = times(
        {
            "python -c pass": [python, "-c", "pass"],
            "import toolrest": [python, "-c", "import toolrest"],
            "toolrest --version": [TOOLREST, "--version"],
            "asyncio + pydantic": [python, "-c", FLOOR],
            "session with one tool": [python, "-c", SESSION],
            "Agent with one tool": [python, "-c", AGENT],
            **theirs,
        }
    )
    bare, floor = found["python -c pass"], found["asyncio + pydantic"]
    record(
        "startup",
        "Starting",
        "ms",
        {_SHOWN[name]: value for name, value in found.items() if name in _SHOWN},
        "From the start of Python, which is in every bar; an agent is ready to send its first "
        "request. `bench/startup.py`.",
    )
    print("start-up, median ms")
    for name, value in found.items():
        base = floor if name == "session with one tool" else bare
        print(
            f"  {name:<24} {value:7.1f}   +{value - base:5.1f} over its floor, {value / base:4.2f}x"
        )
    if peer is None:
        print("  pydantic-ai, the same    not measured: could not be installed")
    else:
        share = found["Agent with one tool"] / found["pydantic-ai, the same"]
        print(f"  Agent with one tool: {share:.2f}x of pydantic-ai's time")
    session, least = memory(SESSION), memory(FLOOR)
    print(f"  memory: session {session:.1f} MB, floor {least:.1f} MB, +{session - least:.1f} MB")


if __name__ == "__main__":
    main()
