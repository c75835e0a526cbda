"""`toolrest call`: one tool call through the whole gate, from a shell."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from toolrest.cli.options import Choices, session_options
from toolrest.cli.terminal.approve import TerminalApprover
from toolrest.cli.terminal.notices import ask_folder
from toolrest.cli.terminal.progress import progress
from toolrest.cli.terminal.terminal import Terminal, is_terminal, safe_for
from toolrest.items import Answered, Text, ToolOutput
from toolrest.wire.items.encode import dumps, encode

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest


@click.command("call")
@session_options
@click.option("--json", "as_json", is_flag=True, help="Print the output item instead of its text.")
@click.argument("name")
@click.argument("arguments", metavar="JSON|TEXT|-", default="{}")
def command(choices: Choices, name: str, arguments: str, as_json: bool) -> None:
    """Call the tool NAME and print its answer to a model.

    The arguments are a JSON object, or - to read it from standard input; a freeform tool, and
    apply_patch, also take raw text. Exit code: 0 when the tool succeeded, 1 when it failed (a
    command too), 2 for bad usage.

    \b
    toolrest call read_file '{"file_path": "README.md", "limit": 5}'
    toolrest call -C ~/project list_dir '{"dir_path": "."}'
    echo '{"plan": []}' | toolrest call update_plan - --json
    """
    from_stdin = arguments == "-"
    text = sys.stdin.read() if from_stdin else arguments
    answered = asyncio.run(_call(choices, name, text, ask=not from_stdin and is_terminal()))
    if as_json:
        click.echo(safe_for(sys.stdout, dumps(encode([answered])[0])))
    else:
        # With `color` click leaves raw text as it is where stdout is no terminal.
        click.echo(safe_for(sys.stdout, _shown(answered.output)), color=True)
    sys.exit(0 if answered.output.success is not False and not answered.output.failed else 1)


def _shown(output: ToolOutput) -> str:
    """The text of an output; an image in words."""
    if isinstance(output.content, str):
        return output.text
    facts = output.metadata
    size = f"{facts.get('width', '?')} x {facts.get('height', '?')}"
    image = f"(an image is shown: {facts.get('format', 'format unknown')}, {size})"
    return "\n".join(part.text if isinstance(part, Text) else image for part in output.content)


async def _call(choices: Choices, name: str, text: str, *, ask: bool) -> Answered:
    terminal = Terminal() if ask else None
    rest = await _open(choices, terminal)

    def words() -> str:
        return "" if terminal is not None and terminal.lock.locked() else f"running {name}"

    with progress(words):
        await _wait_for_server(rest, name)
        item = rest.item("call-1", name, text)
        async with rest, rest.turn() as turn:
            return Answered(item, await turn.start(item).output())


async def _wait_for_server(rest: Toolrest, name: str) -> None:
    """A tool of an MCP server is there once that server is."""
    for server in rest.mcp.connections if rest.mcp is not None else ():
        if name.startswith((f"mcp__{server}__", f"{server}/")):
            await rest.wait_for_mcp(server)


async def _open(choices: Choices, terminal: Terminal | None) -> Toolrest:
    if terminal is None:
        return choices.open()
    await ask_folder(terminal, choices.load(), always=False)
    return choices.open(TerminalApprover(terminal))
