"""`toolrest doctor`: what can be enforced on this machine, found out by trying."""

from __future__ import annotations

import sys

import click

from toolrest.cli.options import Choices, session_options
from toolrest.cli.setup.checks import checks
from toolrest.cli.setup.sandbox_checks import FULL_ACCESS, examined, session_lines
from toolrest.cli.terminal.progress import progress
from toolrest.sandbox.doctor import lines


@click.command("doctor")
@session_options
def command(choices: Choices) -> None:
    """Run every sandbox backend, check key, model, programs and folder, and say what to do.

    For each backend it prints what it enforces, what stays open and what to install. Then it says
    what a session with these settings and options would use; last come key, model, programs and
    folder. Exit code 1 when no backend works: commands are then refused, never run unconfined.
    """
    config = choices.load()
    for warning in config.warnings:
        click.echo(f"toolrest: {warning}", err=True)
    with progress("trying every kind of sandbox"):
        report, found = examined(config), list(checks(config))
    # What is missing comes last: the report is longer than a screen.
    for line in (*lines(report), *session_lines(config), *(check.line for check in found)):
        click.echo(line)
    full_access = config.value.sandbox_mode == FULL_ACCESS
    if full_access:
        click.echo(f'your settings say sandbox_mode = "{FULL_ACCESS}": commands run unconfined')
    sys.exit(0 if report.chosen or full_access else 1)
