"""`toolrest batch`: many tasks from a file, several at a time, each of them one `exec`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import click
from msgspec import Struct, field

from toolrest.agent.path_policy import tool_roots
from toolrest.config.files import toolrest_home
from toolrest.config.loader import load
from toolrest.errors import ConfigError
from toolrest.own_code import child_environment
from toolrest.policy.paths.named_files import (
    append_named,
    check_named,
    make_named_folder,
    read_named,
    write_named,
)
from toolrest.private_files import make_private, write_all

_STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)
_OPTIONS = {
    "cd": "--cd",
    "model": "--model",
    "sandbox": "--sandbox",
    "approval": "--ask-for-approval",
    "profile": "--profile",
    "tools": "--tools",
    "output_schema": "--output-schema",
    "max_turns": "--max-turns",
    "max_tool_calls": "--max-tool-calls",
    "max_tokens": "--max-tokens",
    "timeout": "--timeout",
}
_PATHS = ("cd", "output_schema")


@click.command("batch")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("-j", "--jobs", type=click.IntRange(1, 256), default=4, show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Where results go [FILE.results.jsonl].")
@click.option("--events", metavar="DIR", help="Keep the JSON lines of each task in this folder.")
@click.option("--retry-failed", is_flag=True, help="Run those again that have failed.")
@click.option("-c", "--config", "overrides", multiple=True, metavar="KEY=VALUE")
def command(
    file: str,
    jobs: int,
    output: str | None,
    events: str | None,
    retry_failed: bool,
    overrides: tuple[str, ...],
) -> None:
    """Run every task of FILE, one JSON object a line, and write one result a line.

    A task has a `prompt` and may have an `id` (else its line number) and the options of exec:
    cd, model, sandbox, approval, profile, tools, output_schema, max_turns, max_tool_calls,
    max_tokens, timeout. What has a result already is not run again, so a batch that was stopped
    goes on where it was. A task that is run again adds a line: its last one counts.

    \b
    {"id": "a", "prompt": "add type hints", "cd": "/repos/a", "max_turns": 40}
    """
    tasks = list(read_tasks(file))
    roots = _roots(tasks, overrides)
    results = output or f"{file}.results.jsonl"
    try:
        check_named(results, roots)
        ended = _ended(results, roots)
        if events is not None:
            make_named_folder(events, roots)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None
    done = {name for name, code in ended.items() if code == 0 or not retry_failed}
    waiting = [task for task in tasks if task.id not in done]
    click.echo(f"{len(waiting)} of {len(tasks)} tasks to run, {jobs} at a time", err=True)
    batch = Batch(results, events, overrides, roots)
    asyncio.run(batch.run(waiting, jobs))
    before = sum(task.id in done and ended[task.id] != 0 for task in tasks)
    if before:
        click.echo(f"{before} failed in an earlier run; --retry-failed runs them again", err=True)
    sys.exit(143 if batch.terminated else 1 if batch.failed or before else 0)


def _roots(tasks: Sequence[BatchTask], overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Where the tools of any task may write."""
    known = tool_roots(load(workspace=os.getcwd(), overrides=overrides, surface="cli"))
    return (*known, *{os.path.realpath(task.folder) for task in tasks})


class BatchTask(Struct):
    """One line of the file."""

    id: str
    prompt: str
    folder: str
    arguments: list[str] = field(default_factory=list)


def read_tasks(path: str) -> Iterator[BatchTask]:
    """The tasks of a file; ConfigError names the line that is none."""
    seen: set[str] = set()
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            task = _task(line, f"{path}, line {number}", str(number))
            if task.id in seen:
                raise ConfigError(f"{path}, line {number}: the id {task.id!r} is there twice")
            seen.add(task.id)
            yield task


def _task(line: str, where: str, number: str) -> BatchTask:
    try:
        values: Any = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    if not isinstance(values, dict) or not isinstance(values.get("prompt"), str):
        raise ConfigError(f"{where}: a task is an object with a `prompt`")
    unknown = values.keys() - _OPTIONS.keys() - {"id", "prompt"}
    if unknown:
        raise ConfigError(f"{where}: there is no option {sorted(unknown)[0]!r}")
    values["cd"] = values.get("cd") or "."
    arguments = []
    for name, option in _OPTIONS.items():
        value = values.get(name)
        if value is None:
            continue
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise ConfigError(f"{where}: `{name}` must be a text or a number")
        # Tasks run in a folder of ours.
        arguments += [option, os.path.abspath(str(value)) if name in _PATHS else str(value)]
    folder = os.path.abspath(str(values["cd"]))
    return BatchTask(str(values.get("id", number)), values["prompt"], folder, arguments)


def _ended(results: str, roots: Sequence[str]) -> dict[str, Any]:
    """The exit codes of tasks that have a result; a line that a crash cut is none."""
    found: dict[str, Any] = {}
    with suppress(FileNotFoundError):
        for line in read_named(results, roots).splitlines():
            try:
                row = json.loads(line)
                found[str(row["id"])] = row.get("exit_code")
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
    return found


class Batch:
    """Runs tasks, each in a process of its own: one that dies takes no other with it."""

    def __init__(
        self, results: str, events: str | None, overrides: tuple[str, ...], roots: tuple[str, ...]
    ) -> None:
        self._results = results
        self._events = events
        self._overrides = [word for one in overrides for word in ("-c", one)]
        self._roots = roots
        self._home = toolrest_home(None, os.environ)
        make_private(self._home)
        self._env = child_environment(os.environ, roots) | {"TOOLREST_HOME": self._home}
        if log := self._env.get("TOOLREST_LOG"):
            self._env["TOOLREST_LOG"] = os.path.abspath(os.path.expanduser(log))
        self.failed = 0
        self.terminated = False

    async def run(self, tasks: list[BatchTask], jobs: int) -> None:
        """All of them, at most `jobs` at a time."""
        places = asyncio.Semaphore(jobs)

        async def one(task: BatchTask) -> None:
            async with places:
                await self._run(task)

        loop, running = asyncio.get_running_loop(), asyncio.current_task()

        def stop() -> None:
            self.terminated = True
            if running is not None:
                running.cancel()

        loop.add_signal_handler(signal.SIGTERM, stop)
        try:
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(one(task))
        except asyncio.CancelledError:
            if not self.terminated:
                raise
        finally:
            loop.remove_signal_handler(signal.SIGTERM)

    async def _run(self, task: BatchTask) -> None:
        # Without -P and in the workspace, Python would take a `toolrest.py` there for us.
        command = [sys.executable, "-P", "-m", "toolrest", "exec", "--json", *self._overrides]
        process = await asyncio.create_subprocess_exec(
            *command, *task.arguments, "-",
            cwd=self._home,
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            out, _ = await process.communicate(task.prompt.encode())
        except asyncio.CancelledError:
            # The signal makes it record that it was stopped; the task has no result and runs again.
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise
        if process.returncode in _STOPPED:
            # Ctrl-C reaches it before us: it did not come to an end, and runs again as well.
            self.failed += 1
            click.echo(f"{task.id}: stopped", err=True)
            return
        self._finish(task, out.decode("utf-8", "replace"), process.returncode or 0)

    def _finish(self, task: BatchTask, out: str, code: int) -> None:
        row = {"id": task.id, "exit_code": code, **_summary(out)}
        line = json.dumps(row, ensure_ascii=False) + "\n"
        try:
            if self._events is not None:
                name = "".join(c if c.isalnum() or c in "-_." else "_" for c in task.id)[:100]
                path = os.path.join(self._events, f"{name}.jsonl")
                write_named(path, out.encode(), self._roots)
            results = append_named(self._results, self._roots)
            try:
                # One write a line: results of several tasks never mix.
                write_all(results, line.encode("utf-8", "replace"))
            finally:
                os.close(results)
        except OSError as error:
            # A tool of a task may have put something there: it has no result, and runs again.
            self.failed += 1
            click.echo(f"{task.id}: {error.filename} cannot be written: {error.strerror}", err=True)
            return
        self.failed += code != 0
        click.echo(f"{task.id}: {row.get('reason', 'died')}", err=True)


def _summary(out: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    message = None
    for line in out.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        kind = event.get("type")
        if kind == "thread.started":
            found["thread_id"] = event.get("thread_id")
        elif kind == "item.completed" and event["item"].get("type") == "agent_message":
            found["text"] = event["item"].get("text")
        elif kind in ("error", "turn.failed"):
            message = event.get("error", event).get("message")
        elif kind == "result":
            found |= {key: event.get(key) for key in ("status", "reason", "usage", "denials")}
    if message is not None and found.get("status") != "completed":
        found["error"] = message
    return found
