"""A batch without a store: one `exec` a task in the user's home, one result a line in a file."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from toolrest.batch.child import ChildEnd, run_child
from toolrest.batch.stopping import Stopping
from toolrest.batch.tasks.task import BatchTask
from toolrest.config.files import toolrest_home
from toolrest.own_code import child_environment
from toolrest.policy.paths.named_files import append_named, read_named, write_named
from toolrest.private_files import make_private, write_all

_STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)


def ended_tasks(results: str, roots: Sequence[str]) -> dict[str, Any]:
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


def tasks_environment(home: str, roots: Sequence[str]) -> dict[str, str]:
    """The variables of tasks: without those that bring code, with absolute paths."""
    env = child_environment(os.environ, roots) | {"TOOLREST_HOME": home}
    if log := env.get("TOOLREST_LOG"):
        env["TOOLREST_LOG"] = os.path.abspath(os.path.expanduser(log))
    return env


class ResultsFile:
    """Runs tasks, each in a process of its own: one that dies takes no other with it."""

    def __init__(
        self,
        results: str,
        events: str | None,
        overrides: tuple[str, ...],
        roots: tuple[str, ...],
        say: Callable[[str], None],
    ) -> None:
        self._say = say
        self._results = results
        self._events = events
        self._overrides = [word for one in overrides for word in ("-c", one)]
        self._roots = roots
        self._home = toolrest_home(None, os.environ)
        make_private(self._home)
        self._env = tasks_environment(self._home, roots)
        self.failed = 0
        self.stopping = Stopping()

    async def run(self, tasks: list[BatchTask], jobs: int) -> None:
        """All of them, at most `jobs` at a time."""
        places = asyncio.Semaphore(jobs)

        async def one(task: BatchTask) -> None:
            async with places:
                await self._run(task)

        with self.stopping.cancels_this_task():
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(one(task))

    async def _run(self, task: BatchTask) -> None:
        lines: list[bytes] = []
        where = ["--cd", task.folder or "."]
        # A stopped task has no result, and runs again.
        end = await run_child(
            ["exec", "--json", *self._overrides, *where, *task.arguments(), "-"],
            cwd=self._home,
            env=self._env,
            stdin=task.prompt.encode(),
            on_line=lines.append if self._events is not None else None,
        )
        if end.exit_code in _STOPPED:
            # Ctrl-C reaches it before us: it did not come to an end, and runs again as well.
            self.failed += 1
            self._say(f"{task.id}: stopped")
            return
        self._finish(task, b"".join(lines), end)

    def _finish(self, task: BatchTask, events: bytes, end: ChildEnd) -> None:
        row = {"id": task.id, "exit_code": end.exit_code, **end.summary}
        if end.exit_code:
            row["stderr"] = end.stderr
        line = json.dumps(row, ensure_ascii=False) + "\n"
        try:
            if self._events is not None:
                name = "".join(c if c.isalnum() or c in "-_." else "_" for c in task.id)[:100]
                write_named(os.path.join(self._events, f"{name}.jsonl"), events, self._roots)
            results = append_named(self._results, self._roots)
            try:
                # One write a line: results of several tasks never mix.
                write_all(results, line.encode("utf-8", "replace"))
            finally:
                os.close(results)
        except OSError as error:
            # A tool of a task may have put something there: it has no result, and runs again.
            self.failed += 1
            self._say(f"{task.id}: cannot write {error.filename}: {error.strerror}")
            return
        self.failed += end.exit_code != 0
        self._say(f"{task.id}: {row.get('reason', 'died')}")
