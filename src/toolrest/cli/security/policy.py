"""`toolrest policy`: what would be allowed and why, and a test of the live gate."""

from __future__ import annotations

import asyncio
import json
import sys

import click

from toolrest.agent.reports.policy import Checked, check_command
from toolrest.cli.options import Choices, session_options
from toolrest.cli.security.canaries import run_canaries
from toolrest.cli.terminal.progress import progress
from toolrest.policy.modes import WORDS
from toolrest.policy.terminal_safe import display_safe


@click.group("policy")
def command() -> None:
    """Show what the policy would decide; nothing is run."""


@command.command("check")
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.argument("words", nargs=-1, required=True, metavar="-- CMD...")
def check(choices: Choices, words: tuple[str, ...], as_json: bool) -> None:
    """Print the decision on a command, and what decides it.

    One argument is a shell script, several are an argument vector. Nothing is run.

    \b
    toolrest policy check -- 'git diff | head'
    toolrest policy check --json -a never -- rm -rf build
    """
    config = choices.load()
    found = check_command(config, words[0] if len(words) == 1 else words, config.workspace or ".")
    for warning in (*config.warnings, *found.warnings):
        click.echo(f"toolrest: {warning}", err=True)
    if as_json:
        click.echo(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        _print(found)


def _print(found: Checked) -> None:
    setting = found.setting
    click.echo(f"{found.outcome.answer}  (risk {found.risk}; {setting.mode}, {setting.sandbox})")
    if found.reason:
        click.echo(f"  {display_safe(found.reason)}")
    for decided in found.outcome.decided:
        segment = decided.segment
        shown = display_safe(" ".join(segment.argv)) or segment.rule
        by = ", ".join(
            display_safe(f"{match.source or 'rule'}: {' '.join(match.prefix)}")
            for match in decided.matches
        )
        indent = "  " * (segment.depth + 1)
        row = decided.row if not by else f"{decided.row} ({by})"
        click.echo(f"{indent}{decided.decision:6} {shown}  [{row}]")


@command.command("explain")
@session_options
@click.argument("name")
@click.argument("arguments", metavar="JSON", default="{}")
def explain(choices: Choices, name: str, arguments: str) -> None:
    """Print the decision on a call of the tool NAME, as JSON.

    \b
    toolrest policy explain apply_patch '{"file_path": "a", "old_string": "x", "new_string": "y"}'
    """
    rest = choices.open()
    explained = rest.explain(name, arguments).to_json()
    asyncio.run(rest.aclose())
    click.echo(json.dumps(explained, ensure_ascii=False, indent=1))


@command.command("show")
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def show(choices: Choices, as_json: bool) -> None:
    """Print the policy in force: settings, table, rules and grants."""
    rest = choices.open()
    shown = rest.effective_policy()
    asyncio.run(rest.aclose())
    if as_json:
        click.echo(json.dumps(shown, ensure_ascii=False, indent=1))
        return
    for key, row in shown["settings"].items():
        click.echo(f"{key} = {json.dumps(row['value'])}  ({row['source']})")
    click.echo(f"writable: {', '.join(shown['writable_roots']) or 'nothing'}")
    for what, answer in shown["table"].items():
        click.echo(f"  {answer:6} {WORDS[what]}")
    for table, entries in shown["overrides"].items():
        for name, say in entries.items():
            click.echo(f"  {say:6} approvals.{table}.{json.dumps(name)}")
    click.echo(f"rules: {shown['rules']['count']} from {len(shown['rules']['files'])} files")
    for warning in shown["rules"]["warnings"]:
        click.echo(f"  {warning}")
    grants = shown["grants"]
    click.echo(
        f"grants: {grants['count']}" + (f" ({grants['problem']})" if grants["problem"] else "")
    )


@command.command("test")
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def test(choices: Choices, as_json: bool) -> None:
    """Check the live gate with calls that it must deny.

    Exit code 1 if one of them runs. They are harmless: they touch a temporary folder only, and
    no approval is asked for.
    """
    with progress("sending calls that must not run"):
        results = asyncio.run(run_canaries(choices.load()))
    if as_json:
        click.echo(json.dumps([result.to_json() for result in results]))
    else:
        for result in results:
            click.echo(f"{result.state:7} {result.name}: {result.words}")
    ran = [result for result in results if result.state == "RAN"]
    if not as_json:
        held = sum(result.state == "held" for result in results)
        click.echo(f"{held} held, {len(ran)} ran, {len(results) - held - len(ran)} not denied here")
    sys.exit(1 if ran else 0)
