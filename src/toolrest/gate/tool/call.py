"""`ToolCall`: one call of a tool, with what it knows and what the gate asks it.

A tool without state of its own needs none of this: `ToolCall` asks its `effects`, `decide` and
`run`. A tool whose calls learn something on the way (a command's launch, a patch's plan) returns a
subclass from `begin` and keeps it in fields. When something differs at the last moment from what
was judged, the call is thrown away and `again` begins another one: nothing has to be cleared.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from toolrest.items import JSONObject
from toolrest.policy.grants.key import GrantKey

if TYPE_CHECKING:
    from toolrest.gate.context import Context
    from toolrest.gate.decision.decide import Decision
    from toolrest.gate.tool.tool import Tool
    from toolrest.policy.effects import Effects, Risk
    from toolrest.policy.launch import Changed


class ToolQuestion(Struct, frozen=True):
    """The part of an approval request that the tool fills: command line and folder, or diff.

    `purpose` is what the model says the call is for; `changes` is the diff as events have it;
    `title` is the whole question in one sentence; `notes` are reasons and facts beside it.
    """

    command: tuple[str, ...] = ()
    cwd: str = ""
    diff: str = ""
    purpose: str = ""
    title: str = ""
    notes: tuple[str, ...] = ()
    changes: JSONObject = field(default_factory=dict)
    parsed: tuple[JSONObject, ...] = ()
    """The parsed parts of a command, as events have them."""
    files: tuple[tuple[str, str], ...] = ()
    """The files that the call would run, each with a stamp of its content: part of the pin."""


class ToolCall:
    """One call, understood: its tool, typed arguments, effects and their risk.

    The gate asks it, in this order: `prepare` when its turn has come, `decide`, `question` if a
    person is asked, `run`; `again` begins another one in its place. It must name all effects when
    it is begun or in `prepare`, raise RespondToModel for a call that cannot work, and end when it
    is cancelled. It must not start or change anything before `run`, ask anybody, cut or redact
    its output. Not promised: that it is run at all, on which thread it is begun, or that what it
    found in `prepare` still holds in `run`; what must, `run` compares and raises `Changed`.
    """

    tool: Tool
    effects: Effects
    """The effects of this very call, with canonical paths."""
    risk: Risk
    mutating: bool
    """Whether the call may change something outside Toolrest."""
    approved = False
    """Whether this very call was approved by a one-off approval."""

    def __init__(self, tool: Tool, args: Any, ctx: Context, effects: Effects) -> None:
        self.tool = tool
        self.args = args
        self.ctx = ctx
        self.touch(effects)

    def touch(self, effects: Effects) -> None:
        """Take these effects, when it is begun or when they turn out to be others."""
        self.effects = canonical_effects(effects, self.ctx)
        self.risk = self.tool.level(self.effects)
        self.mutating = self.effects.mutating

    async def prepare(self) -> None:
        """Check the call against the files, when it is its turn and before any approval.

        Raise RespondToModel for a call that cannot work, so that no approval is wasted on it.
        `touch` takes the effects where they turn out to be others.
        """

    def decide(self) -> Decision | None:
        """Decide on the call in place of the approval table; None leaves it to the table."""
        return self.tool.decide(self.args, self.effects, self.ctx)

    def question(self) -> ToolQuestion:
        """The tool's part of an approval request, besides the arguments."""
        return ToolQuestion()

    def run(self) -> Awaitable[Any]:
        """Run the call. Return text, a ToolOutput or any JSON value; RespondToModel on failure."""
        return self.tool.run(self.args, self.ctx)

    def again(self, changed: Changed) -> ToolCall:
        """Begin the call anew after something changed that had been judged."""
        return self.tool.begin(self.args, self.ctx)

    def known_writes(self) -> tuple[str, ...]:
        """Name what the call is known to write besides what its effects name."""
        return ()

    def reaches(self) -> tuple[str, ...]:
        """Name what the call may send data to outside of this machine."""
        # A sub-agent's own calls are judged when it makes them.
        effects = self.effects
        return effects.connects if effects.confined else (*effects.connects, *effects.calls)

    def reach_keys(self) -> tuple[GrantKey, ...]:
        """The grants by which it may reach out again after external content; empty: one by one."""
        return ()

    def covers_outside(self, subjects: Sequence[tuple[str, str]]) -> bool:
        """Whether the question about this call said that what was blocked happens outside.

        `subjects` are operations, such as "write", each with its path or host.
        """
        return False

    def retry_keys(self, fingerprint: str) -> tuple[GrantKey, ...]:
        """The grants by which a retry of this call outside the sandbox needs no further question.

        Empty: it is asked about every time.
        """
        return self.needs(fingerprint, leaves=True)

    def needs(self, fingerprint: str, *, leaves: bool) -> tuple[GrantKey, ...]:
        """One grant key for each thing that the call touches; unknown effects need this very call.

        `leaves`: for a run outside the sandbox.
        """
        effects, tool = self.effects, self.tool
        if effects.critical is not None or not effects.mutating:
            return ()
        if effects.is_unknown:
            # A tool that by its name only reads is asked about once, not once a call.
            reads = tool.undeclared and tool.named.asks_once
            words = (tool.name,) if reads else (tool.name, fingerprint)
            return (GrantKey("tool", words, outside=leaves),)
        pin = (tool.pin,) if tool.pin else ()
        return (
            *(GrantKey("write", (path,), outside=leaves) for path in effects.writes),
            *(GrantKey("run", argv, exact=True, outside=leaves) for argv in effects.runs),
            *(GrantKey("connect", (host,), outside=leaves) for host in effects.connects),
            *(GrantKey("call", (name, *pin), outside=leaves) for name in effects.calls),
        )


def canonical_effects(effects: Effects, ctx: Context) -> Effects:
    """Effects with canonical paths, so that two spellings of one path conflict."""
    if not (effects.reads or effects.writes):
        return effects
    real = ctx.files.canonical
    reads = tuple(map(real, effects.reads))
    writes = tuple(map(real, effects.writes))
    if reads == effects.reads and writes == effects.writes:
        return effects
    return replace(effects, reads=reads, writes=writes)
