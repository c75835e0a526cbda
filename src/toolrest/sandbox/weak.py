"""The weak sandbox: how it is recognised, and what people read about it.

It loads nothing: front ends need the words before there is a sandbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolrest.sandbox.backends.engine import Controls

WEAK = "weak sandbox"
"""For a person who has read the sentence."""
WEAK_SENTENCE = (
    "Weak sandbox here: git hooks and settings are watched, not locked; .env can be read. "
    "`toolrest doctor` says how to get the full one."
)


def is_weak(controls: Controls) -> bool:
    """Whether protected names inside the writable roots are not held, nor hidden ones hidden.

    A box without writable roots holds both, and so does every kind but Landlock.
    """
    return controls["protected_paths"].level == "none"
