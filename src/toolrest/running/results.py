"""What running a program brought: its result, and how it was confined."""

from __future__ import annotations

from typing import TypeVar

from toolrest.process.command import Command
from toolrest.process.run import RunResult
from toolrest.process.sessions.table import ExecResult
from toolrest.records import dataclass, replace

R = TypeVar("R", RunResult, ExecResult)


@dataclass(slots=True)
class RunOutcome:
    """How a command went, how it was confined, and which variables it was not given."""

    result: RunResult
    backend: str
    withheld: tuple[str, ...]
    blocked: str | None = None
    """What the sandbox stopped and how to ask, in one sentence."""
    gaps: tuple[str, ...] = ()
    """What is not enforced here, as far as no result has said it yet."""


@dataclass(slots=True)
class ExecOutcome:
    """What one call on an interactive command brought."""

    result: ExecResult
    backend: str
    withheld: tuple[str, ...] = ()
    blocked: str | None = None
    gaps: tuple[str, ...] = ()


def without_launcher(result: R, command: Command) -> R:
    """In a pid namespace of its own everything dies with the command: what is still seen of it
    a moment later is the launcher on its way out, not something left running.
    """
    if command.own_pid_namespace and result.background_pids:
        return replace(result, background_pids=())
    return result
