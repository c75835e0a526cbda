"""`toolrest batch`: many tasks from a file, several at a time, each of them one `exec`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from toolrest.agent.path_policy import shared_tmp
from toolrest.batch.engine import (
    BatchCounts,
    LocalEngine,
    check_not_cancelled,
    failed_keys,
    record_tasks,
    shard_of,
)
from toolrest.batch.failures import POLICIES
from toolrest.batch.reports.retry import retry_tasks
from toolrest.batch.results_file import ResultsFile, ended_tasks
from toolrest.batch.run_task import RunOptions
from toolrest.batch.stores.addresses import without_users
from toolrest.batch.stores.alone import Alone
from toolrest.batch.stores.lease import Runner
from toolrest.batch.stores.store import FolderStore, Store, check_store, open_store
from toolrest.batch.stores.totals import Totals
from toolrest.batch.tasks.home import check_home
from toolrest.batch.tasks.model_prices import BatchPrices
from toolrest.batch.tasks.task import STORED_ONLY, BatchTask, read_tasks
from toolrest.cli.app import Lazy
from toolrest.cli.batch.progress import Progress, plain_addresses
from toolrest.config.files import toolrest_home
from toolrest.config.loader import load
from toolrest.errors import ConfigError
from toolrest.policy.paths.named_files import check_named, make_named_folder
from toolrest.policy.paths.names import inside
from toolrest.wire.prices import Price, Rates

_GOES_ON = "stopped; the same command again goes on from here"
_REPORTS = "toolrest.cli.batch.reports"
_COMMANDS = {
    "run": ("toolrest.cli.batch.run", "Run every task of a file (the command when none is named)."),
    "status": (_REPORTS, "Print how far a batch has come."),
    "results": (_REPORTS, "Print all results of a batch."),
    "retry": (_REPORTS, "Let tasks that failed be run again."),
    "cancel": (_REPORTS, "Stop a batch on all machines."),
    "export": (_REPORTS, "Write each task's trajectory as ATIF, which Harbor reads."),
}


class _Group(Lazy):
    """`batch FILE` is `batch run FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `run` before what is no command."""
        if args and args[0] not in self.known and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("batch", cls=_Group, known=_COMMANDS)
def command() -> None:
    """Run many tasks from a file, several at a time.

    \b
    toolrest batch tasks.jsonl                  one result a line in tasks.jsonl.results.jsonl
    toolrest batch tasks.jsonl --store runs/1   everything about each task in a store
    toolrest batch status runs/1
    """


class _Shard(click.ParamType[Any]):
    name = "i/n"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Two numbers; the first is 0 to n - 1."""
        first, _, second = str(value).partition("/")
        if first.isdecimal() and second.isdecimal() and int(first) < int(second):
            return int(first), int(second)
        return self.fail("give I/N with I from 0 to N-1, for example 0/8", param, ctx)


class _Price(click.ParamType[Any]):
    name = "in,out[,cached]"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Two or three numbers."""
        try:
            rates = Rates(*(float(part) for part in str(value).split(",")))
            return Price(rates.input, rates.output, rates.cached_input, rates.cache_write)
        except (ValueError, TypeError):
            return self.fail("give dollars per million tokens: IN,OUT or IN,OUT,CACHED", param, ctx)


class _Retries(click.ParamType[Any]):
    name = "class=n"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """A class of failures and a number."""
        name, _, times = str(value).partition("=")
        if name in POLICIES and times.isdecimal():
            return name, int(times)
        return self.fail(f"give CLASS=N; classes: {', '.join(POLICIES)}", param, ctx)


@click.command("run")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("-j", "--jobs", type=click.IntRange(1, 10_000), default=4, show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Where results go [FILE.results.jsonl].")
@click.option("--events", metavar="DIR", help="Keep the JSON lines of each task in this folder.")
@click.option("--retry-failed", is_flag=True, help="Run those again that have failed.")
@click.option("-c", "--config", "overrides", multiple=True, metavar="KEY=VALUE")
@click.option("--store", "url", metavar="DIR|URL", help="Keep everything here; go on from here.")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--shard", type=_Shard(), help="Only the tasks of one of N runners.")
@click.option("--max-total-tokens", type=click.IntRange(1), help="Begin no task after these.")
@click.option("--max-total-cost", type=click.FloatRange(0, min_open=True), help="The same, in $.")
@click.option("--price", type=_Price(), help="Dollars per million tokens [model_prices].")
@click.option("--retries", type=_Retries(), multiple=True, help="Retries of a class of failures.")
@click.option("--lease", type=click.FloatRange(2), default=60, show_default=True, metavar="SECONDS")
@click.option("--scratch", metavar="DIR", help="Mirrors and worktrees [~/.cache/toolrest/batch].")
@click.option("--keep-workspaces", is_flag=True, help="Leave worktrees when a task is done.")
@click.option("--ray-address", metavar="ADDRESS", help="The cluster [RAY_ADDRESS, else auto].")
@click.option("--ray-cpus", type=float, default=0.5, show_default=True, help="CPUs of a task.")
@click.option("--ray-memory", type=float, default=0.3, show_default=True, help="Its memory, GB.")
@click.option("--ray-label", "ray_labels", multiple=True, metavar="KEY=VALUE", help="Where to run.")
def run_command(
    file: str, jobs: int, output: str | None, events: str | None, retry_failed: bool,
    overrides: tuple[str, ...], url: str | None, **stored: Any,
) -> None:  # fmt: skip
    """Run every task of FILE, one JSON object a line, and write one result a line.

    A task has a `prompt` and may have an `id` (else its line number) and the options of exec:
    cd, model, sandbox, approval, profile, tools, output_schema, max_turns, max_tool_calls,
    max_tokens, timeout. What has a result already is not run again, so a batch that was stopped
    goes on where it was. A task that is run again adds a line: its last one counts.

    With --store a task may also have repo and commit, image, check, check_timeout and max_cost,
    and one that was killed goes on in the middle.

    \b
    {"id": "a", "prompt": "add type hints", "cd": "/repos/a", "max_turns": 40}
    {"id": "b", "prompt": "fix it", "repo": "https://…", "commit": "1a2b3c", "check": "pytest -q"}
    """
    tasks = list(read_tasks(file))
    if url is not None:
        if output is not None or events is not None:
            raise click.UsageError("-o and --events are for a batch without --store")
        _refuse_for_ray(stored["engine"])
        with plain_addresses():
            code = _run_stored(url, tasks, jobs, retry_failed, overrides, stored)
        sys.exit(code)
    _refuse_stored(tasks, stored)
    sys.exit(
        _run_file(tasks, output or f"{file}.results.jsonl", jobs, events, retry_failed, overrides)
    )


def _refuse_stored(tasks: Sequence[BatchTask], stored: dict[str, Any]) -> None:
    """An error for what has an effect only with a store."""
    given = _given(name for name in stored if name != "engine" or stored[name] != "local")
    if given:
        raise click.UsageError(f"{given[0]} needs --store")
    usual = BatchTask("", "", None)
    for task in tasks:
        for name in STORED_ONLY:
            if getattr(task, name) != getattr(usual, name):
                raise ConfigError(f"task {task.id}: `{name}` needs --store")


def _refuse_for_ray(engine: str) -> None:
    """An error for what has an effect only on a Ray cluster."""
    given = _given(("ray_address", "ray_cpus", "ray_memory", "ray_labels"))
    if given and engine != "ray":
        raise click.UsageError(f"{given[0]} needs --engine ray")


def _given(names: Iterable[str]) -> list[str]:
    """Those of these parameters that the command line has, as options."""
    ctx = click.get_current_context()
    source = ctx.get_parameter_source
    words = {param.name: param.opts[-1] for param in ctx.command.params}
    return [words[name] for name in names if source(name) is ParameterSource.COMMANDLINE]


def _run_file(
    tasks: list[BatchTask], results: str, jobs: int, events: str | None, retry_failed: bool,
    overrides: tuple[str, ...],
) -> int:  # fmt: skip
    roots = (os.path.realpath(os.getcwd()), *_roots(tasks, overrides))
    try:
        check_named(results, roots)
        ended = ended_tasks(results, roots)
        if events is not None:
            make_named_folder(events, roots)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None
    done = {name for name, code in ended.items() if code == 0 or not retry_failed}
    waiting = [task for task in tasks if task.id not in done]
    _say(f"{len(waiting)} of {len(tasks)} tasks to run, {jobs} at a time")
    batch = ResultsFile(results, events, overrides, roots, _say)
    asyncio.run(batch.run(waiting, jobs))
    before = sum(task.id in done and ended[task.id] != 0 for task in tasks)
    if before:
        _say(f"{before} failed in an earlier run; --retry-failed runs them again")
    stopped = batch.stopping.signal
    return 128 + stopped if stopped else 1 if batch.failed or before else 0


def _roots(tasks: Sequence[BatchTask], overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Where the tools of any task may write."""
    settings = load(workspace=os.getcwd(), overrides=overrides, surface="cli").value
    more = settings.sandbox_workspace_write.writable_roots
    paths = [os.path.join(os.getcwd(), os.path.expanduser(root)) for root in more]
    folders = {task.folder for task in tasks if task.folder is not None}  # most share one
    shared = shared_tmp(settings) or ()
    return tuple({os.path.realpath(path) for path in (*paths, *folders, *shared)})


def _check_outside(what: str, path: str, roots: Sequence[str]) -> None:
    """ConfigError for a folder of ours that tools of a task may write."""
    for root in roots:
        if inside(os.path.realpath(path), root):
            raise ConfigError(
                f"{what} {path} lies in {root}, where tools of a task may write; "
                "name a folder outside of it"
            )


def _run_stored(
    url: str, tasks: list[BatchTask], jobs: int, retry_failed: bool, overrides: tuple[str, ...],
    given: dict[str, Any],
) -> int:  # fmt: skip
    prices = BatchPrices(given["price"], overrides).of(
        tasks, max_total=given["max_total_cost"] is not None
    )
    store = open_store(url)
    roots, scratch = _roots(tasks, overrides), _scratch(given["scratch"])
    if isinstance(store, FolderStore):
        _check_outside("the store", store.path, roots)
    if any(task.folder is None for task in tasks):
        _check_outside("the scratch folder", scratch, roots)
    check_home(toolrest_home(None, os.environ), (*roots, scratch))
    several = given["shard"] is not None or given["engine"] == "ray"
    alone = None if check_store(store, several=several) else Alone(store)
    check_not_cancelled(store)
    options = RunOptions(
        overrides, scratch, prices, given["lease"],
        given["keep_workspaces"], dict(given["retries"]),
    )  # fmt: skip
    changed = record_tasks(store, tasks, overrides)
    for ids, what in ((changed.prompt, "another prompt"), (changed.options, "other options")):
        if ids:
            _say(
                f"{len(ids)} result{'s' * (len(ids) != 1)} for {what} than the file's, of {ids[0]} "
                f"for one: toolrest batch retry {store.url} ID... --fresh runs them anew"
            )
    tasks = shard_of(tasks, given["shard"])
    if retry_failed:
        failed_before = failed_keys(store)
        keys_again = [task.key for task in tasks if task.key in failed_before]
        retry_tasks(store, keys_again, only_failed=True)
    try:
        counts, stopped = _engine(store, tasks, jobs, options, given, alone)
    except KeyboardInterrupt:
        _say(_GOES_ON)
        raise
    keys = {task.key for task in tasks}
    failed = sum(key in keys for key in failed_keys(store))
    if counts.stopped is not None:
        _say(f"stopped: {counts.stopped}")
    if failed:
        _say(
            f"{failed} failed: toolrest batch results {store.url} --failed shows them, "
            f"toolrest batch retry {store.url} lets them run again"
        )
    if stopped:
        _say(_GOES_ON)
    return 128 + stopped if stopped else 1 if failed or counts.open else 0


def _engine(
    store: Store, tasks: list[BatchTask], jobs: int, options: RunOptions, given: dict[str, Any],
    alone: Alone | None,
) -> tuple[BatchCounts, int]:  # fmt: skip

    runner = Runner.here()
    totals = Totals(
        store, runner, max_tokens=given["max_total_tokens"], max_cost=given["max_total_cost"]
    )
    if given["max_total_cost"] is not None and (count := totals.before().unpriced):
        _say(f"--max-total-cost does not count {count} earlier sessions whose cost is not known")
    with Progress(totals) as progress:
        if given["engine"] == "ray":
            # An extra, and slow.
            from toolrest.batch.ray_engine import RayEngine, RayOptions

            labels = dict(label.partition("=")[::2] for label in given["ray_labels"])
            where = RayOptions(given["ray_address"], given["ray_cpus"], given["ray_memory"], labels)
            engine: Any = RayEngine(store, options, totals, where, progress.say)
        else:
            engine = LocalEngine(store, options, totals, runner, progress.say)
        engine.alone = alone
        progress.counts = engine.counts
        asyncio.run(progress.beside(engine.run(tasks, jobs)))
    return engine.counts, engine.stopping.signal


def _scratch(given: str | None) -> str:
    if given is not None:
        return os.path.abspath(os.path.expanduser(given))
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(os.path.abspath(cache), "toolrest", "batch")


def _say(line: str) -> None:
    click.echo(without_users(line), err=True)
