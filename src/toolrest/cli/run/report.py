"""`toolrest report`: a file about this installation that the user may send; it sends nothing.

What is in it is chosen, not what is left out: numbers, switches, names of settings, tools and
kinds; of other texts only the length. All of it goes through the redactor as well.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections import deque
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from toolrest import __version__
from toolrest.agent.history.rollout import lines_of
from toolrest.agent.history.stored_sessions import find_session, latest_session
from toolrest.agent.setup.session import redactor_for
from toolrest.cli.options import Choices, session_options
from toolrest.cli.setup.checks import checks
from toolrest.cli.setup.sandbox_checks import examined, session_lines
from toolrest.cli.terminal.progress import progress
from toolrest.config import Config
from toolrest.errors import ConfigError
from toolrest.private_files import private_file, private_folder, write_all
from toolrest.sandbox.doctor import lines

FOLDER = "reports"
_EVENTS = 80
_PACKAGES = ("prompt-toolkit", "pydantic", "msgspec", "httpx2", "mcp", "click")
_VARIABLES = ("TERM", "COLORTERM", "TERM_PROGRAM", "LANG", "NO_COLOR", "TMUX", "SSH_TTY")
_SHOWN_TEXTS = re.compile(
    r"(model|model_family|model_provider|approval_policy|on_ask|sandbox_mode|sandbox_policy|"
    r"sandbox_tmp|model_reasoning_\w+|model_verbosity|web_search|chat\.\w+)"
)
"""Settings whose texts are shown: names and choices of ours."""
_OWN_NAMES = re.compile(r"(^projects|\.extra_body)\..+", re.DOTALL)
"""Settings whose names the user made up: paths, and what a server takes."""
_OWN_VALUES = re.compile(r"\.(extra_body|request|models)\.")
_SHOWN_FIELDS = frozenset(
    [
        "type",
        "role",
        "name",
        "status",
        "model",
        "approval_policy",
        "effort",
        "originator",
        "cli_version",
        "source",
    ]
)
_WORD = re.compile(r"[\w./:+-]{0,64}")
_FIELD = re.compile(r"[a-z_]{1,40}")


@click.command("report")
@session_options
@click.option(
    "--texts",
    is_flag=True,
    help="Include the session's texts, redacted. Read the file before you send it.",
)
@click.argument("session", metavar="[ID]", required=False)
def command(choices: Choices, texts: bool, session: str | None) -> None:
    """Write a report on this installation and a session (default: this folder's latest).

    The file holds versions, the doctor's findings, your settings without texts, and an outline of
    the session's last events. Nothing is sent: read it, and send it yourself if you like.
    """
    config = choices.load()
    with progress("trying every kind of sandbox, for the report"):
        written = write_report(config, _rollout(config, session), texts=texts)
    click.echo("\n".join(written))


def _rollout(config: Config, session: str | None) -> str | None:
    if session is not None:
        return find_session(config.home, session).path
    try:
        return latest_session(config.home, config.workspace).path
    except ConfigError:
        return None


def write_report(config: Config, rollout: str | None, *, texts: bool = False) -> list[str]:
    """Write the report; returns the lines that say where it is and what is in it."""
    settings, events = list(_settings(config)), list(_events(rollout, texts))
    parts = {
        "versions": list(_versions()),
        "doctor": [
            *(found.line for found in checks(config)),
            *lines(examined(config)),
            *session_lines(config),
        ],
        "settings": settings,
        "events": events,
    }
    text = "\n\n".join("\n".join((f"# {name}", *found)) for name, found in parts.items()) + "\n"
    text = redactor_for(config, os.environ).redact(text)
    text = text.replace(os.path.expanduser("~").rstrip("/") + "/", "~/")
    name = f"report-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    folder = private_folder(config.home, FOLDER)
    try:
        file = private_file(folder, name)
        try:
            write_all(file, text.encode("utf-8", "replace"))
        finally:
            os.close(file)
    finally:
        os.close(folder)
    kind = "with their texts, redacted" if texts else "without their texts"
    return [
        f"written to {os.path.join(config.home, FOLDER, name)} (only you can read it):",
        "  versions and the terminal; what doctor finds",
        f"  {len(settings)} settings that are not the default, without texts of yours",
        f"  the last {len(events)} lines of the session, {kind}",
        "nothing was sent; read it before you send it",
    ]


def _versions() -> Iterator[str]:
    yield f"toolrest {__version__}, Python {platform.python_version()}, {sys.platform}"
    kernel = os.uname()
    yield f"{kernel.sysname} {kernel.release} {kernel.machine}"
    for name in _PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name}: not installed"
    for name in _VARIABLES:
        value = os.environ.get(name, "")
        hidden = name in ("TMUX", "SSH_TTY") or not _WORD.fullmatch(value)
        yield f"{name} {'is set' if value and hidden else value or 'is not set'}"
    for name in sorted(os.environ):
        if name.startswith("TOOLREST_"):
            yield f"{name} is set"


def _settings(config: Config) -> Iterator[str]:
    for row in config.rows():
        if row.source != "default":
            key = _OWN_NAMES.sub(r"\1.(hidden)", row.key)
            yield f"{key} = {_value(row.key, row.value)}  # {row.source.partition(' ')[0]}"


def _value(key: str, value: Any) -> str:
    if _OWN_VALUES.search(key):
        return "(hidden)"
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str):
        shown = _SHOWN_TEXTS.fullmatch(key) and _WORD.fullmatch(value)
        return value if shown else f"({len(value)} characters)"
    return f"({len(value)} items)" if isinstance(value, tuple | list | dict) else "(hidden)"


def _events(rollout: str | None, texts: bool) -> Iterator[str]:
    if rollout is None:
        return
    for found in deque(lines_of(rollout), _EVENTS):
        kind, payload = found if found is not None else ("unreadable", {})
        yield json.dumps([kind, payload if texts else _outline(payload, "")], ensure_ascii=False)


def _outline(value: Any, field: str) -> Any:
    """The value without texts: the words of a few fields, else only how long a text is."""
    if isinstance(value, dict):
        named = {k: v for k, v in value.items() if _FIELD.fullmatch(k)}
        found = {k: _outline(v, k) for k, v in named.items()}
        return found | ({"others": len(value) - len(named)} if len(named) < len(value) else {})
    if isinstance(value, list):
        return [_outline(item, "") for item in value[:5]]
    if isinstance(value, str):
        shown = field in _SHOWN_FIELDS and _WORD.fullmatch(value)
        return value if shown else f"({len(value)} characters)"
    return value
