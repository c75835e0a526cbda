"""Start-up of a command that needs nearly everything: no garbage collection, no plugins."""

from __future__ import annotations

import gc
import os

_VARIABLE, _VALUE = "PYDANTIC_DISABLE_PLUGINS", "__all__"


def quick_start() -> None:
    """Prepare a quick start; before pydantic is imported, which would search for plugins."""
    gc.disable()  # what is loaded now stays
    os.environ.setdefault(_VARIABLE, _VALUE)


def settled() -> None:
    """Turn garbage collection on again, once everything is loaded."""
    gc.freeze()
    gc.enable()


def users_environment() -> dict[str, str]:
    """The variables without the one that was set here: the user's programs keep their plugins."""
    return {k: v for k, v in os.environ.items() if (k, v) != (_VARIABLE, _VALUE)}
