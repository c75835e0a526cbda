"""Sessions that the page starts: `toolrest host` as children of the server, which end with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from toolrest.agent.history.rollout import read_rollout
from toolrest.agent.path_policy import tool_roots
from toolrest.batch.child import run_child
from toolrest.config.loader import load
from toolrest.control.controls import ControlError
from toolrest.errors import ToolrestError
from toolrest.own_code import child_environment

_MOST = 8
_MOST_TEXT = 200_000
_PATIENCE = 60.0


class HostedSessions:
    """The sessions that were started here, by their ids."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._running: dict[str, asyncio.Task[None]] = {}
        self._starting: set[asyncio.Task[None]] = set()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._running

    async def start(
        self, folder: str, text: str, used: Sequence[str] = (), options: Sequence[str] = ()
    ) -> str:
        """Start a session in a folder with its first message; its id. ControlError says why not.

        `used` are folders that other sessions may have written: no code is loaded from them.
        `options` are those of `toolrest host`.
        """
        if not text.strip() or len(text) > _MOST_TEXT:
            raise ControlError("write a message first")
        if len(self._running) + len(self._starting) >= _MOST:
            raise ControlError(f"{_MOST} sessions of this page run already; end one of them")
        opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self._run(folder, text, used, options, opened))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        try:
            async with asyncio.timeout(_PATIENCE):
                session_id = await opened
        except BaseException as error:
            task.cancel()
            if isinstance(error, TimeoutError):
                raise ControlError("the session did not start in time") from None
            raise
        self._running[session_id] = task
        self._starting.discard(task)
        task.add_done_callback(lambda _: self._running.pop(session_id, None))
        return session_id

    async def _run(
        self,
        folder: str,
        text: str,
        used: Sequence[str],
        options: Sequence[str],
        opened: asyncio.Future[str],
    ) -> None:
        def line(data: bytes) -> None:
            if not opened.done():
                opened.set_result(data.decode("ascii", "replace").strip())

        roots = await asyncio.to_thread(_roots, self._home, (folder, *used))
        end = await run_child(
            ("host", "-C", folder, *options, "-"),
            cwd=self._home,
            env=child_environment(os.environ, roots),
            stdin=text.encode("utf-8", "replace"),
            on_line=line,
        )
        if not opened.done():
            lines = end.stderr.strip().splitlines()
            reason = lines[-1] if lines else f"exit code {end.exit_code}"
            opened.set_exception(ControlError(f"the session did not start: {reason}"))

    async def end(self, session_id: str) -> None:
        """End a session that was started here."""
        task = self._running.get(session_id)
        if task is None:
            raise ControlError("this session was not started from this page")
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def aclose(self) -> None:
        """End every session that was started here."""
        tasks = [*self._starting, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_APPROVALS = ("untrusted", "on-request", "on-failure", "never", "auto", "strict")


def resumed(path: str, session_id: str, wanted: str) -> tuple[str, Sequence[str]]:
    """The folder of a session, and options that resume it: its last limits, or narrower ones.

    ControlError where they are not recorded, or were none.
    """
    rollout = read_rollout(path)
    policy = rollout.context.get("sandbox_policy")
    sandbox = policy.get("type") if isinstance(policy, dict) else None
    if sandbox == "danger-full-access":
        raise ControlError("it had full access: resume it in a terminal")
    narrow = wanted == "read-only" or sandbox != "workspace-write"
    asked = rollout.context.get("approval_policy")
    approval = asked if asked in _APPROVALS else "untrusted"
    limits = ("-s", "read-only" if narrow else "workspace-write", "-a", str(approval))
    return str(rollout.meta.get("cwd") or ""), ("--resume", session_id, *limits)


def _roots(home: str, folders: Iterable[str]) -> list[str]:
    """Where the sessions of these folders may write."""
    roots: list[str] = []
    for folder in dict.fromkeys(folders):
        roots.append(folder)
        with suppress(ToolrestError):  # with wrong settings no session begins there
            roots += tool_roots(load(home=home, workspace=folder, surface="cli"))
    return roots
