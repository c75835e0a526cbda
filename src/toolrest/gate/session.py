"""`Session`: everything that the calls of one session share, made once and whole.

`agent/setup/session.py` makes it, in one function. It is frozen: what changes while a session
lives is inside one of its parts, which alone changes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from msgspec import Struct, field

from toolrest.errors import RespondToModel

if TYPE_CHECKING:
    # Only types: what these rooms do is above the gate.
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.mcp.access import McpAccess
    from toolrest.agent.mcp.setup import McpServers
    from toolrest.agent.subagents.subagents import SubAgents
    from toolrest.agent.undo.turn_checkpoint import Saver
    from toolrest.agent.undo.watch import Watch
    from toolrest.config import Config, Settings
    from toolrest.gate.approval.approvals import Approvals
    from toolrest.gate.approval.memory import Memory
    from toolrest.gate.approval.user_questions import QuestionChannel
    from toolrest.gate.approval.user_rules import SessionRules
    from toolrest.gate.audit.log import AuditLog
    from toolrest.gate.bus import Bus
    from toolrest.gate.call.deadlines import Deadlines
    from toolrest.gate.call.schedule import Quota, Scheduler
    from toolrest.gate.decision.decide import Decider
    from toolrest.gate.decision.mode_limit import ModeLimit
    from toolrest.gate.decision.repeated_calls import LoopWatch
    from toolrest.gate.decision.taint import Taint
    from toolrest.gate.files_read import FilesRead
    from toolrest.gate.hooks.around_call import HookedWalks
    from toolrest.gate.output.limiter import Limiter
    from toolrest.gate.output.redact import Redactor
    from toolrest.gate.output.spill import Spill
    from toolrest.gate.tool.registry import Registry
    from toolrest.gate.tool.tool import Tool
    from toolrest.items import Answered, CallItem, JSONObject
    from toolrest.mcp.pool import Pool
    from toolrest.patch.report.turn_diff import TurnDiffTracker
    from toolrest.policy.modes import Mode
    from toolrest.policy.paths.policy import PathPolicy
    from toolrest.running.runner import Runner
    from toolrest.running.tally import CommandCount
    from toolrest.tools.shell.open_commands import OpenCommands
    from toolrest.tools.skill_folders import SessionSkills

T = TypeVar("T")

Sampler: TypeAlias = "Callable[[str, JSONObject], Awaitable[JSONObject]]"
"""(server, CreateMessage parameters) → CreateMessageResult."""

Replies: TypeAlias = """Callable[
    [Any],
    Awaitable[
        tuple[
            Sequence[CallItem],
            Callable[[Sequence[Answered]], list[Any]],
            Sequence[Mapping[str, Any]],
        ]
    ],
]"""
"""Reads a model's reply: its calls, what writes their outputs in the same wire, and the searches
that the model's server did."""


class Lazy(Generic[T]):
    """A part that is made when it is first needed; `made` is None until then."""

    __slots__ = ("_make", "made")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None

    def __call__(self) -> T:
        """The part."""
        if self.made is None:
            self.made = self._make()
        return self.made


class Late(Generic[T]):
    """The place for a part that can only come after the session, from above it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: T | None = None

    def bind(self, value: T) -> None:
        """Put the part in its place; the last one counts."""
        self.value = value


class Shared(Struct, frozen=True, eq=False, kw_only=True):
    """What a session has from the one that started it.

    An agent that is a tool has its caller's mode and taint, and its tokens are counted there. A
    sub-agent has all of this.
    """

    mode: ModeLimit
    taint: Taint
    conversation: Late[Conversation] | None = None
    known: SessionRules | None = None
    """Its grants."""
    approvals: Approvals | None = None
    """Who never asks."""
    offers: Callable[[Tool], bool] | None = None
    commands: Lazy[CommandCount] | None = None
    pool: Lazy[Pool] | None = None
    has_servers: bool = False
    watch: Lazy[Watch] | None = None
    undo_id: str = ""
    """The session whose turns undo counts its changes to."""


class Ground(Struct, frozen=True, eq=False, kw_only=True):
    """What the parts of a session are made from."""

    id: str
    config: Config
    settings: Settings
    environ: Mapping[str, str]
    files: PathPolicy
    bus: Bus
    redactor: Redactor
    known: SessionRules
    """The user's rules, overrides and grants."""
    mode: ModeLimit
    approvals: Approvals
    skills: SessionSkills
    conversation: Late[Conversation]
    """The agent that comes on top of the session."""
    watch: Lazy[Watch]
    """What watches the names that a sandbox does not hold; made with the first command."""
    columns: Late[Callable[[], int]]
    """How wide a front end draws what commands print; their terminals are as wide."""
    sampler: Late[Sampler]
    """What makes completions for MCP servers."""

    @property
    def approval_policy(self) -> Mode:
        """The approval policy in force: that of the settings, or of the session's mode."""
        return self.mode.policy(self.settings.approval_policy)


class Session(Ground, frozen=True, eq=False, kw_only=True):
    """Everything that the calls of one session share, made whole by `make_session`."""

    deps: Any
    """The host program's own value."""

    # What is allowed
    files_outside: Lazy[PathPolicy]
    """The path policy after an approval to leave the writable roots."""
    decider: Decider
    taint: Taint

    # Who is asked
    questions: QuestionChannel | None
    hooks: HookedWalks | None

    # What is called
    registry: Registry
    commands: Lazy[CommandCount]
    runner: Lazy[Runner]
    servers: McpServers | None
    pool: Lazy[Pool]
    """The pool of MCP servers; an empty one where there are none."""
    mcp: McpAccess | None
    """The pool as tools see it; None where there are no servers."""

    # What comes out
    limiter: Limiter
    spill: Spill
    audit: AuditLog | None
    undo: Saver | None
    replies: Lazy[Replies]

    # In which order, and how long
    scheduler: Scheduler
    deadlines: Deadlines
    loops: LoopWatch
    quota: Quota
    turn_numbers: Iterator[int] = field(default_factory=lambda: count(1))

    # What tools have noted
    files_read: FilesRead
    open_commands: OpenCommands
    state: dict[str, Any] = field(default_factory=dict)
    """For users' tools (`ctx.state`)."""

    @property
    def memory(self) -> Memory:
        """Earlier approvals."""
        return self.known.memory

    @property
    def agents(self) -> SubAgents:
        """The session's sub-agents; RespondToModel where it has none."""
        above = self.conversation.value
        if above is None or above.agents is None:
            raise RespondToModel("collab manager unavailable")
        return above.agents

    def turn_diff(self) -> Lazy[TurnDiffTracker]:
        """A turn's patches as one diff; nothing has changed yet."""

        def make() -> TurnDiffTracker:
            from toolrest.patch.report.turn_diff import TurnDiffTracker  # with the first patch

            return TurnDiffTracker(self.files.workspace)

        return Lazy(make)

    def for_callee(self) -> Shared:
        """What another agent has that is a tool of this session."""
        return Shared(mode=self.mode, taint=self.taint, conversation=self.conversation)

    def for_agent(self) -> Shared:
        """What a sub-agent of this session has."""
        return Shared(
            mode=self.mode,
            taint=self.taint,
            conversation=self.conversation,
            known=self.known,
            approvals=self.approvals,
            offers=self.registry.offers,
            commands=self.commands,
            pool=self.pool,
            has_servers=self.mcp is not None,
            watch=self.watch,
            undo_id=self.id,
        )

    async def aclose(self) -> None:
        """End the session's programs and close its own files."""
        if self.servers is not None:
            await self.servers.aclose()
        if self.runner.made is not None:
            await self.runner.made.aclose()
        if self.watch.made is not None and self.watch.made.session_id == self.id:
            await self.watch.made.aclose()  # not that of a sub-agent
        if self.hooks is not None:
            await self.hooks.hooks.aclose()
        self.deadlines.close()
        self.spill.close()
        if self.audit is not None:
            self.audit.close()
        self.bus.close()
