"""Effects: what a call will touch. Risk, approval keys, schedule and audit derive from them."""

from __future__ import annotations

from dataclasses import dataclass, replace  # noqa: TID251 - public values
from enum import IntEnum


class Risk(IntEnum):
    """How much harm a call can do; a greater risk is never approved by a lesser grant."""

    READ = 0
    WRITE = 1
    EXECUTE = 2
    CRITICAL = 3

    @property
    def label(self) -> str:
        """The lower-case name used in settings, events and the audit log."""
        return _LABELS[self]


_LABELS = ("read", "write", "execute", "critical")


@dataclass(frozen=True, slots=True)
class Effects:
    """What one call will touch, declared before it runs.

    Paths are absolute and already resolved. `serial` names in-session state (a plan, an exec
    session) whose calls run one after the other without being any riskier. `exclusive`
    overrides what the scheduler would derive: a call that runs programs, calls another
    server's tool or cannot tell runs alone unless its author says otherwise.

    `consults` names what is read that is no file, another server's resource for one.

    `confined` says that what it runs stays inside the session's sandbox; `escalates` that the
    model asks to run it outside, with its reason. Neither is decided by the tool: the gate asks,
    and hands the tool a context that is inside or outside. `judged` writes were held against
    the path policy by the tool, which also opens them by it: the gate does not look again.
    `looks` says that what it runs is proven to change nothing: there is nothing to take back.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    runs: tuple[tuple[str, ...], ...] = ()
    connects: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    consults: tuple[str, ...] = ()
    serial: tuple[str, ...] = ()
    exclusive: bool | None = None
    is_unknown: bool = False
    critical: str | None = None
    confined: bool = False
    escalates: str | None = None
    judged: bool = False
    looks: bool = False

    @staticmethod
    def none() -> Effects:
        """No effects: touches nothing outside its own return value; declared, not forgotten."""
        return _NONE

    @staticmethod
    def unknown() -> Effects:
        """Unknown effects: runs alone, counts as execute, asks."""
        return _UNKNOWN

    @property
    def risk(self) -> Risk:
        """Reads are read; writes and connections write; programs, calls and the unknown execute."""
        if self.critical is not None:
            return Risk.CRITICAL
        if self.runs or self.calls or self.is_unknown:
            return Risk.EXECUTE
        if self.writes or self.connects:
            return Risk.WRITE
        return Risk.READ

    @property
    def runs_alone(self) -> bool:
        """True when nothing else may run beside this call."""
        if self.exclusive is not None:
            return self.exclusive
        return bool(self.runs or self.calls or self.is_unknown)

    @property
    def mutating(self) -> bool:
        """True when the call may change something outside Toolrest."""
        return bool(self.writes or self.runs or self.calls or self.is_unknown or self.connects)

    def with_exclusive(self, exclusive: bool) -> Effects:
        """The same effects with the schedule decided by the tool's author."""
        return replace(self, exclusive=exclusive)

    def keys(self) -> tuple[str, ...]:
        """The approval keys: a call is pre-approved only when every one of these is."""
        if not self.mutating:
            return ()
        return (
            *(f"write:{path}" for path in self.writes),
            *(f"run:{' '.join(argv)}" for argv in self.runs),
            *(f"connect:{host}" for host in self.connects),
            *(f"call:{name}" for name in self.calls),
            *(("unknown",) if self.is_unknown else ()),
        )


_NONE = Effects()
_UNKNOWN = Effects(is_unknown=True)
