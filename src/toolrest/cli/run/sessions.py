"""`toolrest sessions`: list, show, resume, fork and export recorded sessions."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import Any

import click

from toolrest.agent.history.rollout import read_rollout
from toolrest.agent.history.stored_sessions import find_session, summaries
from toolrest.agent.open_session import fork
from toolrest.agent.path_policy import default_workspace, tool_roots
from toolrest.cli.options import Choices, session_options
from toolrest.cli.run.exec import task_options, task_text
from toolrest.cli.run.exec_run import Task, run_task
from toolrest.cli.terminal.progress import progress
from toolrest.cli.terminal.terminal import safe_for
from toolrest.config.files import toolrest_home
from toolrest.config.loader import load
from toolrest.errors import ConfigError
from toolrest.policy.paths.named_files import write_named
from toolrest.private_files import regular_file
from toolrest.timeline.draw import Drawing, safe_lines
from toolrest.timeline.plain import columns, has_colour, styled
from toolrest.timeline.replay import timed_cells
from toolrest.timeline.stored import markdown, stored_cells
from toolrest.timeline.text import short_path

_SHOWN_LINES = 20
_READING = "reading the recorded sessions"


@click.group("sessions")
def command() -> None:
    """List, show, resume, fork or export recorded sessions.

    A session is named by its id or by the beginning of it.
    """


def _home() -> str:
    return toolrest_home(None, os.environ)


@command.command("list")
@click.option("--here", is_flag=True, help="Only sessions of this folder.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show at most this many.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one session a line.")
def list_command(here: bool, limit: int, as_json: bool) -> None:
    """List sessions, the latest first."""
    rows = summaries(_home(), default_workspace(None) if here else None)
    drawing = Drawing(columns(sys.stdout))
    with progress(_READING):
        found = list(itertools.islice(rows, limit))
    for row in found:
        if as_json:
            click.echo(json.dumps(row.to_json(), ensure_ascii=False))
            continue
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.changed))
        title = row.title or "(no message)"
        folder = str(row.meta.get("cwd") or "?")
        line = f"{row.stored.thread_id}  {when}  {folder}  {title}"
        if drawing.width is not None:  # the message before what may be cut
            line = f"{row.stored.thread_id[:8]}  {when}  {title}  {short_path(folder)}"
        click.echo(drawing.cut(" ".join(safe_lines(line))))
    if not found and not as_json:
        click.echo("no session is recorded" + (" here" if here else ""), err=True)


@command.command("show")
@click.argument("session", metavar="ID")
def show_command(session: str) -> None:
    """Print a session: its messages and calls, of long outputs the end."""
    rollout = read_rollout(find_session(_home(), session).path)
    folder = str(rollout.meta.get("cwd") or "")
    drawing = Drawing(columns(sys.stdout), folder, tail=_SHOWN_LINES)
    colour = has_colour(sys.stdout)
    click.echo(safe_lines(f"{rollout.thread_id}, {folder}, {rollout.meta['timestamp']}")[0])
    if rollout.context.get("sandbox_policy") == {"type": "danger-full-access"}:
        click.echo(
            "With full access it has no control socket, for its commands could answer for you: "
            "`toolrest web` cannot join it."
        )
    for cell in stored_cells(rollout.items):
        lines = [styled(line, colour) for line in drawing.lines(cell)]
        click.echo("\n".join(["", *lines]), color=colour)


@command.command("export")
@click.argument("session", metavar="ID")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["markdown", "json", "jsonl"]),
    default="markdown",
    show_default=True,
    help="Markdown to read, the items as JSON, or the recorded lines as they are.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="-",
    help="The file to write (default: standard output).",
)
def export_command(session: str, layout: str, output: str) -> None:
    """Write a session to a file or to stdout."""
    stored = find_session(_home(), session)
    if layout == "jsonl":
        with open(stored.path, encoding="utf-8", errors="replace", opener=regular_file) as file:
            text = file.read()
    else:
        rollout = read_rollout(stored.path)
        if layout == "json":
            whole = {"meta": rollout.meta, "items": rollout.items}
            text = json.dumps(whole, ensure_ascii=False, indent=2) + "\n"
        else:
            blocks = (f"# Session {rollout.thread_id}", *markdown(stored_cells(rollout.items)))
            text = "\n\n".join(blocks) + "\n"
    if output == "-":
        # With `color` click leaves raw text as it is where stdout is no terminal.
        click.echo(safe_for(sys.stdout, text), nl=False, color=True)
        return
    try:
        with progress(_READING):
            roots = _roots()
        write_named(output, text.encode("utf-8", "replace"), roots)
    except OSError as error:
        raise ConfigError(f"cannot write -o {output}: {error.strerror}") from None


def _roots() -> list[str]:
    """Where tools of any recorded session may have written, and those of one here would."""
    recorded = (row.meta.get("cwd") for row in summaries(_home(), None))
    known = {os.path.realpath(folder) for folder in recorded if isinstance(folder, str) and folder}
    return sorted(known | {*tool_roots(load(surface="cli"))})


@command.command("fork")
@click.argument("session", metavar="ID")
def fork_command(session: str) -> None:
    """Copy a session under a new id, which is printed."""
    home = _home()
    click.echo(fork(home, find_session(home, session).path))


@command.command("resume")
@session_options
@task_options
@click.option("--last", is_flag=True, help="Continue the latest session of this folder.")
@click.argument("session", metavar="ID|--last", required=False)
@click.argument("prompt", metavar="[PROMPT|-]", required=False)
def resume_command(
    choices: Choices,
    session: str | None,
    last: bool,
    prompt: str | None,
    images: tuple[str, ...],
    **given: Any,
) -> None:
    """Continue a session, as `toolrest exec --resume` does.

    It takes the options of exec and keeps the session's sandbox unless -s names another.
    """
    if last:
        prompt = session or prompt  # with --last the only argument is the prompt
        session = None
    elif session is None:
        raise click.UsageError("name a session, or give --last")
    given.pop("skip_git_repo_check")
    text = task_text(prompt, wait=given.pop("wait_stdin"))
    sys.exit(run_task(Task(choices, text, images, resume=session, last=last, **given)))


@click.command("replay")
@click.argument("session", metavar="ID")
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="2 plays twice as fast.",
)
@click.option(
    "--pause",
    type=click.FloatRange(0),
    default=3.0,
    show_default=True,
    help="Longest pause, in seconds.",
)
def replay_command(session: str, speed: float, pause: float) -> None:
    """Play a recorded session at its own or another speed. Nothing is run."""
    stored = find_session(_home(), session)
    folder = str(read_rollout(stored.path).meta.get("cwd") or "")
    drawing, colour = Drawing(columns(sys.stdout), folder), has_colour(sys.stdout)
    before: float | None = None
    with open(stored.path, "rb", opener=regular_file) as file:
        for now, cell in timed_cells(file):
            if before is not None:
                time.sleep(min(max(now - before, 0.0) / speed, pause))
            before = now
            lines = [styled(line, colour) for line in drawing.lines(cell)]
            click.echo("\n".join(["", *lines]), color=colour)
