"""`toolrest doctor`: what can be enforced on this machine, found out by trying."""

from __future__ import annotations

import os
import sys
import tempfile

import click

from toolrest.agent.path_policy import default_workspace, network_of, path_policy
from toolrest.cli.setup.checks import checks
from toolrest.config.loader import load
from toolrest.sandbox.doctor import examine, lines
from toolrest.sandbox.policy import SandboxPolicy


@click.command("doctor")
@click.option("-C", "--cd", "folder", metavar="DIR", help="Look at DIR as the workspace.")
def command(folder: str | None) -> None:
    """Check key, model, programs and folder, run every sandbox backend, and say what to do.

    Of each backend: what it enforces, what stays open and what to install. Exits with 1 when no
    backend works: commands are then refused, never run unconfined.
    """
    workspace = default_workspace(folder)
    full_access = load(workspace=workspace, surface="cli").value.sandbox_mode == _FULL_ACCESS
    config = load(workspace=workspace, flags={"sandbox_mode": "workspace-write"}, surface="cli")
    settings = config.value
    for warning in config.warnings:
        click.echo(f"toolrest: {warning}", err=True)
    with tempfile.TemporaryDirectory(prefix="toolrest-doctor-") as session:
        policy = SandboxPolicy.from_paths(
            path_policy(config, workspace),
            session,
            network=network_of(settings),
            allowed_hosts=settings.tool_security.allowed_network_domains,
            require=settings.sandbox.require,
        )
        place = os.path.join(session, "mountpoints")
        report = examine(policy, place, wanted=settings.sandbox_policy)
    for found in checks(config):
        click.echo(found.line)
    for line in lines(report):
        click.echo(line)
    if full_access:
        click.echo(f'your settings say sandbox_mode = "{_FULL_ACCESS}": commands run unconfined')
    sys.exit(0 if report.chosen or full_access else 1)


_FULL_ACCESS = "danger-full-access"
