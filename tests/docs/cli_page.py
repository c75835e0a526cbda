"""The page of the command line, made from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from tests.docs.api_page import escape

from toolrest.cli.app import app

HEAD = """\
# The command line

<!-- Written by TOOLREST_WRITE_DOCS=1 pytest tests/docs: change the source, not this page. -->

`toolrest COMMAND --help` prints the same. `-h` and `--help` work everywhere. Where Toolrest itself
fails, you get one line on stderr and exit code 2; `exec` has [more codes](../exec.md#exit-codes).
"""


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Every command below one, with its whole name."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            if not found.hidden:
                yield from walk(found, (*path, name))


def words(command: click.Command) -> str:
    """A command's help; what click keeps as it is becomes a block."""
    parts = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        kept = paragraph.lstrip().startswith("\b")
        body = paragraph.replace("\b\n", "")
        parts.append(f"```text\n{body}\n```" if kept else body)
    return "\n\n".join(parts)


def usage(name: str, command: click.Command) -> str:
    """How a command is written."""
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = " [OPTIONS]" if any(isinstance(p, click.Option) for p in command.params) else ""
    more = " COMMAND …" if isinstance(command, click.Group) else ""
    return f"{name}{options}{''.join(f' {shown(each)}' for each in arguments)}{more}"


def shown(argument: click.Argument) -> str:
    """An argument as it is written in a usage line."""
    name = argument.metavar or (argument.name or "").upper()
    name += "…" if argument.nargs == -1 and not argument.metavar else ""
    return name if argument.required or name.startswith("[") else f"[{name}]"


def row(option: click.Option) -> str:
    """An option: its names, what it takes, what it does."""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    takes = ""
    if not option.is_flag and not option.count:
        kind = option.type
        choices = list(kind.choices) if isinstance(kind, click.Choice) else []
        takes = ", ".join(f"`{choice}`" for choice in choices) or (
            option.metavar or kind.name
        ).upper().join("``")
    default = option.default if isinstance(option.default, str | int | float) else None
    if option.show_default and default is not None and not option.is_flag:
        takes += f" (**{default}**)"
    return f"| {names} | {takes} | {escape(option.help or '')} |"


def page() -> str:
    """The whole page."""
    parts = [HEAD.rstrip()]
    for name, command in walk(app, ("toolrest",)):
        parts += [f"{'##' if name.count(' ') < 2 else '###'} {name}"]
        parts += [f"```text\n{usage(name, command)}\n```", words(command)]
        options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
        rows = [row(each) for each in options if "--help" not in each.opts]
        if rows:
            parts.append("\n".join(["| option | takes | does |", "|---|---|---|", *rows]))
    return "\n\n".join(each for each in parts if each) + "\n"
