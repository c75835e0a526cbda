"""`toolrest demo`: a model repairs a small broken project with real tools, in front of you."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from toolrest.events import Event, TurnDiff

if TYPE_CHECKING:
    from toolrest.agent.result import TurnResult
    from toolrest.agent.session import AgentSession
    from toolrest.config import Config


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON lines instead.")
@click.option("--live", is_flag=True, help="Let the model that you have configured do it.")
@click.option("-m", "--model", metavar="NAME", help="With --live: the model to ask.")
def command(as_json: bool, live: bool, model: str | None) -> None:
    """Watch a model repair a small project: real tools, real sandbox, a temporary folder.

    Without --live the model follows a script, so that neither key nor network is needed. Nothing
    of yours is changed: the project and what is recorded are temporary.
    """
    with tempfile.TemporaryDirectory(prefix="toolrest-demo-") as folder:
        result = asyncio.run(_play(folder, as_json, live, model))
    sys.exit(0 if result.status == "completed" else 1)


async def _play(folder: str, as_json: bool, live: bool, model: str | None) -> TurnResult:
    from toolrest.cli.demo_task import PROMPT, write_project
    from toolrest.cli.timeline import Timeline

    project = write_project(folder)
    session = _live(project, model) if live else _scripted(folder, project)
    diffs: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, TurnDiff):
            diffs.append(event.unified_diff)

    timeline = Timeline(err=False)
    async with session:
        session.rest.subscribe(note)
        session.rest.subscribe(_print_json if as_json else timeline)
        if not as_json:
            timeline.head(f"{session.model.name} in {project}\n")
            timeline.head(f"> {PROMPT}\n")
        result = await session.run(PROMPT)
    if not as_json:
        click.echo(f"\n{result.text or result.error}")
        _print_diff(diffs[-1] if diffs else "")
    return result


def _scripted(folder: str, project: str) -> AgentSession:
    """A session that nothing of the user's own settings takes part in."""
    from toolrest.agent.opened import open_session
    from toolrest.cli.demo_task import SECRET, script
    from toolrest.config.loader import Config
    from toolrest.testing.scripted_model import ScriptedModel

    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": folder,
        "TOOLREST_HOME": os.path.join(folder, "home"),
        "SHOP_API_KEY": SECRET,
    }
    config = Config.default({"model_family": "gpt-5.5"}, workspace=project, env=env)
    return open_session(config, ScriptedModel(script(), name="a scripted model"), env=env)


def _live(project: str, model: str | None) -> AgentSession:
    from toolrest.agent.opened import open_session
    from toolrest.config.loader import load

    flags = {"model": model, "sandbox_mode": "workspace-write"}
    config: Config = load(workspace=project, flags=flags, surface="cli")
    return open_session(config, ephemeral=True, trusted=False)


def _print_json(event: Event) -> None:
    with suppress(BrokenPipeError):
        click.echo(json.dumps(event.to_json(), ensure_ascii=False))


def _print_diff(diff: str) -> None:
    from toolrest.cli.timeline import visible

    colours = {"+": "green", "-": "red", "@": "cyan"}
    click.echo()
    for line in diff.splitlines():
        click.secho(visible(line), fg=colours.get(line[:1]))
