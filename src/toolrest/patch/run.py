"""A patch from text to disk, and what to say about it: the whole way, in one call.

How is the outcome of a patch said? On stdout, on stderr, and to a model.
"""

from __future__ import annotations

from toolrest.patch import codex_grammar as grammar
from toolrest.patch.apply import commit
from toolrest.patch.errors import PatchError
from toolrest.patch.plan import plan

TYPE_CHECKING = False

if TYPE_CHECKING:
    from toolrest.patch.files.file_system import FileSystem
    from toolrest.patch.plan import Plan


class PatchOutcome:
    """What came of a patch: as a command says it, and for the caller the plan or the error."""

    __slots__ = ("error", "exit_code", "notes", "plan", "stderr", "stdout")

    def __init__(self, plan: Plan | None, error: PatchError | None, notes: list[str]) -> None:
        self.plan = plan
        self.error = error
        self.notes = notes
        self.exit_code = 0 if error is None else 1
        self.stdout = "" if plan is None or error is not None else success(plan)
        self.stderr = "" if error is None else failure(error)


def run(text: str, files: FileSystem, cwd: str, legacy: str | None = None) -> PatchOutcome:
    """Read and apply a patch in Codex's language. Never raises for a bad patch or a bad disk."""
    try:
        planned = plan(grammar.parse(text), files, cwd, legacy)
    except PatchError as error:
        return PatchOutcome(None, error, error.notes)
    return carry_out(planned, files)


def carry_out(planned: Plan, files: FileSystem) -> PatchOutcome:
    """Write a plan, and say what came of it."""
    try:
        left = commit(planned, files)
    except PatchError as error:
        return PatchOutcome(planned, error, error.notes)
    kept = [f"could not remove the saved copy {path}" for path in left]
    return PatchOutcome(planned, None, [*planned.notes, *kept])


_SUCCESS = "Success. Updated the following files:\n"


def success(plan: Plan) -> str:
    """What the command prints: added, then modified, then deleted, as the patch spells them."""
    groups = (("A", plan.added), ("M", plan.modified), ("D", plan.deleted))
    lines = [f"{letter} {path}\n" for letter, paths in groups for path in paths]
    return _SUCCESS + "".join(lines)


def failure(error: PatchError) -> str:
    """What the command prints on stderr."""
    return f"{error.stderr}\n"


def ran(exit_code: int, seconds: float, output: str) -> str:
    """What a model sees after a patch was tried."""
    return f"Exit code: {exit_code}\nWall time: {wall_time(seconds)} seconds\nOutput:\n{output}"


def wall_time(seconds: float) -> str:
    """One decimal, and none when it is zero."""
    return f"{seconds:.1f}".removesuffix(".0")


REFUSED = "apply_patch verification failed"
"""How the words begin that a model sees of a patch that was not even tried."""


def refused(error: PatchError, words: str = REFUSED) -> str:
    """What a model sees of a patch that was not even tried."""
    return f"{words}: {error.verdict}"


EMPTY = "patch rejected: empty patch"
