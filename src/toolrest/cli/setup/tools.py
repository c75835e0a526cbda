"""`toolrest tools`: the tools on offer."""

from __future__ import annotations

import click

from toolrest.cli.options import Choices, session_options
from toolrest.tools.catalog import ToolState
from toolrest.wire.items.encode import dumps


@click.command("tools")
@session_options
@click.option(
    "--wire",
    type=click.Choice(["responses", "chat", "anthropic", "mcp"]),
    help="Print the specs for this model API.",
)
@click.option(
    "--all", "every", is_flag=True, help="Include tools that are not offered, with the reason."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(choices: Choices, wire: str | None, every: bool, as_json: bool) -> None:
    """List the tools with their risk, whether they change things and whether they run in parallel.

    With --wire the tools are printed in the form that a model API takes, one a line, or as one
    JSON array with --json. With --all every tool is listed, offered or not: a tool that is not
    offered may still answer when it is called.
    """
    rest = choices.open()
    if rest.settings.tools.include_collab_tools:
        rest.session.registry.offer("agents")  # as in a session of the agent
    if wire is not None:
        specs = rest.specs(wire)  # type: ignore[arg-type]
        click.echo(dumps(specs) if as_json else "\n".join(dumps(spec) for spec in specs))
    elif every:
        _print_states(rest.tool_states(), as_json)
    elif as_json:
        click.echo(dumps(rest.table()))
    else:
        _print_table(rest.table())
    for name, reason in rest.quarantined.items():
        click.echo(f"toolrest: {name} is set aside: {reason}", err=True)


def _print_states(states: list[ToolState], as_json: bool) -> None:
    if as_json:
        click.echo(dumps([state._asdict() for state in states]))
        return
    width = max(len(state.name) for state in states)
    for name, offered, callable_, why in states:
        state = "offered" if offered else "callable" if callable_ else "off"
        click.echo(f"{name:<{width}}  {state:<8}  {why}".rstrip())


def _print_table(rows: list[dict[str, object]]) -> None:
    width = max([len("tool"), *(len(str(row["name"])) for row in rows)])
    click.echo(f"{'tool':<{width}}  {'risk':<8}  {'mutating':<8}  {'parallel':<8}  description")
    for row in rows:
        mutating, parallel = ("yes" if row[key] else "no" for key in ("mutating", "parallel"))
        first = str(row["description"]).split(". ")[0].split("\n")[0]
        name, risk = row["name"], row["risk"]
        click.echo(f"{name:<{width}}  {risk:<8}  {mutating:<8}  {parallel:<8}  {first}")
