"""A patch from text to disk, and what to say about it: the whole way, in one call."""

from __future__ import annotations

from toolrest.patch import codex_grammar as grammar
from toolrest.patch import _merge_summary as summary
from toolrest.patch.apply import commit
from toolrest.patch.errors import PatchError
from toolrest.patch.plan import plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolrest.patch.files.file_system import FileSystem
    from toolrest.patch.plan import Plan


class Outcome:
    """What came of a patch: as a command says it, and for the caller the plan or the error."""

    __slots__ = ("error", "exit_code", "notes", "plan", "stderr", "stdout")

    def __init__(self, plan: Plan | None, error: PatchError | None, notes: list[str]) -> None:
        self.plan = plan
        self.error = error
        self.notes = notes
        self.exit_code = 0 if error is None else 1
        self.stdout = "" if plan is None or error is not None else summary.success(plan)
        self.stderr = "" if error is None else summary.failure(error)


def run(text: str, files: FileSystem, cwd: str, legacy: str | None = None) -> Outcome:
    """Read and apply a patch in Codex's language. Never raises for a bad patch or a bad disk."""
    try:
        planned = plan(grammar.parse(text), files, cwd, legacy)
    except PatchError as error:
        return Outcome(None, error, error.notes)
    return carry_out(planned, files)


def carry_out(planned: Plan, files: FileSystem) -> Outcome:
    """Write a plan, and say what came of it."""
    try:
        left = commit(planned, files)
    except PatchError as error:
        return Outcome(planned, error, error.notes)
    kept = [f"could not remove the saved copy {path}" for path in left]
    return Outcome(planned, None, [*planned.notes, *kept])
