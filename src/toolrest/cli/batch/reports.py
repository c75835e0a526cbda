"""`toolrest batch status | results | retry | cancel | export`: from the store alone."""

from __future__ import annotations

import json
import sys

import click

from toolrest.agent.path_policy import tool_roots
from toolrest.batch.engine import failed_keys, stored_tasks
from toolrest.batch.reports.atif import export_trajectories
from toolrest.batch.reports.results import FORMATS, read_results, write_results
from toolrest.batch.reports.retry import retry_tasks
from toolrest.batch.reports.status import batch_status, status_lines
from toolrest.batch.run_task import CANCELLED
from toolrest.batch.stores.addresses import without_users
from toolrest.batch.stores.store import Store, open_store
from toolrest.cli.batch.progress import plain_addresses
from toolrest.cli.terminal.progress import progress
from toolrest.cli.terminal.terminal import safe_for
from toolrest.config.loader import load
from toolrest.errors import ConfigError
from toolrest.policy.paths.named_files import write_named

_STORE = click.argument("url", metavar="STORE")
_READING = "reading the batch"


def _open(url: str) -> Store:
    with plain_addresses():
        store = open_store(url)
        if not store.has("tasks.jsonl"):
            raise ConfigError(f"{store.url} is not the store of a batch: it has no tasks.jsonl")
    return store


@click.command("status")
@_STORE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status_command(url: str, as_json: bool) -> None:
    """Print how far the batch in STORE has come: counts, rate, time left, failures, cost."""
    with progress(_READING):
        status = batch_status(_open(url))
    if as_json:
        click.echo(json.dumps(status.to_json()))
    else:
        click.echo("\n".join(status_lines(status)))


@click.command("results")
@_STORE
@click.option("--format", "layout", type=click.Choice(FORMATS), default="jsonl", show_default=True)
@click.option("-o", "--output", metavar="FILE", default="-", help="Where to write [stdout].")
@click.option("--failed", is_flag=True, help="Only those that failed.")
def results_command(url: str, layout: str, output: str, failed: bool) -> None:
    """Print all results of the batch in STORE.

    html is one page with the distribution of turns, cost and time; parquet needs pyarrow.
    """
    if layout == "parquet" and output == "-":
        raise click.UsageError("parquet needs -o FILE")
    with progress(_READING):
        store = _open(url)
        keys = set(failed_keys(store)) if failed else None
        data = write_results(layout, read_results(store, keys), store)
    if output != "-":
        try:
            write_named(output, data, tool_roots(load(surface="cli")))
        except OSError as error:
            raise ConfigError(f"cannot write -o {output}: {error.strerror}") from None
        return
    click.echo(safe_for(sys.stdout, data.decode()), nl=False, color=True)


@click.command("retry")
@_STORE
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--class", "failure", metavar="NAME", help="Only failures of this class.")
@click.option("--fresh", is_flag=True, help="Start over instead of going on with the session.")
def retry_command(url: str, ids: tuple[str, ...], failure: str | None, fresh: bool) -> None:
    """Let tasks that failed, or those named, run again when the batch is started next.

    The session of a failed task goes on where it was; --fresh starts over.
    """
    with progress(_READING):
        store = _open(url)
        keys = {name: key for key, name in stored_tasks(store)}
        unknown = [name for name in ids if name not in keys]
        if unknown:
            shown = without_users(store.url)
            raise ConfigError(f"there is no task {unknown[0]!r} in {shown}")
        failed = failed_keys(store)
        wanted = [keys[name] for name in ids] if ids else list(failed)
        if failure is not None:
            wanted = [key for key in wanted if failed.get(key) == failure]
        count = retry_tasks(store, wanted, fresh=fresh, only_failed=not ids)
    again = f"{count} task{'s' * (count != 1)} will run again"
    start = ": start the batch with the same command as before" if count else ""
    click.echo(again + start, err=True)


@click.command("cancel")
@_STORE
@click.option("--undo", is_flag=True, help="Let it go on.")
def cancel_command(url: str, undo: bool) -> None:
    """Stop the batch in STORE on all machines; what runs is stopped and can go on later."""
    store = _open(url)
    if undo:
        store.delete(CANCELLED)
        click.echo("the batch can go on: start it with the same command as before", err=True)
    else:
        store.write(CANCELLED, b"")
        click.echo(
            "cancelled: runners stop within seconds, and what runs is stopped and can go on later",
            err=True,
        )


@click.command("export")
@_STORE
@click.argument("folder", metavar="DIR")
def export_command(url: str, folder: str) -> None:
    """Write the trajectory of each task as DIR/ID.json in ATIF, the format that Harbor reads."""
    with progress("writing the trajectories"):
        count = export_trajectories(_open(url), folder)
    click.echo(f"{count} trajectories in {folder}", err=True)
