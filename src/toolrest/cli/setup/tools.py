"""`toolrest tools`: the tools on offer."""

from __future__ import annotations

import click

from toolrest.agent.subagents.delegation import offer
from toolrest.cli.options import Choices, session_options
from toolrest.wire.items.encode import dumps


@click.command("tools")
@session_options
@click.option(
    "--wire",
    type=click.Choice(["responses", "chat", "anthropic", "mcp"]),
    help="Print the specs for this model API.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(choices: Choices, wire: str | None, as_json: bool) -> None:
    """List the tools with their risk, whether they change things and whether they run in parallel.

    With --wire the tools are printed in the form that a model API takes, one a line, or as one
    JSON array with --json.
    """
    rest = choices.open()
    if rest.settings.tools.include_collab_tools:
        offer(rest)  # as in a session of the agent
    if wire is not None:
        specs = rest.specs(wire)  # type: ignore[arg-type]
        click.echo(dumps(specs) if as_json else "\n".join(dumps(spec) for spec in specs))
    elif as_json:
        click.echo(dumps(rest.table()))
    else:
        _print_table(rest.table())
    for name, reason in rest.quarantined.items():
        click.echo(f"toolrest: {name} is set aside: {reason}", err=True)


def _print_table(rows: list[dict[str, object]]) -> None:
    width = max([len("tool"), *(len(str(row["name"])) for row in rows)])
    click.echo(f"{'tool':<{width}}  {'risk':<8}  {'mutating':<8}  {'parallel':<8}  description")
    for row in rows:
        mutating, parallel = ("yes" if row[key] else "no" for key in ("mutating", "parallel"))
        first = str(row["description"]).split(". ")[0].split("\n")[0]
        name, risk = row["name"], row["risk"]
        click.echo(f"{name:<{width}}  {risk:<8}  {mutating:<8}  {parallel:<8}  {first}")
