"""One attempt at a task: its home and workspace, the `exec`, the check, the artifacts."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any, BinaryIO

from toolrest.batch.child import ChildEnd, run_child
from toolrest.batch.failures import failure_class
from toolrest.batch.prices import Prices, no_price
from toolrest.batch.stores.addresses import without_users
from toolrest.batch.stores.threads import in_thread
from toolrest.batch.stores.totals import used_marker
from toolrest.batch.tasks import journal
from toolrest.batch.tasks.nested import pack
from toolrest.batch.tasks.records import content
from toolrest.batch.tasks.setup import ARCHIVE, TaskSetup, seconds_of
from toolrest.batch.tasks.task import BatchTask, limit_arguments
from toolrest.batch.tasks.workspace import Patch, Workspace
from toolrest.config.loader import load
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.process.output.head_tail import HeadTail

_log = logging.getLogger("toolrest")
_CHECKED = (None, "budget", "timeout", "answer", "denied")
"""Ends after which the check runs: the model had its say."""
OF_THE_END = ("answer.md", "check.txt", "nested.tar.gz", "stderr.txt")
"""Artifacts of a result alone: one that has none of them leaves none of an earlier one."""
_MOST_CHECK_OUTPUT = 1 << 20
_LIMIT_SECONDS = 1.0


class Attempt:
    """One run of `exec` on a task, resumed where there is a journal."""

    def __init__(
        self, setup: TaskSetup, earlier: list[JSONObject], row: JSONObject, prices: Prices
    ) -> None:
        self._setup = setup
        self._task = setup.task
        self._earlier = earlier
        self._row = row
        self._prices = prices
        self._end = ChildEnd(0)
        self._used = journal.Used()
        self._check: JSONObject = {}
        self._check_output = b""
        self._patch: Patch | None = None
        self._nested: bytes | None = None
        self._archive: bytes | None = None
        self._archive_error: str | None = None
        self._patch_error: str | None = None
        self._nested_error: str | None = None
        self._over: tuple[str, str] | None = None
        self.failure: str | None = None

    def fail(self, failure: str, message: str) -> None:
        """End it as failed for a reason outside of `exec`."""
        self.failure = failure
        error = without_users(message)
        self._end.summary |= {"status": "failed", "reason": failure, "error": error}

    async def take_earlier(self) -> None:
        """Take what earlier attempts did as the result, and run nothing."""
        setup = self._setup
        await setup.prepare(self._earlier)
        self._used = journal.used_in(setup.journal)
        if setup.journal is not None:
            self._note_session(_thread_id(setup.journal))

    async def run(self, recorded: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run it; `recorded` is awaited once the attempt's row has its session."""
        setup = self._setup
        await setup.prepare(self._earlier)
        workspace = setup.workspace
        assert workspace is not None  # noqa: S101
        self._row |= {"base": workspace.base, "place": setup.place}
        self._used = journal.used_in(setup.journal)
        left = self._left()
        used_up = [name for name, value in left.items() if value <= 0]
        if used_up:
            self.fail("timeout" if used_up == ["timeout"] else "budget", f"{used_up[0]} is used up")
            return
        self._over = self._too_dear(self._used)
        if self._over is not None:
            self.fail(*self._over)
            return
        self._row["resumed"] = setup.journal is not None
        arguments = ["exec", "--json", *setup.overrides, "--cd", workspace.path]
        arguments += self._sandbox(workspace)
        # Its first line comes at once: a runner that is stopped early knows the session.
        arguments += ["-c", "sandbox.accept_weak=true"]
        arguments += _options(self._task)
        arguments += limit_arguments(left)
        if setup.journal is not None:
            thread = _thread_id(setup.journal)
            self._note_session(thread)
            await recorded()  # that the work is here now, before any of it is stored
            arguments += ["--resume", thread, "--continue"]
        else:
            arguments += ["-"]
        pending: list[asyncio.Task[None]] = []

        def on_line(line: bytes) -> None:
            events.write(line)
            if not pending and b'"thread.started"' in line and setup.journal is None:
                self._note_session(json.loads(line)["thread_id"])
                pending.append(asyncio.create_task(recorded()))
            setup.sync_soon()

        with _append(setup.events) as events:
            child = asyncio.ensure_future(
                run_child(
                    arguments,
                    cwd=setup.state,
                    env=setup.environment(),
                    stdin=b"" if setup.journal is not None else self._task.prompt.encode(),
                    on_line=on_line,
                )
            )
            watching = asyncio.ensure_future(self._watch_cost(child))
            try:
                self._end = await child
            except asyncio.CancelledError:
                if self._over is None:
                    raise
                self._end = ChildEnd(143)
            finally:
                watching.cancel()
                await asyncio.gather(*pending, return_exceptions=True)
                await setup.settle()
        self._conclude()

    def _conclude(self) -> None:
        end = self._end
        self._used = journal.used_in(self._setup.journal)
        self.failure = failure_class(end.summary.get("reason"), end.exit_code, end.oom)
        if self._over is not None:
            self.fail(*self._over)

    def _note_session(self, thread_id: str) -> None:
        setup = self._setup
        setup.journal = journal.journal_of(setup.home, thread_id)
        self._row["thread_id"] = thread_id
        if setup.journal is not None:
            self._row["journal"] = os.path.relpath(setup.journal, setup.home)

    def _left(self) -> dict[str, float]:
        """What earlier attempts of this run have left of the limits."""
        used = {
            "max_turns": self._used.turns,
            "max_tool_calls": self._used.tool_calls,
            "max_tokens": self._used.tokens,
            "timeout": seconds_of(self._earlier),
        }
        return {name: value - used[name] for name, value in self._task.limits.items()}

    def _sandbox(self, workspace: Workspace) -> list[str]:
        if "sandbox" in self._task.options or not workspace.is_ours:
            return []
        return ["--sandbox", "workspace-write"]

    async def _watch_cost(self, child: asyncio.Task[ChildEnd]) -> None:
        """Stop a task that costs more than its `max_cost`."""
        while self._task.max_cost is not None:
            await asyncio.sleep(_LIMIT_SECONDS)
            used = await asyncio.to_thread(journal.used_in, self._setup.journal)
            self._over = self._too_dear(used)
            if self._over is not None:
                child.cancel()
                return

    def _too_dear(self, used: journal.Used) -> tuple[str, str] | None:
        """The failure and the message of a task that may not cost more, or whose cost is unknown.

        A limit that cannot be kept stops the task: it would spend without end.
        """
        most = self._task.max_cost
        if most is None:
            return None
        unknown = [model for model in used.spent if self._prices.price(model) is None]
        if unknown:
            return "usage", f"`max_cost` is set, and {no_price(unknown[0])}"
        cost = self._prices.of(used.spent) or 0.0
        if cost < most:
            return None
        return "budget", f"it has cost ${cost:.4f}, and max_cost is {most:g}"

    # The end

    async def check(self) -> None:
        """Run the task's check in the sandbox that its commands had, for a score."""
        task, workspace = self._task, self._setup.workspace
        if task.check is None or workspace is None or self.failure not in _CHECKED:
            return
        kept = HeadTail(_MOST_CHECK_OUTPUT)
        start, errors = time.monotonic(), b""
        words = ["sandbox", "-C", workspace.path, *self._check_sandbox(workspace)]
        words += ["--", "/bin/sh", "-c", task.check]
        try:
            async with asyncio.timeout(task.check_timeout):
                end = await run_child(
                    words, cwd=self._setup.state, env=self._setup.environment(), on_line=kept.add
                )
        except TimeoutError:
            self._check = {"exit_code": None, "score": 0.0, "error": "the check took too long"}
        except Exception as error:  # one task must not take the others with it
            _log.exception("a check ended by an error in Toolrest itself")
            message = f"{type(error).__name__}: {error}"
            self._check = {"exit_code": None, "score": None, "error": message}
        else:
            self._check = {"exit_code": end.exit_code, "score": _score(end, _text(kept))}
            errors = end.stderr.encode()
            if self._check["score"] is None:
                self._check["error"] = end.stderr.strip()
        self._check["seconds"] = round(time.monotonic() - start, 3)
        self._check_output = await asyncio.to_thread(self._redacted, _text(kept) + errors)

    def _redacted(self, output: bytes) -> bytes:
        """What a check printed, without secrets, as what a session's commands print."""
        # It is slow to import, and most tasks have no check.
        from toolrest.agent.setup.session import redactor_for

        try:
            config = load(home=self._setup.home, overrides=self._setup.settings, surface="cli")
            redactor = redactor_for(config, os.environ)
        except ConfigError as error:
            return f"[not kept, for its secrets cannot be told: {error}]\n".encode()
        text = output.decode("utf-8", "surrogateescape")
        return redactor.redact(text).encode("utf-8", "surrogateescape")

    def _check_sandbox(self, workspace: Workspace) -> list[str]:
        """The options of `toolrest sandbox` for the sandbox that the session's commands had."""
        options, setup = self._task.options, self._setup
        mode = options.get("sandbox") or ("workspace-write" if workspace.is_ours else None)
        mode = mode or journal.sandbox_mode_in(setup.journal) or "read-only"
        profile = ["--profile", options["profile"]] if "profile" in options else []
        return ["-s", mode, "--network", "settings", *profile, *setup.overrides]

    async def take_patch(self) -> None:
        """Take the changes of a worktree; a worktree whose changes cannot be taken is a failure.

        Of a folder that was made without a repository, take the files.
        """
        workspace = self._setup.workspace
        if workspace is None:
            return
        if workspace.base is None:
            try:
                self._archive = await self._setup.archive()
            except Exception as error:  # its workspace is kept
                self._archive_error = str(error) or type(error).__name__
            return
        try:
            self._patch = await self._setup.patch()
        except Exception as error:  # one task must not take the others with it
            self._patch_error = str(error) or type(error).__name__
            if self.failure is None:
                self.fail("patch", f"cannot take its changes: {self._patch_error}")
            return
        if self._patch.left_out:
            try:
                self._nested = await asyncio.to_thread(pack, workspace.path, self._patch.left_out)
            except Exception as error:  # its workspace is kept
                self._nested_error = str(error) or type(error).__name__

    @property
    def is_stored_whole(self) -> bool:
        """Whether everything in a workspace of ours could be taken."""
        return not (self._patch_error or self._nested_error or self._archive_error)

    def result(self) -> JSONObject:
        """The task's result, as far as this attempt knows it."""
        summary: dict[str, Any] = self._end.summary
        result: JSONObject = {
            "id": self._task.id,
            "failure": self.failure,
            "exit_code": self._end.exit_code,
            **{name: summary.get(name) for name in ("status", "reason", "text")},
            "model": self._used.model,
            "thread_id": self._row.get("thread_id"),
            **self._used.to_json(),
            "cost": self._prices.of(self._used.spent),
            "denials": summary.get("denials", []),
        }
        if self._check:
            result["check"] = self._check
        if self._patch_error is not None:
            result["patch_error"] = self._patch_error
        if self._patch is not None and self._patch.left_out:
            result["nested_repositories"] = self._patch.left_out
        if self._nested_error is not None:
            result["nested_error"] = self._nested_error
        if self._archive_error is not None:
            result["workspace_error"] = self._archive_error
        if self.failure is not None:
            result |= {"error": summary.get("error"), "stderr": self._end.stderr}
        return result

    async def store_artifacts(self) -> None:
        """Write everything but the result into the store."""
        setup = self._setup
        thread_id, tokens = self._row.get("thread_id"), self._used.tokens
        if thread_id is not None and tokens:
            marker = used_marker(thread_id, tokens, self._prices.of(self._used.spent))
            await in_thread(setup.store.write, marker, b"")
        text = self._end.summary.get("text")
        found = {
            "answer.md": text.encode("utf-8", "replace") if isinstance(text, str) else None,
            "journal.jsonl": content(setup.journal),
            "check.txt": self._check_output or None,
            "patch.diff": self._patch.data if self._patch is not None else None,
            "nested.tar.gz": self._nested,
            "stderr.txt": self._end.stderr.encode() or None,
            ARCHIVE: self._archive,
        }
        if setup.workspace is not None:  # else what others have stored was not taken up
            found |= await asyncio.to_thread(setup.records.found)
        for name, data in found.items():
            if data is not None:
                await setup.write(name, data)
            elif self._earlier and name in OF_THE_END:
                await in_thread(setup.store.delete, f"{setup.folder}/{name}")


def _options(task: BatchTask) -> list[str]:
    return BatchTask(task.id, "", None, task.options).arguments()


def _score(end: ChildEnd, output: bytes) -> float | None:
    """The check's last line where that is a number of 0 to 1, else whether it succeeded."""
    if end.exit_code == 2 and end.stderr.startswith("toolrest: "):
        return None  # there was no sandbox to run it in
    try:
        score = float(output.strip().rpartition(b"\n")[2])
    except ValueError:
        score = -1.0
    return score if 0 <= score <= 1 and end.exit_code == 0 else float(end.exit_code == 0)


def _text(kept: HeadTail) -> bytes:
    piece = kept.piece()
    gap = f"\n[{piece.omitted} bytes left out]\n".encode() if piece.omitted else b""
    return piece.head + gap + piece.tail


def _thread_id(path: str) -> str:
    """The session of a journal."""
    return os.path.basename(path)[len("rollout-0000-00-00T00-00-00-") : -6]


def _append(path: str) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
