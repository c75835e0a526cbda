"""`toolrest demo`: a model repairs a small broken project with real tools, in front of you."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from toolrest.agent.open_session import open_session
from toolrest.cli.run.demo_sandbox import DemoSandbox, find_sandbox
from toolrest.cli.run.demo_task import PROMPT, SECRET, script, write_project
from toolrest.cli.terminal.terminal import safe_for
from toolrest.config.loader import default_config, load
from toolrest.events import Event
from toolrest.testing.scripted_model import ScriptedModel
from toolrest.timeline.plain import PlainPrinter

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.conversation.result import TurnResult
    from toolrest.config.config import Config


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON lines instead.")
@click.option("--live", is_flag=True, help="Use your own model instead of the script.")
@click.option("-m", "--model", metavar="NAME", help="With --live: the name of the model.")
def command(as_json: bool, live: bool, model: str | None) -> None:
    """Watch a model repair a small project: real tools, real sandbox, a temporary folder.

    Without --live the model follows a script, so that neither key nor network is needed. Nothing
    of yours is changed: the project and what is recorded are temporary. The first lines say which
    sandbox this machine has, and what that one cannot enforce.
    """
    with tempfile.TemporaryDirectory(prefix="toolrest-demo-", dir=_place()) as folder:
        result = asyncio.run(_play(folder, as_json, live, model))
    sys.exit(0 if result.status == "completed" else 1)


def _place() -> str | None:
    """The folder for temporary folders; nothing below /dev can be writable in a sandbox."""
    usual = os.path.realpath(tempfile.gettempdir())
    return "/tmp" if usual.startswith("/dev/") else None  # noqa: S108


async def _play(folder: str, as_json: bool, live: bool, model: str | None) -> TurnResult:
    project = write_project(folder)
    config, env = _live(project, model) if live else _own(folder, project)
    found = await asyncio.to_thread(find_sandbox, config, folder, live=live)
    for line in found.lines:
        click.secho(line, dim=True, err=as_json)
    conversation = _open(config, env, found, live=live)
    printer = PlainPrinter(sys.stdout, workspace=project)
    async with conversation:
        conversation.rest.subscribe(_print_json if as_json else printer)
        if not as_json:
            printer.say(f"{conversation.model.name} in {project}")
            printer.say(f"> {PROMPT}")
        result = await conversation.run(PROMPT)
    if not as_json:
        click.echo(safe_for(sys.stdout, f"\n{result.text or result.error}"))
    return result


def _own(folder: str, project: str) -> tuple[Config, Mapping[str, str]]:
    """Settings and an environment without anything of the user's."""
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": folder,
        "TOOLREST_HOME": os.path.join(folder, "home"),
        "SHOP_API_KEY": SECRET,
    }
    return default_config({"model_family": "gpt-5.5"}, workspace=project, env=env), env


def _live(project: str, model: str | None) -> tuple[Config, Mapping[str, str]]:
    flags = {"model": model, "sandbox_mode": "workspace-write"}
    return load(workspace=project, flags=flags, surface="cli"), os.environ


def _open(
    config: Config, env: Mapping[str, str], found: DemoSandbox, *, live: bool
) -> Conversation:
    if live:
        return open_session(config, ephemeral=True, trusted=False)
    config.external = not found.backend
    model = ScriptedModel(script(hides=found.hides), name="a scripted model")
    return open_session(config, model, env=env)


def _print_json(event: Event) -> None:
    with suppress(BrokenPipeError):
        click.echo(json.dumps(event.to_json(), ensure_ascii=False))
