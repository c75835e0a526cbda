"""`toolrest audit`: verify or print the audit log."""

from __future__ import annotations

import os
import sys

import click

from toolrest.cli.terminal.progress import progress
from toolrest.config.loader import load
from toolrest.gate.audit.chain import HEAD_SUFFIX
from toolrest.gate.audit.read import show as rows
from toolrest.gate.audit.read import verify as check


@click.group("audit")
def command() -> None:
    """Check or read the audit log: one line per decision and per result of every tool call."""


@command.command("verify")
@click.argument("file", required=False)
def verify(file: str | None) -> None:
    """Check audit logs for edited, removed or reordered lines.

    Without FILE every log is checked. Exit code 1 if one was tampered with.
    """
    bad = 0
    for path in _files(file, gone=True):
        with progress(f"checking {path}"):
            result = check(path)
        click.echo(f"{path}: {result}")
        bad += not result.ok
    sys.exit(1 if bad else 0)


@command.command("show")
@click.argument("file", required=False)
@click.option("-n", "lines", type=int, help="Print only the last N lines.")
def show(file: str | None, lines: int | None) -> None:
    """Print FILE, or the newest audit log, in readable form."""
    shown = [str(row) for row in rows(_files(file)[-1])]
    for line in shown[-lines:] if lines else shown:
        click.echo(line)


def _files(file: str | None, *, gone: bool = False) -> list[str]:
    """The audit logs, oldest first; with `gone` also those of which only the head file is left."""
    if file is not None:
        return [file]
    folder, shared = load(surface="cli").audit_place
    if shared:
        return [os.path.join(folder, shared)]
    try:
        found = {name.removesuffix(HEAD_SUFFIX) for name in os.listdir(folder)}
        names = [os.path.join(folder, name) for name in found if name.endswith(".jsonl")]
    except FileNotFoundError:
        names = []
    left = [name for name in names if os.path.lexists(name)]
    lost = sorted({*names} - {*left}) if gone else []
    if not (left or lost):
        raise click.UsageError(f"there is no audit log in {folder}")
    return [*lost, *sorted(left, key=lambda path: os.lstat(path).st_mtime)]
