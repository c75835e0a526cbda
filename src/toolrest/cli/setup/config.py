"""`toolrest config`: show, change and import settings."""

from __future__ import annotations

import os
import sys

import click

from toolrest.cli.options import Choices, session_options
from toolrest.config.codex import codex_home
from toolrest.config.codex import import_codex as convert
from toolrest.config.codex import import_memo as convert_memo
from toolrest.config.files import config_file, toolrest_home
from toolrest.config.write import set_value
from toolrest.policy.rules.files import allow_line, append_allow, load_rules
from toolrest.policy.terminal_safe import display_safe


@click.group("config")
def command() -> None:
    """Show, change or import settings.

    Settings come from -c, flags, some TOOLREST_* variables, a profile, the .toolrest/config.toml of
    a trusted folder and $TOOLREST_HOME/config.toml, in that order.
    """


@command.command("show")
@session_options
@click.option(
    "--all", "everything", is_flag=True, help="Include settings that have their default value."
)
def show(choices: Choices, everything: bool) -> None:
    """Print the settings that are set: value and source of each."""
    config = choices.load()
    rows = [row for row in config.rows() if everything or row.source != "default"]
    for row in rows:
        click.echo(f"{row.key} = {row.text}  # {row.source}")
    for warning in config.warnings:
        click.echo(f"toolrest: {warning}", err=True)


@command.command("get")
@session_options
@click.argument("key")
def get(choices: Choices, key: str) -> None:
    """Print one setting's value."""
    click.echo(choices.load().get(key).text)


@command.command("set")
@click.argument("key")
@click.argument("value")
def set_(key: str, value: str) -> None:
    """Write KEY = VALUE into your own settings file.

    Comments in the file stay.

    \b
    toolrest config set approval_policy never
    toolrest config set tools.disabled '["webfetch"]'
    """
    click.echo(f"{key} is set in {set_value(key, value)}")


@command.command("path")
def path() -> None:
    """Print the path of your own settings file."""
    click.echo(config_file(toolrest_home(None, os.environ)))


@command.command("import-codex")
@click.option(
    "--from", "folder", metavar="DIR", help="Codex's home; default: $CODEX_HOME or ~/.codex."
)
def import_codex(folder: str | None) -> None:
    """Print your Codex settings as Toolrest settings.

    No setting is written. What cannot be taken over is listed on standard error with the reason.
    Codex's rules that allow a command run it outside the sandbox: at a terminal you are asked which
    of them to keep so, and the answers go to your rules file; otherwise they are listed with the
    line to add.
    """
    _print(*convert(folder))
    _import_rules(folder)


@command.command("import-memo")
@click.option(
    "--from", "folder", metavar="DIR", help="Memo Code's home; default: $MEMO_HOME or ~/.memo."
)
def import_memo(folder: str | None) -> None:
    """Print your Memo Code servers as Toolrest settings.

    Its MCP servers come over, and which of them are active. No setting is written. What cannot be
    taken over is listed on standard error with the reason.
    """
    _print(*convert_memo(folder))


def _print(text: str, skipped: list[str]) -> None:
    click.echo(text, nl=False)
    for line in skipped:
        click.echo(f"toolrest: not taken over: {line}", err=True)


_KEEP = click.Choice(["outside", "inside", "no"])


def _import_rules(folder: str | None) -> None:
    """Codex's allow rules: ask about each at a terminal, else list them."""
    prefixes = load_rules([codex_home(folder)]).allowed_prefixes()
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    home = toolrest_home(None, os.environ)
    for prefix in prefixes:
        shown = display_safe(allow_line(prefix, outside=True))
        if not asks:
            click.echo(f"toolrest: Codex allows this outside its sandbox: {shown}", err=True)
            continue
        question = f"Codex allows {display_safe(' '.join(prefix))} outside its sandbox. Keep it"
        kept = click.prompt(question, type=_KEEP, default="inside", err=True)
        if kept != "no":
            append_allow(home, prefix, outside=kept == "outside")
    if prefixes and not asks:
        rules = os.path.join(home, "rules", "default.rules")
        click.echo(f"toolrest: to keep one of them, put its line into {rules}", err=True)
