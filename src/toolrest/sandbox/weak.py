"""The weak sandbox, and none at all: how it is recognised, and what people read about it.

It loads nothing: front ends need the words before there is a sandbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolrest.sandbox.backends.engine import Controls

WEAK = "weak sandbox"
"""For a person who has read the sentence."""
WEAK_FACTS = "Weak sandbox here: git hooks and settings are watched, not locked; .env can be read."
WEAK_SENTENCE = f"{WEAK_FACTS} `toolrest doctor` says how to get the full one."
NO_SANDBOX = (
    "No sandbox works here, so commands do not run; files can be read and edited. "
    "`toolrest doctor` says what is missing."
)
APART = (
    "install it apart from the project, with `pipx install toolrest` or `uv tool install toolrest`"
)
OWN_FILES_IN_REACH = (
    "Toolrest is installed in this project, where no sandbox of this machine can keep it from "
    f"being changed, so commands do not run: {APART}."
)


def is_weak(controls: Controls) -> bool:
    """Whether protected names inside the writable roots are not held, nor hidden ones hidden.

    A box without writable roots holds both, and so does every kind but Landlock.
    """
    return controls["protected_paths"].level == "none"
