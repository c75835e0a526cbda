"""The context of a call, which a tool gets: files, events, cancellation, approval."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from toolrest.errors import RespondToModel
from toolrest.events import Custom, Event, ToolCallDelta, ToolCallProgress
from toolrest.gate.threads import run_in_thread

if TYPE_CHECKING:
    # At run time a plain TypeVar does, and typing_extensions would cost more than this module.
    from typing_extensions import TypeVar as TypeVarWithDefault

    from toolrest.gate.approval.request import ApprovalRequest, Review
    from toolrest.gate.approval.user_questions import UserQuestion
    from toolrest.gate.output.collector import Collector
    from toolrest.gate.output.redact import StreamRedactor
    from toolrest.gate.session import Lazy, Session
    from toolrest.patch.report.turn_diff import TurnDiffTracker
    from toolrest.policy.paths.policy import PathPolicy

    Deps = TypeVarWithDefault("Deps", default=Any)
else:
    Deps = TypeVar("Deps")
T = TypeVar("T")
Stream: TypeAlias = Literal["stdout", "stderr"]


class Context(Generic[Deps]):
    """What a tool can use during one call; a parameter of this type gets it.

    `Context[Deps]` gives `deps` its type: what the host program passed as `deps=`.
    """

    __slots__ = (
        "_cancel",
        "_closed",
        "_shown",
        "call_id",
        "delta",
        "files",
        "outside",
        "session",
        "tool",
        "turn_diff",
        "turn_id",
    )
    files: PathPolicy
    """The path policy: every file a tool opens goes through it."""

    def __init__(
        self,
        session: Session,
        call_id: str,
        tool: str,
        turn_id: str,
        turn_diff: Lazy[TurnDiffTracker],
    ) -> None:
        self.session = session
        self._cancel: threading.Event | None = None
        self._closed = False
        self._shown: dict[Stream, StreamRedactor] | None = None
        self.call_id = call_id
        self.delta: type[ToolCallDelta] = ToolCallDelta
        self.files = session.files
        self.outside = False
        self.tool = tool
        self.turn_id = turn_id
        self.turn_diff = turn_diff
        """The changes of all patches of the turn."""

    @property
    def deps(self) -> Deps:
        """The host program's own value for this session (`deps=`)."""
        deps: Deps = self.session.deps
        return deps

    @property
    def cwd(self) -> str:
        """The folder that relative paths start from."""
        return self.files.cwd

    @property
    def workspace(self) -> str:
        """The folder the user gave to this session."""
        return self.files.workspace

    @property
    def session_id(self) -> str:
        """The session that this call belongs to."""
        return self.session.id

    @property
    def state(self) -> dict[str, Any]:
        """A dict that lives as long as the session, for tools that keep something."""
        return self.session.state

    @property
    def mcp(self) -> Any:
        """The session's MCP servers. A `call` passes the gate as a model's call does."""
        if self.session.mcp is None:
            raise RespondToModel("MCP pool is not initialized")
        return self.session.mcp

    @property
    def writable_files(self) -> PathPolicy:
        """The path policy for writes: the session's, or after an approval one without its roots."""
        return self.session.files_outside() if self.outside else self.files

    def redact_json(self, value: Any) -> Any:
        """A JSON value without the values of known secrets."""
        return self.session.redactor.redact_json(value)

    def redact(self, text: str) -> str:
        """The text without the values of known secrets."""
        return self.session.redactor.redact(text)

    def collector(self, ceiling: int | None = None) -> Collector:
        """Collect an output that comes in pieces: bounded memory, exact totals, a spill file."""
        return self.session.limiter.collector(self.call_id, self.tool, ceiling)

    def resolve(self, path: str | os.PathLike[str]) -> str:
        """An absolute path, relative ones starting from `cwd`."""
        return self.files.resolve(os.fspath(path))

    def write_denied(self, path: str | os.PathLike[str]) -> str | None:
        """The reason why this path may not be written, or None."""
        return self.files.write_denied(os.fspath(path))

    async def read_bytes(self, path: str | os.PathLike[str]) -> bytes:
        """The content of a file that the policy lets this session read."""
        return await self.in_thread(self._read, os.fspath(path))

    async def read_text(self, path: str | os.PathLike[str]) -> str:
        """The text of a file, as UTF-8 with undecodable bytes replaced."""
        return (await self.read_bytes(path)).decode("utf-8", "replace")

    async def write_text(self, path: str | os.PathLike[str], text: str) -> None:
        """Replace a file's content at once, or create it; never through a symlink out of a root."""
        await self.in_thread(self.files.write_bytes, os.fspath(path), text.encode())

    def _read(self, path: str) -> bytes:
        fd = self.files.open_read(path)
        try:
            stat = os.fstat(fd)
            data = self.files.read_fd(fd, path)
        finally:
            os.close(fd)
        self.note_read(path, stat, hashlib.sha256(data).hexdigest())
        return data

    def note_read(self, path: str, stat: os.stat_result, sha256: str | None = None) -> None:
        """Remember what a file looked like when it was read, for the stale check of edits."""
        self.session.files_read.note(self.files.canonical(path), stat, sha256)

    @property
    def cancelled(self) -> bool:
        """True once the call was cancelled; a sync tool looks at this and returns."""
        return self._cancel is not None and self._cancel.is_set()

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run blocking code off the event loop; cancelling the call waits for it, up to 2 s."""
        if self._cancel is None:
            self._cancel = threading.Event()
        return await run_in_thread(function, args, self._cancel)

    def close(self) -> None:
        """End the call: it emits no more events."""
        self._closed = True

    def emit(self, event: Event | str, data: Any = None) -> None:
        """Put an event into the session's stream: a typed one, or a name and JSON data."""
        if self._closed:
            return  # the call has its output; events of work that was left behind are dropped
        if isinstance(event, str):
            event = Custom(call_id=self.call_id, name=event, data=data)
        self.emit_late(event)

    def emit_late(self, event: Event) -> None:
        """Emit an event after the call: the end of something that it started."""
        event.turn_id = self.turn_id
        self.session.bus.emit(event)

    def show(self, text: str, stream: Stream = "stdout") -> None:
        """Emit a piece of output that is redacted already."""
        if text:
            self.emit(self.delta(call_id=self.call_id, text=text, stream=stream))

    def output(self, text: str, stream: Stream = "stdout") -> None:
        """Show a piece of output while the call still runs. It does not change the result.

        What may be the start of a secret is held back until the next piece comes.
        """
        if self.session.redactor.active:
            self._shown = self._shown or {}
            if stream not in self._shown:
                self._shown[stream] = self.session.redactor.stream()
            text = self._shown[stream].feed(text)
        self.show(text, stream)

    def end_output(self) -> None:
        """Show what was held back; the gate calls this when the call is over."""
        for stream, shown in (self._shown or {}).items():
            self.show(shown.flush(), stream)
        self._shown = None

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Emit how far the call has come."""
        message = self.session.redactor.redact(message)
        self.emit(ToolCallProgress(call_id=self.call_id, message=message, fraction=fraction))

    async def ask_user(self, questions: Sequence[UserQuestion]) -> dict[str, tuple[str, ...]]:
        """The user's answers by the questions' ids; RespondToModel without a user to ask."""
        from toolrest.gate.approval.user_questions import UNAVAILABLE, UserQuestions

        if self.session.questions is None:
            raise RespondToModel(UNAVAILABLE)
        asked = UserQuestions(self.call_id, self.turn_id, tuple(questions))
        return await self.session.questions.ask(asked)

    async def review(self, request: ApprovalRequest) -> Review | None:
        """Ask this session's approver about a call of another session that this one started.

        It is asked as a part of this call; None without an approver.
        """
        from dataclasses import replace

        own = replace(request, call_id=self.call_id, agent=request.agent or self.tool)
        return await self.session.approvals.review(own)

    async def ask(self, question: str) -> bool:
        """Ask for approval; False when it is denied or the session has no approver."""
        return await self.session.approvals.ask_plainly(self, question)
