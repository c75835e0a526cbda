"""Results of running a program, with the sandbox that confined it."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from toolrest.process.command import Command
from toolrest.process.run import RunResult
from toolrest.process.sessions.table import ExecResult
from toolrest.sandbox.denial import Denied

R = TypeVar("R", RunResult, ExecResult)


class RunOutcome(Struct):
    """A command's result, the sandbox that confined it, and the variables it was not given."""

    result: RunResult
    backend: str
    withheld: tuple[str, ...]
    blocked: Denied | None = None
    """What the sandbox denied."""
    gaps: tuple[str, ...] = ()
    """Notes on what is not enforced here that no earlier result carried."""
    hidden: str = ""
    """The exit codes of a pipeline whose own code hides that a part of it failed."""
    disturbed: bool = False
    """The machine changed while the sandbox was being made, so nothing was run."""


class ExecOutcome(Struct):
    """The result of one call on a command session."""

    result: ExecResult
    backend: str
    withheld: tuple[str, ...] = ()
    blocked: Denied | None = None
    gaps: tuple[str, ...] = ()
    hidden: str = ""
    disturbed: bool = False


def without_launcher(result: R, command: Command, *, is_client: bool = False) -> R:
    """The result without background pids, for a command with a pid namespace of its own: there
    everything dies with the command, and what is seen a moment later is the ending launcher, or
    what a client left.
    """
    if (command.own_pid_namespace or is_client) and result.background_pids:
        return replace(result, background_pids=())
    return result
