"""`toolrest approvals`: approve or deny calls that wait for an answer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import TYPE_CHECKING

import click

from toolrest.cli.options import Choices
from toolrest.cli.terminal.terminal import Terminal
from toolrest.config.files import toolrest_home
from toolrest.errors import ConfigError
from toolrest.gate.approval.pending_store import PendingStore
from toolrest.gate.approval.request import SCOPES as ANSWER_OF
from toolrest.policy.terminal_safe import display_safe
from toolrest.timeline.approval import describe
from toolrest.timeline.text import shown

if TYPE_CHECKING:
    from toolrest.gate.approval.pending import PendingApproval
    from toolrest.items import ToolOutput

SCOPES = ("once", "session", "project", "user", "rule")


@click.group("approvals")
def command() -> None:
    """List, show and answer calls that wait for approval (on_ask = "defer").

    An answer counts once, for exactly the call that was shown, and the first one counts.
    """


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Include used and expired ones.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def list_(everything: bool, as_json: bool) -> None:
    """List the calls that wait for approval, the oldest first."""
    store = _store()
    listed = False
    for pending in store.listed():
        state = store.state(pending)
        if not everything and state in ("taken", "expired"):
            continue
        listed = True
        if as_json:
            click.echo(_as_json(pending, state))
            continue
        request = pending.request
        what = " ".join(request.command) or request.reason
        click.echo(
            f"{pending.id}  {state:8}  {_left(pending):>11}  {request.risk.label:8}  "
            f"{display_safe(pending.tool)}: {display_safe(what)}"
        )
    if not listed and not as_json:
        click.echo("no call waits for approval", err=True)


def _left(pending: PendingApproval) -> str:
    """How long a question can still be answered."""
    minutes = max(round((pending.expires - time.time()) / 60), 0)
    return f"{minutes // 60} h left" if minutes >= 120 else f"{minutes} min left"


@command.command("show")
@click.argument("id_", metavar="ID")
def show(id_: str) -> None:
    """Show everything about the waiting call ID."""
    store = _store()
    pending = store.get(id_)
    say = Terminal(out=sys.stdout).say
    for line in describe(pending.request):
        say(line)
    say(f"  workspace: {shown(pending.workspace)} ({pending.sandbox_mode})")
    for choice in pending.request.choices:
        say(f"  --scope {choice.scope}: {shown(choice.sentence)}")
    say(f"  state:     {store.state(pending)}")


@command.command("approve")
@click.argument("id_", metavar="ID")
@click.option(
    "--scope", type=click.Choice(SCOPES), default="once", help="How long the approval counts."
)
@click.option("--run", "run_now", is_flag=True, help="Run the call here and print its result.")
def approve(id_: str, scope: str, run_now: bool) -> None:
    """Approve the waiting call ID.

    The call runs once: when it is made again, or now with --run.
    """
    store = _store()
    pending = store.get(id_)
    offered = {choice.scope for choice in pending.request.choices} | {"once"}
    if scope not in offered:
        raise ConfigError(
            f"--scope {scope} is not offered; see: toolrest approvals show {pending.id}"
        )
    store.answer(pending, ANSWER_OF[scope])  # type: ignore[index]
    if not run_now:
        click.echo(f"{pending.id} is approved")
        return
    output = asyncio.run(_run(pending))
    click.echo(output.text)
    sys.exit(1 if output.failed or output.success is False else 0)


@command.command("deny")
@click.argument("id_", metavar="ID")
@click.argument("note", required=False, default="")
def deny(id_: str, note: str) -> None:
    """Deny the waiting call ID; NOTE is sent to the model."""
    store = _store()
    pending = store.get(id_)
    store.answer(pending, "denied", note)
    click.echo(f"{pending.id} is denied")


async def _run(pending: PendingApproval) -> ToolOutput:
    choices = Choices(
        pending.workspace, pending.sandbox_mode, pending.approval_policy, (), None, None
    )
    async with choices.open() as rest:
        return await rest.resume(pending, None)


def _store() -> PendingStore:
    return PendingStore(toolrest_home(None, os.environ))


def _as_json(pending: PendingApproval, state: str) -> str:
    """The request without its exact arguments: they may hold what is redacted elsewhere."""
    return json.dumps(
        {
            "id": pending.id,
            "state": state,
            "tool": pending.tool,
            "workspace": pending.workspace,
            "created": pending.created,
            "expires": pending.expires,
            "session_id": pending.session_id,
            "call_id": pending.call_id,
            **pending.shown,
        }
    )
