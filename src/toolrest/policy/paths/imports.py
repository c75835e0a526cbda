"""Guard Toolrest's own imports in a host program, whatever its `sys.path` is.

A host may well have its working folder on the path and make it the workspace. What a tool writes
there must not become code of ours, however late we import something: `tree_sitter_bash.py`, or a
`json.py`. The host's own imports stay as they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType

from toolrest.own_code import own_places, tool_roots
from toolrest.policy.paths.locate import link_steps
from toolrest.policy.paths.names import prefixes

_LIBRARY = os.path.dirname(os.__file__) + "/"
_INSTALLED = ("/site-packages/", "/dist-packages/")


def guard_imports(roots: Iterable[str]) -> None:
    """From now on nothing of ours is imported from these folders.

    For good: what a session's tools have left there outlives the session.
    """
    new = [root for root in roots if root not in tool_roots]
    if new:
        tool_roots.extend(new)
        may_be_written.cache_clear()
    if OwnImports not in sys.meta_path:
        sys.meta_path.insert(0, OwnImports)


@cache
def may_be_written(path: str) -> bool:
    """Whether a tool may have written what is at this path, or a link on the way to it."""
    if not path.startswith("/"):
        return True  # it depends on where we are
    own, roots = prefixes(own_places()), prefixes(tool_roots)
    return any(
        (step + "/").startswith(roots) and not (step + "/").startswith(own)
        for step in link_steps(os.path.normpath(path))
    )


class OwnImports:
    """The first finder of modules; it answers for imports of ours alone.

    An import is ours when the nearest code that asks for it, libraries aside, is Toolrest's: what
    a host's own tool imports is the host's.
    """

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of ours is, tools' folders left out; ModuleNotFoundError if only there."""
        asking = sys._getframe(1)
        if not _is_ours(asking):
            return None
        places = sys.path if path is None else list(path)
        safe = [place for place in places if not may_be_written(place)]
        refused = ""
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is cls or find is None:
                continue
            spec: ModuleSpec | None = find(name, safe if finder is PathFinder else path, target)
            origin = _origin(spec)
            if spec is not None and not (origin and _is_suspect(origin)):
                return spec
            refused = refused or origin
        if not refused and len(safe) == len(places):
            return None
        if asking.f_back is not None and asking.f_back.f_globals.get("__name__") == _ASKS:
            return None  # a look, not an import
        there = refused or next(place for place in places if place not in safe)
        raise ModuleNotFoundError(
            f"{name} is not loaded: tools may write {there}, and it is nowhere else", name=name
        )


_ASKS = "importlib.util"


def _origin(spec: ModuleSpec | None) -> str:
    """The file that a module would be loaded from; empty when it comes from none."""
    return spec.origin or "" if spec is not None and spec.has_location else ""


def _is_suspect(origin: str) -> bool:
    """`may_be_written` for one of many files in few folders."""
    if may_be_written(os.path.dirname(origin)):
        return True
    return os.path.islink(origin) and may_be_written(origin)


def _is_ours(frame: FrameType | None) -> bool:
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name == "toolrest" or name.startswith("toolrest."):
            return True
        file = frame.f_code.co_filename
        library = file.startswith((_LIBRARY, "<")) or any(part in file for part in _INSTALLED)
        if not library or name == "__main__":
            return False
        frame = frame.f_back
    return False
