"""The context of a call, which a tool gets: files, events, cancellation, approval."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field

from toolrest.errors import RespondToModel
from toolrest.events import Custom, Event, ToolCallDelta, ToolCallProgress
from toolrest.gate.decision.mode_limit import ModeLimit
from toolrest.gate.decision.taint import Taint
from toolrest.gate.threads import run_in_thread

if TYPE_CHECKING:
    # At run time a plain TypeVar does, and typing_extensions would cost more than this module.
    from typing_extensions import TypeVar as TypeVarWithDefault

    from toolrest.gate.approval.approvals import Approvals
    from toolrest.gate.approval.memory import Memory
    from toolrest.gate.approval.request import ApprovalRequest, Review
    from toolrest.gate.approval.user_questions import QuestionChannel, UserQuestion
    from toolrest.gate.bus import Bus
    from toolrest.gate.output.collector import Collector
    from toolrest.gate.output.limiter import Limiter
    from toolrest.gate.output.redact import Redactor, StreamRedactor
    from toolrest.gate.output.truncate import Limit
    from toolrest.policy.modes import Mode
    from toolrest.policy.paths.policy import PathPolicy
    from toolrest.policy.rules.rules import Rules
    from toolrest.running.runner import Runner
    from toolrest.running.tally import CommandCount

    Deps = TypeVarWithDefault("Deps", default=Any)
else:
    Deps = TypeVar("Deps")
T = TypeVar("T")
Stream: TypeAlias = Literal["stdout", "stderr"]


class ReadStamp(Struct):
    """Size, time, inode and hash of a file when this session last read it; for the stale check."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str | None


class UserRules(Protocol):
    """The user's rules for commands, and the approvals that a session remembers."""

    @property
    def rules(self) -> Rules:
        """The rules for commands."""
        ...

    @property
    def memory(self) -> Memory:
        """Earlier approvals."""
        ...


class Services(Struct):
    """The services that all calls of one session share; two sessions share none."""

    session_id: str
    files: PathPolicy
    bus: Bus
    redactor: Redactor
    approvals: Approvals
    known: UserRules
    limiter: Limiter
    make_runner: Callable[[], Runner]
    policy: Mode
    limit: Limit | None = None
    runner: Runner | None = None
    outside_files: PathPolicy | None = None
    legacy_encoding: str | None = None
    questions: QuestionChannel | None = None
    mcp: Any = None
    agents: Any = None
    accounting: Any = None
    tally: CommandCount | None = None
    make_mcp: Callable[[], Any] | None = None
    mcp_access: Any = None
    deps: Any = None
    taint: Taint = field(default_factory=Taint)
    mode_limit: ModeLimit = field(default_factory=ModeLimit)
    reads: dict[str, ReadStamp] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    turn_state: dict[str, Any] = field(default_factory=dict)
    turn_state_of: str = ""

    def mcp_pool(self) -> Any:
        """The session's MCP pool, made when it is first needed; RespondToModel without one."""
        if self.mcp is None:
            if self.make_mcp is None:
                raise RespondToModel("MCP pool is not initialized")
            self.mcp = self.make_mcp()
        return self.mcp

    @property
    def approval_policy(self) -> Mode:
        """The approval policy in force: that of the settings, or of the session's mode."""
        return self.mode_limit.policy(self.policy)

    @property
    def memory(self) -> Memory:
        """Earlier approvals."""
        return self.known.memory


class Context(Generic[Deps]):
    """What a tool can use during one call; a parameter of this type gets it.

    `Context[Deps]` gives `deps` its type: what the host program passed as `deps=`.
    """

    __slots__ = (
        "_cancel",
        "_closed",
        "_services",
        "_shown",
        "call_id",
        "delta",
        "files",
        "memo",
        "outside",
        "tool",
        "turn_id",
    )
    files: PathPolicy
    """The path policy: every file a tool opens goes through it."""

    def __init__(self, services: Services, call_id: str, tool: str, turn_id: str) -> None:
        self._services = services
        self._cancel: threading.Event | None = None
        self._closed = False
        self._shown: dict[Stream, StreamRedactor] | None = None
        self.call_id = call_id
        self.delta: type[ToolCallDelta] = ToolCallDelta
        self.files = services.files
        self.memo: dict[str, Any] = {}
        self.outside = False
        self.tool = tool
        self.turn_id = turn_id

    @property
    def deps(self) -> Deps:
        """The host program's own value for this session (`deps=`)."""
        deps: Deps = self._services.deps
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
    def taint(self) -> Taint:
        """Whether this session has read external content and private files."""
        return self._services.taint

    @property
    def mode_limit(self) -> ModeLimit:
        """The mode that a client chose for this session."""
        return self._services.mode_limit

    @property
    def session_id(self) -> str:
        """The session that this call belongs to."""
        return self._services.session_id

    @property
    def state(self) -> dict[str, Any]:
        """A dict that lives as long as the session, for tools that keep something."""
        return self._services.state

    @property
    def mcp(self) -> Any:
        """The session's MCP servers. A `call` passes the gate as a model's call does."""
        if self._services.mcp_access is None:
            raise RespondToModel("MCP pool is not initialized")
        return self._services.mcp_access

    @property
    def pool(self) -> Any:
        """The session's MCP pool, past the gate: for the tools of servers themselves."""
        return self._services.mcp_pool()

    @property
    def accounting(self) -> Any:
        """The session's count of tokens, to which sub-agents add theirs; None without a session."""
        return self._services.accounting

    @property
    def agents(self) -> Any:
        """The session's sub-agents."""
        if self._services.agents is None:
            raise RespondToModel("collab manager unavailable")
        return self._services.agents

    @property
    def runner(self) -> Runner:
        """The runner that starts this session's programs."""
        services = self._services
        if services.runner is None:
            services.runner = services.make_runner()
        return services.runner

    @property
    def limit(self) -> Limit:
        """The limit of an output that the model is shown."""
        from toolrest.gate.output.limiter import DEFAULT_LIMIT

        services = self._services
        return services.limiter.limit_of(self.tool) or services.limit or DEFAULT_LIMIT

    @property
    def approval_policy(self) -> Mode:
        """The approval policy; `on-request` lets a model ask to leave the sandbox."""
        return self._services.approval_policy

    @property
    def legacy_encoding(self) -> str | None:
        """The encoding of files that are neither UTF-8 nor UTF-16, if the settings name one."""
        return self._services.legacy_encoding

    @property
    def rules(self) -> Rules:
        """The rules for commands that are in force."""
        return self._services.known.rules

    @property
    def memory(self) -> Memory:
        """Earlier approvals."""
        return self._services.memory

    @property
    def writable_files(self) -> PathPolicy:
        """The path policy for writes: the session's, or after an approval one without its roots."""
        if not self.outside:
            return self.files
        if self._services.outside_files is None:
            self._services.outside_files = self.files.let_out()
        return self._services.outside_files

    @property
    def turn_state(self) -> dict[str, Any]:
        """A dict that lives as long as the turn."""
        services = self._services
        if services.turn_state_of != self.turn_id:
            services.turn_state_of, services.turn_state = self.turn_id, {}
        return services.turn_state

    def redact_json(self, value: Any) -> Any:
        """A JSON value without the values of known secrets."""
        return self._services.redactor.redact_json(value)

    def redact(self, text: str) -> str:
        """The text without the values of known secrets."""
        return self._services.redactor.redact(text)

    def collector(self, ceiling: int | None = None) -> Collector:
        """Collect an output that comes in pieces: bounded memory, exact totals, a spill file."""
        return self._services.limiter.collector(self.call_id, self.tool, ceiling)

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
        key = self.files.canonical(path)
        self._services.reads[key] = ReadStamp(stat.st_size, stat.st_mtime_ns, stat.st_ino, sha256)

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
        self._services.bus.emit(event)

    def show(self, text: str, stream: Stream = "stdout") -> None:
        """Emit a piece of output that is redacted already."""
        if text:
            self.emit(self.delta(call_id=self.call_id, text=text, stream=stream))

    def output(self, text: str, stream: Stream = "stdout") -> None:
        """Show a piece of output while the call still runs. It does not change the result.

        What may be the start of a secret is held back until the next piece comes.
        """
        if self._services.redactor.active:
            self._shown = self._shown or {}
            if stream not in self._shown:
                self._shown[stream] = self._services.redactor.stream()
            text = self._shown[stream].feed(text)
        self.show(text, stream)

    def end_output(self) -> None:
        """Show what was held back; the gate calls this when the call is over."""
        for stream, shown in (self._shown or {}).items():
            self.show(shown.flush(), stream)
        self._shown = None

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Emit how far the call has come."""
        message = self._services.redactor.redact(message)
        self.emit(ToolCallProgress(call_id=self.call_id, message=message, fraction=fraction))

    async def ask_user(self, questions: Sequence[UserQuestion]) -> dict[str, tuple[str, ...]]:
        """The user's answers by the questions' ids; RespondToModel without a user to ask."""
        from toolrest.gate.approval.user_questions import UNAVAILABLE, UserQuestions

        if self._services.questions is None:
            raise RespondToModel(UNAVAILABLE)
        asked = UserQuestions(self.call_id, self.turn_id, tuple(questions))
        return await self._services.questions.ask(asked)

    async def review(self, request: ApprovalRequest) -> Review | None:
        """Ask this session's approver about a call of another session that this one started.

        It is asked as a part of this call; None without an approver.
        """
        from dataclasses import replace

        own = replace(request, call_id=self.call_id, agent=request.agent or self.tool)
        return await self._services.approvals.review(own)

    async def ask(self, question: str) -> bool:
        """Ask for approval; False when it is denied or the session has no approver."""
        return await self._services.approvals.ask_plainly(self, question)
