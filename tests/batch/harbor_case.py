"""Harbor's own classes run our adapter, with this machine as the environment; see test_harbor.py.

    python harbor_case.py ADAPTER LOGS MODEL SETTING...

Prints what Harbor learns: the agent's version, the context, the name of an error.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import sys
import typing
from pathlib import Path
from typing import Any

import typing_extensions

if sys.version_info < (3, 12):  # Harbor wants 3.12, and what this needs of it is only typing
    for name in ("override", "TypedDict"):
        setattr(typing, name, getattr(typing_extensions, name))

from harbor.environments.base import ExecResult
from harbor.models.agent.context import AgentContext
from harbor.models.trajectories import Trajectory


class Here:
    """An environment that runs commands on this machine, as the user that we are."""

    default_user = None

    async def exec(self, command: str, **_: Any) -> ExecResult:
        """Run a command with bash."""
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            "bash", "-c", command, stdout=pipe, stderr=pipe
        )
        out, err = await child.communicate()
        code = child.returncode or 0
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=code)


async def main() -> None:
    adapter, logs, model, *settings = sys.argv[1:]
    agent = runpy.run_path(adapter)["ToolrestAgent"](
        Path(logs), model_name=model, environment_logs_dir=Path(logs), settings=settings
    )
    here, context = Here(), AgentContext()
    await agent.setup(here)
    error = None
    try:
        await agent.run('it\'s a "task-1" $HOME', here, context)
    except RuntimeError as caught:
        error = f"{type(caught).__name__}: {caught}"
    trajectory = Trajectory.model_validate_json((Path(logs) / "trajectory.json").read_text())
    steps = [step.source for step in trajectory.steps]
    found = {"version": agent.version(), "error": error, "steps": steps, **context.model_dump()}
    sys.stdout.write(json.dumps(found))


asyncio.run(main())
