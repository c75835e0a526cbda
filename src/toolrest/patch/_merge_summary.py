"""How is the outcome of a patch said? On stdout, on stderr, and to a model."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolrest.patch.errors import PatchError
    from toolrest.patch.plan import Plan

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
