"""`toolrest sandbox`: run a command exactly as a model's would run."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, cast

import click

from toolrest.agent.path_policy import default_workspace
from toolrest.agent.setup.runner import standalone_runner
from toolrest.cli.options import SANDBOX_HELP, SANDBOX_MODES, config_option, profile_option
from toolrest.config.loader import load

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.sandbox.confine import Backend
    from toolrest.sandbox.policy import Network

_EXEC = ("/bin/sh", "-c", 'exec "$@"', "toolrest")
"""A missing program gets a shell's message and exit code; bubblewrap would exit with 1."""


@click.command("sandbox", context_settings={"ignore_unknown_options": True})
@click.option("-C", "--cd", "folder", metavar="DIR", help="The workspace to run in.")
@click.option(
    "-s",
    "--sandbox",
    "mode",
    type=click.Choice(SANDBOX_MODES),
    default="workspace-write",
    show_default=True,
    help=SANDBOX_HELP,
)
@click.option(
    "--network",
    default="off",
    metavar="off|on|settings|HOST,…",
    help="Which hosts can be reached; settings: those that a session could reach.",
)
@click.option(
    "--backend",
    type=click.Choice(["bubblewrap", "landlock", "docker", "chroot", "gvisor", "vm"]),
    help="Use this sandbox instead of the best one that works.",
)
@config_option
@profile_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    folder: str | None,
    mode: str,
    network: str,
    backend: str | None,
    overrides: tuple[str, ...],
    profile: str | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND as a model's command would run, with DIR as the workspace.

    Exits with the command's own code, 128 + n when signal n ended it, 127 when there is no such
    program in there, 126 when it cannot be run.

    \b
    toolrest sandbox -- touch /etc/x          # Read-only file system
    toolrest sandbox -s read-only -- make -n
    toolrest sandbox --network on -- curl -sI https://example.org
    """
    config = load(
        workspace=default_workspace(folder),
        overrides=overrides,
        flags={"sandbox_mode": mode},
        profile=profile,
        surface="cli",
    )
    sys.exit(asyncio.run(_run(config, command, network, backend)))


async def _run(config: Config, argv: tuple[str, ...], network: str, backend: str | None) -> int:
    hosts: tuple[str, ...] = ()
    if network not in ("on", "off", "settings"):
        hosts = tuple(host.strip() for host in network.split(",") if host.strip())
    kind: Network = "allowlist" if hosts else "on" if network == "on" else "off"
    runner = standalone_runner(
        config,
        os.environ,
        network=None if network == "settings" else kind,
        hosts=hosts,
        backend=cast("Backend | None", backend),
    )
    try:
        return await runner.attached((*_EXEC, *argv))
    finally:
        await runner.aclose()
