"""Guard of `sys.path`: this process loads Toolrest's own code, never code that a tool may write.

A model's tools write into the workspace and the other writable roots, and a cloned project may
bring any file. So the command line takes those folders off `sys.path` before it imports anything,
and starts its children without them. The library leaves its host's `sys.path` alone: there
`guard_imports` of `policy/paths/imports.py` checks each import that is ours.

Loaded before everything else, so it imports nothing that Python has not loaded already.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_LISTS = (
    *("PYTHONPATH", "NODE_PATH", "RUBYLIB", "PERL5LIB", "CLASSPATH"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT"),
)
"""Variables from which a program takes code: one path after the other."""
_PATHS = ("PYTHONHOME", "PYTHONPYCACHEPREFIX", "PYTHONSTARTUP", "PYTHONUSERBASE", "BASH_ENV", "ENV")


tool_roots: list[str] = []
"""Writable roots of every session of this process, closed ones included."""


def own_places() -> Iterator[str]:
    """Folders that Toolrest itself is loaded from; no tool may write them, wherever they lie.

    Its package, the virtual environment that it runs in, the folder or archive of installed
    packages in which it lies, and the standard library.
    """
    package = package_folder()
    yield package
    if sys.prefix != sys.base_prefix:
        yield os.path.normpath(sys.prefix)  # a link there is kept from tools as well
        yield os.path.realpath(sys.prefix)
    folder = os.path.dirname(package)
    about = f"toolrest-{sys.modules['toolrest'].__version__}.dist-info"
    if os.path.isdir(os.path.join(folder, about)) or os.path.isfile(folder):
        yield folder
    yield os.path.dirname(os.path.realpath(os.__file__))


def package_folder() -> str:
    """The folder of Toolrest's package."""
    return os.path.realpath(os.path.dirname(str(sys.modules["toolrest"].__file__)))


def program_folder() -> str | None:
    """The folder with the program `apply_patch` alone; None where the package is an archive."""
    folder = os.path.join(package_folder(), "patch", "bin")
    return folder if os.path.isdir(folder) else None


def import_only_own(roots: Iterable[str]) -> None:
    """Remove folders that a tool may write from this process's `sys.path`. For the command line.

    The other folders are stored resolved, so that no link is followed a second time.
    """
    safe = Safe(roots)
    sys.path[:] = safe.folders(sys.path)
    package = sys.modules["toolrest"].__path__
    package[:] = map(os.path.realpath, package)
    if sys.pycache_prefix is not None and not safe.folders([sys.pycache_prefix]):
        sys.pycache_prefix = None


def child_environment(environ: Mapping[str, str], roots: Iterable[str]) -> dict[str, str]:
    """Variables for a program of ours or the user's, without those that bring it a tool's code."""
    safe = Safe(roots)
    kept = dict(environ)
    for name in (*_LISTS, *_PATHS):
        if name in kept:
            paths = kept[name].split(os.pathsep) if name in _LISTS else [kept[name]]
            kept[name] = os.pathsep.join(safe.folders(paths))
            if not kept[name]:
                del kept[name]
    return kept


class Safe:
    """Tells folders that tools may write from the others."""

    def __init__(self, roots: Iterable[str]) -> None:
        self._roots = _closed(os.path.realpath(root) for root in roots)
        self._own = _closed(own_places())

    def folders(self, folders: Sequence[str]) -> list[str]:
        """The folders that no tool may write, resolved; relative ones are left out."""
        real = (os.path.realpath(folder) for folder in folders if folder.startswith("/"))
        return [folder for folder in real if self.has(folder)]

    def has(self, real: str) -> bool:
        """Whether no tool may write a real path."""
        path = real + "/"
        return not path.startswith(self._roots) or path.startswith(self._own)


def lies_in(file: str, roots: Iterable[str]) -> bool:
    """Whether a file or the folder that names it really lies in a root: a tool may replace it."""
    closed = _closed(roots)
    return any((real_path(path) + "/").startswith(closed) for path in (os.path.dirname(file), file))


def folders_in(folders: Iterable[str], roots: Iterable[str]) -> tuple[str, ...]:
    """The folders that really lie in a root, and the relative ones: those may lie anywhere."""
    closed = _closed(roots)
    return tuple(
        folder
        for folder in folders
        if not folder.startswith("/") or (real_path(folder) + "/").startswith(closed)
    )


def real_path(path: str) -> str:
    """`os.path.realpath`, but quick, from the kernel: every command asks about all of PATH."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return os.path.realpath(path)  # where it would be if it existed
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return os.path.realpath(path)
    finally:
        os.close(fd)


def _closed(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(path if path.endswith("/") else path + "/" for path in paths)
