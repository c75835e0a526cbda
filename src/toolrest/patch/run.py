"""Run a patch from text to disk; messages about its outcome for stdout, stderr and a model."""

from __future__ import annotations

from toolrest.patch import codex_grammar as grammar
from toolrest.patch.apply import commit
from toolrest.patch.errors import PatchError
from toolrest.patch.plan import plan

TYPE_CHECKING = False

if TYPE_CHECKING:
    from toolrest.patch.files.file_system import FileSystem
    from toolrest.patch.plan import Plan
    from toolrest.patch.record import PatchRecord


class PatchOutcome:
    """The outcome of a patch: a command's output, and the plan or the error."""

    __slots__ = ("error", "exit_code", "notes", "plan", "stderr", "stdout")

    def __init__(self, plan: Plan | None, error: PatchError | None, notes: list[str]) -> None:
        self.plan = plan
        self.error = error
        self.notes = notes
        self.exit_code = 0 if error is None else 1
        self.stdout = "" if plan is None or error is not None else success(plan)
        self.stderr = "" if error is None else failure(error)


def run(text: str, files: FileSystem, cwd: str, legacy: str | None = None) -> PatchOutcome:
    """Parse and apply a patch in Codex's language. Never raises for a bad patch or a bad disk."""
    try:
        planned = plan(grammar.parse(text), files, cwd, legacy)
    except PatchError as error:
        return PatchOutcome(None, error, error.notes)
    return carry_out(planned, files)


def carry_out(planned: Plan, files: FileSystem, record: PatchRecord | None = None) -> PatchOutcome:
    """Apply a plan, and return the outcome; `record` keeps what a kill would cut off."""
    try:
        notes = commit(planned, files, record)
    except PatchError as error:
        return PatchOutcome(planned, error, error.notes)
    return PatchOutcome(planned, None, [*planned.notes, *notes])


_SUCCESS = "Success. Updated the following files:\n"


def success(plan: Plan) -> str:
    """The command's stdout: added, modified, deleted paths, as the patch spells them."""
    groups = (("A", plan.added), ("M", plan.modified), ("D", plan.deleted))
    lines = [f"{letter} {path}\n" for letter, paths in groups for path in paths]
    return _SUCCESS + "".join(lines)


def failure(error: PatchError) -> str:
    """The command's stderr."""
    return f"{error.stderr}\n"


def ran(exit_code: int, seconds: float, output: str) -> str:
    """The output for a model after a patch was tried."""
    return f"Exit code: {exit_code}\nWall time: {wall_time(seconds)} seconds\nOutput:\n{output}"


def wall_time(seconds: float) -> str:
    """One decimal, and none when it is zero."""
    return f"{seconds:.1f}".removesuffix(".0")


REFUSED = "apply_patch verification failed"
"""Beginning of the message to a model for a patch that is refused before it is tried."""


def refused(error: PatchError, prefix: str = REFUSED) -> str:
    """The message to a model for a patch that is refused before it is tried."""
    return f"{prefix}: {error.verdict}"


EMPTY = "patch rejected: empty patch"
