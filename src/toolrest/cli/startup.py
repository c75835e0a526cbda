"""How a command that needs nearly everything starts sooner: it leaves out what is not used."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_METADATA = "importlib.metadata"
_VARIABLE, _VALUE = "PYDANTIC_DISABLE_PLUGINS", "__all__"


def quick_start() -> None:
    """Call it before pydantic is imported; `settled` ends what holds only for the start.

    What is loaded now stays, so looking for garbage meanwhile would only take time. Pydantic
    would look through every installed package for plugins of its own, which a command has no use
    for, and imports the library for that even when told not to.
    """
    gc.disable()
    if _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = _VALUE
    _defer_metadata()


def settled() -> None:
    """Everything is loaded."""
    gc.freeze()
    gc.enable()


def users_environment() -> dict[str, str]:
    """The variables without the one that was set here: the user's programs keep their plugins."""
    variables = dict(os.environ)
    if variables.get(_VARIABLE) == _VALUE:
        del variables[_VARIABLE]
    return variables


def _defer_metadata() -> None:
    """Load importlib.metadata when something of it is used, not when it is imported."""
    if _METADATA not in sys.modules:
        deferred = _Metadata(_METADATA)
        sys.modules[_METADATA] = deferred
        importlib.metadata = deferred


class _Metadata(ModuleType):
    def entry_points(self, **selection: Any) -> Any:
        """Pydantic imports this name, and with its plugins switched off never calls it."""
        return self._real().entry_points(**selection)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)  # the import machinery looks, and wants nothing
        return getattr(self._real(), attribute)

    def _real(self) -> ModuleType:
        if sys.modules.get(_METADATA) is self:
            del sys.modules[_METADATA]
        return import_module(_METADATA)
