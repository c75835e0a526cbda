"""The connection to one server: a task that starts it, listens to it, and restarts it when lost.

Everything is entered and left in that task, so nothing of one server can end another's work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from toolrest.items import JSONObject
from toolrest.mcp.definitions import Definition, read_definitions
from toolrest.mcp.errors import McpError, McpUnavailable
from toolrest.mcp.launch import withheld_hint
from toolrest.mcp.transports.host import FolderDenial, Host, Wire, open_wire
from toolrest.process.wakeup import Wakeup

if TYPE_CHECKING:
    from toolrest.mcp.conversation import OnProgress, Talk
    from toolrest.mcp.servers import Server

State: TypeAlias = Literal["configured", "starting", "ready", "degraded", "failed"]

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 30.0
TRIES = 5
"""Automatic attempts to reconnect; after these only on request."""
_STEADY = 30.0
_HASTY = 2.0
_CLOSING = 3.0
_CLOSING_TRIES = 3


class McpNeverStarts(McpError):
    """The server is not started in this session: its settings or the user refuse it."""


class Status(Struct, frozen=True):
    """The state of one server, for people and models."""

    name: str
    state: State
    reason: str
    tools: tuple[str, ...]
    rejected: Mapping[str, str]
    transport: str
    target: str

    def line(self) -> str:
        """The status as one line."""
        if self.state in ("ready", "configured") and not self.reason:
            return f"{self.name}: {self.state}, {len(self.tools)} tools"
        return f"{self.name}: {self.state}{f' ({self.reason})' if self.reason else ''}"


class Connection:
    """A connection: the server's state, its tools, and requests to it."""

    def __init__(
        self,
        server: Server,
        host: Host,
        prepare: Callable[[], Awaitable[None]],
        on_change: Callable[[Connection], None],
    ) -> None:
        self.server = server
        self.state: State = "configured"
        self.reason = ""
        self.definitions: dict[str, Definition] = {}
        self.rejected: dict[str, str] = {}
        self.listed = False
        self.offline = False
        """Whether a sandbox holds the server off the network."""
        self.info: JSONObject = {}
        self.instructions: str | None = None
        self.capabilities: JSONObject = {}
        self._host = host
        self._prepare = prepare
        self._on_change = on_change
        self._talk: Talk | None = None
        self._task: asyncio.Task[None] | None = None
        self._wakeup = Wakeup()
        self._nudge = asyncio.Event()
        self._stale = False
        self._lost = ""
        self._retry_at = 0.0
        self._wanted = asyncio.Event()

    # For everybody else

    def status(self) -> Status:
        """The server's status now."""
        server = self.server
        return Status(
            server.name,
            self.state,
            self.reason,
            tuple(sorted(self.definitions)),
            dict(self.rejected),
            server.transport,
            server.target,
        )

    def start(self) -> None:
        """Begin to connect, unless that has begun."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def ready(self) -> Talk:
        """The open session, once the server has started; McpUnavailable if it does not."""
        self.start()
        if self.state == "failed":
            if asyncio.get_running_loop().time() < self._retry_at:
                raise McpUnavailable(self.reason)
            self._set("starting", "")
            self._wanted.set()
        while self._talk is None:
            if self.state == "failed":
                raise McpUnavailable(self.reason)
            if self._task is None or self._task.done():
                raise McpUnavailable("the session is closed")
            await self._wakeup.wait()
        return self._talk

    async def soon_ready(self, seconds: float) -> None:
        """Return when the server is ready; McpUnavailable if it failed, or is not ready by then."""
        if self.state == "failed":
            raise McpUnavailable(self.reason)
        try:
            async with asyncio.timeout(seconds):
                await self.ready()
        except TimeoutError:
            raise McpUnavailable(
                f"it is still starting; ask again in a moment, for the server {self.server.name}"
            ) from None

    async def settled(self) -> None:
        """Wait until the server is ready or has failed."""
        self.start()
        while self.state in ("configured", "starting") and self._task and not self._task.done():
            await self._wakeup.wait()

    async def request(
        self,
        method: str,
        params: JSONObject | None,
        *,
        at_most: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> JSONObject:
        """Send a request to the server, within its `tool_timeout_sec`."""
        talk = await self.ready()
        try:
            return await talk.request(
                method,
                params,
                seconds=self.server.row.tool_timeout_sec,
                at_most=at_most,
                on_progress=on_progress,
            )
        except McpUnavailable as error:
            self._note_loss(talk, str(error))
            raise

    async def note_on(self, error: str) -> str:
        """A note on an error in which the sandbox kept a folder from the server; else empty.

        The user is asked about the folder. With the approval the server is started again.
        """
        talk, denial = self._talk, await self._denied(error)
        if denial is not None and denial.approved and talk is not None:
            self._note_loss(talk, "it is started again with the folder that was approved")
        return "" if denial is None else f"[toolrest] {denial.note}"

    async def pages(self, method: str, key: str) -> list[object]:
        """All entries of one of the server's lists."""
        talk = await self.ready()
        return await talk.pages(method, key, self.server.row.tool_timeout_sec)

    async def aclose(self) -> None:
        """End the server and its task."""
        task, self._task = self._task, None
        if task is None:
            return
        for _ in range(_CLOSING_TRIES):
            # Once is enough for a program; closing a server over HTTP may be slow.
            task.cancel()
            await asyncio.wait({task}, timeout=_CLOSING)
            if task.done():
                break
        self._wakeup.notify()

    # The task

    async def _run(self) -> None:
        losses = 0
        loop = asyncio.get_running_loop()
        while True:
            if self.state != "degraded":
                self._set("starting", "")
            began = loop.time()
            was_ready, reason, for_good = await self._once()
            losses = 0 if was_ready and loop.time() - began > _STEADY else losses + 1
            pause = min(FIRST_PAUSE * 2 ** (losses - 1), LONGEST_PAUSE) if losses else FIRST_PAUSE
            # A program that ends at once often failed by accident; one that hangs did not.
            hasty = losses == 1 and not self.listed and loop.time() - began < _HASTY
            if not for_good and (denial := await self._denied(reason)) is not None:
                if denial.approved:
                    losses = 0
                    continue
                reason = f"{reason}; {denial.note}"
            again = was_ready or self.state == "degraded"
            if hasty and not again and not for_good:
                await asyncio.sleep(pause)
                continue
            if again and losses < TRIES and not for_good:
                self._set("degraded", reason)
                await asyncio.sleep(pause)
                continue
            self._retry_at = float("inf") if for_good else loop.time() + pause
            self._wanted.clear()
            self._set("failed", reason)
            await self._wanted.wait()

    async def _once(self) -> tuple[bool, str, bool]:
        """One connection: whether it was ever ready, the reason of its end, whether for good."""
        was_ready = False
        try:
            if self.server.problem is not None:
                raise McpNeverStarts(self.server.problem)
            await self._prepare()
            await self._permitted()
            async with AsyncExitStack() as stack:
                opened = await self._open(stack)
                if isinstance(opened, str):
                    return False, opened, False
                was_ready = True
                try:
                    return True, await self._attend(*opened), False
                finally:
                    self._talk = None
        except McpNeverStarts as error:
            return was_ready, str(error), True
        except Exception as error:
            return was_ready, error_message(error), False

    async def _denied(self, text: str) -> FolderDenial | None:
        denied = self._host.denied
        return None if denied is None else await denied(self.server, text)

    async def _permitted(self) -> None:
        refused = self._host.may_connect(self.server)
        if refused is None and self._host.may_start is not None:
            refused = await self._host.may_start(self.server)
        if refused is not None:
            raise McpNeverStarts(refused)

    async def _open(self, stack: AsyncExitStack) -> tuple[Talk, Wire] | str:
        """Connect, initialize, list the tools; return the reason if that fails.

        Reasons are returned, not raised: what passes through the SDK's task groups comes out
        wrapped in groups of exceptions.
        """
        # It loads the SDK, which `_prepare` has done beside the event loop.
        from toolrest.mcp.conversation import talk_over

        limit = self.server.row.startup_timeout_sec
        wire: Wire | None = None
        try:
            async with asyncio.timeout(limit):
                wire = await stack.enter_async_context(open_wire(self.server, self._host))
                wire.read.on_end = self._nudge.set
                talk = await stack.enter_async_context(
                    talk_over(wire, self._host, self.server, self._on_notice)
                )
                await talk.initialize(newer_first=wire.is_modern)
                await self._take(talk)
        except TimeoutError:
            output = wire.last_output() if wire is not None else ""
            return f"it did not get ready within {limit:g} s (startup_timeout_sec){output}"
        except Exception as error:
            if wire is None:
                return error_message(error)
            if wire.read.ended.is_set() or isinstance(error, McpUnavailable):
                return self._with_hint(await wire.ending())
            return error_message(error) + wire.last_output()
        self._stale, self._lost = False, ""
        self.info, self.instructions = talk.server_info, talk.instructions
        self.capabilities = talk.capabilities
        self._talk, self.offline = talk, wire.offline
        self._set("ready", "")
        return talk, wire

    def _with_hint(self, ending: str) -> str:
        """The reason, with a hint at withheld variables that the program may have needed."""
        return ending + withheld_hint(ending, self.server, self._host.environ)

    async def _attend(self, talk: Talk, wire: Wire) -> str:
        """Wait until the connection is lost; list the tools again on the server's notification."""
        watching = asyncio.ensure_future(talk.watch())
        try:
            return await self._lost_connection(talk, wire)
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _lost_connection(self, talk: Talk, wire: Wire) -> str:
        while True:
            await self._nudge.wait()
            self._nudge.clear()
            if wire.read.ended.is_set():
                return await wire.ending()
            if self._lost:
                return self._lost
            if self._stale:
                self._stale = False
                try:
                    await self._take(talk)
                except McpError as error:
                    self.reason = f"its tools could not be listed again: {error}"
                self._notify()

    async def _take(self, talk: Talk) -> None:
        raw = await talk.tools(self.server.row.startup_timeout_sec)
        # A large schema takes its time.
        self.definitions, self.rejected = await asyncio.to_thread(self._read, raw, talk.rejected)
        self.listed = True

    def _read(
        self, raw: list[object], forbidden: Mapping[str, str]
    ) -> tuple[dict[str, Definition], dict[str, str]]:
        """The tools that can be used, and the reasons for those that cannot."""
        good, bad = read_definitions(self.server.name, raw)
        unusable = dict(forbidden)
        for name, definition in good.items():
            reason = self._host.check(self.server, definition) if self.server.offers(name) else None
            if reason is not None:
                unusable[name] = reason
        return (
            {n: d for n, d in good.items() if n not in unusable and self.server.offers(n)},
            {n: why for n, why in {**bad, **unusable}.items() if self.server.offers(n)},
        )

    def _on_notice(self, method: str) -> None:
        if method == "notifications/tools/list_changed":
            self._stale = True
            self._nudge.set()

    def _note_loss(self, talk: Talk, reason: str) -> None:
        if self._talk is talk:
            self._talk = None
            self._lost = reason
            self.state = "degraded"
            self._nudge.set()

    def _set(self, state: State, reason: str) -> None:
        reason = self._host.redact(reason)
        changed = (state, reason) != (self.state, self.reason)
        self.state, self.reason = state, reason
        if changed:
            self._notify()

    def _notify(self) -> None:
        self._wakeup.notify()
        self._on_change(self)


def silence_sdk() -> None:
    """Keep the SDK's log about faulty servers from the terminal, where nobody else handles it."""
    for name in ("mcp", "client"):
        logging.getLogger(name).addHandler(logging.NullHandler())


def error_message(error: BaseException) -> str:
    """The message of an error, out of any exception groups that wrap it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, McpError):
        return str(error)
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
