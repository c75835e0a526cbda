"""`toolrest doctor`: what a session would meet on this machine, found out by trying."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

from toolrest.agent.path_policy import default_workspace
from toolrest.cli.options import Choices, session_options
from toolrest.cli.run.gc import cleared
from toolrest.cli.setup.checks import Check, checks
from toolrest.cli.setup.sandbox_checks import (
    SandboxVerdict,
    examined,
    home_problem,
    sandbox_verdict,
    session_lines,
)
from toolrest.cli.terminal.progress import progress
from toolrest.config import Config
from toolrest.config.loader import default_config
from toolrest.errors import ConfigError
from toolrest.policy.terminal_safe import display_safe
from toolrest.sandbox.doctor import lines

_SUMMED_UP = ("key", "model", "folder", "git", "rg")
"""The checks that the first five lines have."""


@click.command("doctor")
@session_options
@click.option("-v", "--verbose", is_flag=True, help="Run every kind of sandbox and say all of it.")
def command(choices: Choices, verbose: bool) -> None:
    """Say whether a session can start here: sandbox, model and key, folder, programs, what to do.

    The sandbox is really tried. With -v every kind is: for each it prints what it enforces, what
    stays open and what to install, and then what the settings mean for a session. Exit code 1 when
    a session could not start or no sandbox works: commands are then refused, never run unconfined.
    """
    config, problem = _settings(choices)
    with progress("trying the sandbox"):
        verdict, found = sandbox_verdict(config), {row.name: row for row in checks(config)}
        missing = problem or home_problem(config.home)
    for line in _summary(config, verdict, found, missing):
        click.echo(display_safe(line))
    for row in found.values():
        if row.name not in _SUMMED_UP:  # tools that are set aside, or not offered
            click.echo(row.line)
    if verbose:
        with progress("trying every kind of sandbox"):
            report = examined(config)
        for line in ("", *lines(report), *session_lines(config)):
            click.echo(line)
    starts = verdict.works and not (missing or found["key"].fix or found["model"].fix)
    sys.exit(0 if starts else 1)


def _settings(choices: Choices) -> tuple[Config, str]:
    """The settings, and what is wrong with them: then they are those of a fresh home."""
    try:
        config = choices.load()
    except ConfigError as error:
        workspace = default_workspace(choices.folder)
        return default_config(workspace=workspace, surface="cli"), f"settings: {error}"
    for warning in (*config.warnings, *cleared(config.home, config.workspace or os.getcwd())):
        click.echo(f"toolrest: {warning}", err=True)
    return config, ""


def _summary(
    config: Config, verdict: SandboxVerdict, found: dict[str, Check], missing: str
) -> Iterator[str]:
    """The verdict in five lines."""
    model, key, folder = found["model"], found["key"], found["folder"]
    programs = [found[name] for name in ("git", "rg")]
    broken = missing.startswith("settings: ")
    place = config.workspace or os.getcwd()
    yield f"sandbox: {verdict.text}"
    yield f"model: {'unknown' if broken else f'{model.text}; key: {key.text}'}"
    yield f"folder: {f'{place}: unknown' if broken else folder.text}"
    yield f"programs: {', '.join(f'{row.name} {row.text}' for row in programs)}"
    rows = programs if broken else [key, model, folder, *programs]
    fixes = [missing, verdict.remedy, *(row.fix for row in rows)]
    to_do = dict.fromkeys(filter(None, fixes)) or ("nothing",)
    yield from (f"{'' if n else 'to do:':7}{row}" for n, row in enumerate(to_do))
