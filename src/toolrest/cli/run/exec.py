"""`toolrest exec`: a task for a model, run to its end."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from toolrest.cli.options import Choices, model_option, session_options

F = TypeVar("F", bound=Callable[..., Any])
_WITHOUT_EFFECT = ("--thread-source", "--cyber-access-program")
"""Options of Codex with a value that `@openai/codex-sdk` passes, and that mean nothing here."""
COUNT = click.IntRange(min=1)


def task_options(function: F) -> F:
    """Add the options of a task; `exec` and `sessions resume` share them."""
    decorated: Any = function
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    result: F = decorated
    return result


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    model_option,
    click.option(
        "--add-dir",
        "add_dirs",
        multiple=True,
        metavar="DIR",
        help="Another folder that may be written. Repeatable.",
    ),
    click.option(
        "-i",
        "--image",
        "images",
        multiple=True,
        metavar="FILE",
        help="Send this picture with the task. Repeatable.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines."),
    click.option("--output-schema", metavar="FILE", help="JSON Schema that the answer must match."),
    click.option(
        "-o",
        "--output-last-message",
        "answer",
        metavar="FILE",
        help="Also write the answer to FILE.",
    ),
    click.option("--max-turns", type=COUNT, help="Stop after this many requests to the model."),
    click.option("--max-tool-calls", type=COUNT, help="Stop after this many tool calls."),
    click.option(
        "--max-tokens", type=COUNT, help="Stop after this many tokens, in and out together."
    ),
    click.option(
        "--timeout", type=click.FloatRange(0, min_open=True), help="Stop after this many seconds."
    ),
    click.option("--ephemeral", is_flag=True, help="Do not record the session."),
    click.option(
        "--wait-mcp/--no-wait-mcp",
        default=None,
        help="Wait for the MCP servers before the first request (the default), or not.",
    ),
    click.option(
        "--no-ask",
        is_flag=True,
        help="Never ask, not even at a terminal; the setting on_ask answers.",
    ),
    click.option(
        "--skip-git-repo-check",
        is_flag=True,
        hidden=True,
        help="Accepted for Codex scripts; does nothing.",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Write every event to a log file."),
    click.option(
        "--stdin", "wait_stdin", is_flag=True, help="Wait for piped input, however long it takes."
    ),
)


def codex_options(function: F) -> F:
    """Add the options that `codex exec` has besides, for scripts and for `@openai/codex-sdk`."""
    decorated: Any = function
    decorated = click.option("--experimental-json", is_flag=True, hidden=True)(decorated)
    for name in _WITHOUT_EFFECT:
        decorated = click.option(name, metavar="VALUE", hidden=True)(decorated)
    result: F = decorated
    return result


def _codex_words(words: tuple[str, ...], given: dict[str, Any]) -> str | None:
    """The prompt; what only `codex exec` has is mapped, or passed over with a line on stderr."""
    given.pop("skip_git_repo_check")
    for name in _WITHOUT_EFFECT:
        if given.pop(name.strip("-").replace("-", "_")) is not None:
            click.echo(f"toolrest: {name} has no effect here", err=True)
    if given.pop("experimental_json"):
        given["as_json"] = True
        if key := os.environ.get("CODEX_API_KEY"):
            os.environ["OPENAI_API_KEY"] = key
    if len(words) > 1 and words[0] == "resume" and not given["resume"]:
        given["resume"], words = words[1], words[2:]
    if len(words) > 1:
        raise click.UsageError(
            f"one PROMPT in quotes, not {len(words)} words: {words[1]!r} is too many"
        )
    return words[0] if words else None


@click.command("exec")
@session_options
@task_options
@click.option("--resume", metavar="ID", help="Continue this session.")
@click.option("--last", is_flag=True, help="Continue the latest session of this folder.")
@click.option(
    "--continue",
    "continues",
    is_flag=True,
    help="With --resume or --last: finish the turn that was cut off.",
)
@click.argument("words", metavar="[PROMPT|-]", nargs=-1)
@codex_options
def command(
    choices: Choices, words: tuple[str, ...], images: tuple[str, ...], **given: Any
) -> None:
    """Give a model a task and run it to its end.

    What happens goes to stderr, the answer alone to stdout; with --json, events as JSON lines go
    to stdout. The task is PROMPT, standard input with - (or when there is no PROMPT and standard
    input is not a terminal), or both: what is piped in besides a PROMPT is sent with it. What needs
    approval is asked about when standard input and stderr are terminals; else, and with --json or
    --no-ask, on_ask answers.

    \b
    toolrest exec "why does the test fail?"
    toolrest exec -s workspace-write --json "fix it" | jq .
    git diff | toolrest exec -o review.md "review this"

    \b
    Exit codes:
      0 done                  4 a budget or the time was used up
      1 the model failed      5 there is no sandbox to run in
      2 wrong usage           6 the answer does not meet the schema
      3 a denial ended it     130, 143 stopped by a signal
    """
    from toolrest.cli.startup import quick_start

    quick_start()
    from toolrest.cli.run.exec_run import Task, run_task

    prompt = _codex_words(words, given)
    wait = given.pop("wait_stdin")
    if given["resume"] and given["last"]:
        raise click.UsageError("give --resume or --last, not both")
    if given["continues"]:
        if prompt is not None or not (given["resume"] or given["last"]):
            raise click.UsageError("--continue goes with --resume or --last, and without a PROMPT")
        text = ""
    else:
        text = task_text(prompt, wait=wait)
    task = Task(choices, text, images, **given)
    sys.exit(run_task(task))


def task_text(given: str | None, *, wait: bool = False) -> str:
    """The task's text: the prompt, standard input (`-`, or no prompt off a terminal), or both."""
    if given is None and sys.stdin is not None and not sys.stdin.isatty():
        given = "-"
    if given == "-":
        given = _read_stdin()
    elif given is not None and given.strip() and sys.stdin is not None:
        piped = _piped(wait)
        if piped is not None:
            given = f"{given}\n\n<stdin>\n{piped.rstrip()}\n</stdin>"
    if given is None or not given.strip():
        raise click.UsageError(
            "there is no task: give a PROMPT, or - to read it from standard input"
        )
    return given


def _piped(wait: bool) -> str | None:
    """What was piped in besides a prompt; a pipe that stays silent is waited for only with `wait`.

    A terminal and /dev/null are no pipes.
    """
    try:
        number = sys.stdin.fileno()
        if stat.S_ISCHR(os.fstat(number).st_mode):
            return None
        ready = wait or bool(select.select([number], [], [], _PATIENCE)[0])
    except (OSError, ValueError):
        return None  # closed, or not a file
    text = _read_stdin() if ready else ""
    if text.strip():
        return text
    why = "was empty" if ready else "stayed silent, so it was not read (--stdin waits for it)"
    click.echo(f"toolrest: standard input {why}", err=True)
    return None


def _read_stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace")


_PATIENCE = 0.1
