"""What Toolrest itself costs per turn of a long session: it should not grow with the session.

A model in process (or on loopback with --http) that answers at once, one small tool, a journal on
disk; `turn` is one request to the model and the call that it brings. The peers' figures are those
of openai-agents and pydantic-ai in process: 1.9, 5.5, 47 ms and 2.3, 3.3, 19.5 ms at 10, 100 and
1,000 turns.

    python bench/turns.py [--http]
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from results import record
from toolrest import tool
from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.testing import Call, ScriptedModel
from toolrest.testing.server import ScriptedServer

TURNS = 1010
WINDOW = 10
AT = (10, 100, 1000)


@tool(mutating=False)
async def look(number: int) -> str:
    """Say the number again."""
    return f"{number} it is"


def script(times: list[float]) -> Iterator[Any]:
    def answer(number: int) -> Any:
        def step(request: Any) -> Call:
            times.append(time.perf_counter())
            return Call("look", {"number": number})

        return step

    for number in range(TURNS):
        yield answer(number)
    yield "done"


class Measured(ScriptedModel):
    """Keeps no copy of each request: that would be what is measured."""

    async def stream(self, request: Any) -> Any:
        async for event in super().stream(request):
            yield event
        self.requests.clear()


async def session(settings: dict[str, Any], model: Any, folder: str) -> None:
    base = {"tool_security.audit_log_enabled": False}
    config = default_config(base | settings, workspace=folder, home=f"{folder}/home")
    agent = open_session(config, model)
    agent.rest.add_tool(look)
    async with agent:
        result = await agent.run("go")
        assert result.status == "completed", result.error
        assert result.tool_calls == TURNS


def main() -> None:
    times: list[float] = []
    sizes: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        if "--http" in sys.argv:
            with ScriptedServer(script(times), check=False) as server:
                asyncio.run(session(server.settings(), None, folder))
                sizes = [request.size for request in server.requests]
        else:
            asyncio.run(session({}, Measured(script(times), context_window=None), folder))
    gaps = [(after - before) * 1000 for before, after in itertools.pairwise(times)]
    print(f"{'turn':>6} {'ms per turn':>12} {'bytes sent':>11}")
    costs = {turn: statistics.median(gaps[turn - WINDOW // 2 : turn + WINDOW // 2]) for turn in AT}
    record(
        "turns",
        "One more turn of a long session",
        "ms",
        {f"toolrest, turn {turn:,}": cost for turn, cost in costs.items()},
        "What Toolrest itself takes for a request and its call, with a model that answers at once. "
        "`bench/turns.py`.",
    )
    for turn in AT:
        size = f"{sizes[turn]:,}" if sizes else "-"
        print(f"{turn:>6} {costs[turn]:>12.2f} {size:>11}")


if __name__ == "__main__":
    main()
