"""Bubblewrap with a root file system of the user's own as `/`.

Programs, libraries and settings come from the given folder, read-only; of the host only the
roots, the private `/tmp` and the caches are there. Everything else is as in the usual sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from toolrest.errors import ConfigError
from toolrest.policy.paths.names import inside
from toolrest.sandbox.policy import SandboxPolicy

_OWN = ("/dev", "/proc", "/sys", "/tmp", "/run")  # noqa: S108
"""Made new in every sandbox, whatever the folder has there."""


def check_rootfs(path: str, policy: SandboxPolicy) -> str:
    """The real path of a usable root file system; ConfigError says what is wrong with another."""
    real = os.path.realpath(os.path.expanduser(path))
    if real == "/" or not os.path.isdir(real):
        raise ConfigError(f"sandbox.chroot: {path} is not a folder with a root file system")
    if not os.path.exists(os.path.join(real, "bin/sh")):
        raise ConfigError(f"sandbox.chroot: {path} has no bin/sh")
    for root in policy.roots:
        if inside(real, root):
            raise ConfigError(
                f"sandbox.chroot: {path} lies in the writable root {root}, so a command could"
                " change its programs"
            )
    return real


def base_arguments(rootfs: str, needed: Sequence[str]) -> tuple[str, ...]:
    """The start of the view: an empty root, filled from the given folder.

    Where a mount point is needed that the folder does not have, its parents are filled entry by
    entry, so that it can be made without touching the user's files.
    """
    return ("--tmpfs", "/", *_fill(rootfs, "/", needed))


def _fill(source: str, target: str, needed: Sequence[str]) -> Iterator[str]:
    with os.scandir(source) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        path = os.path.join(target, entry.name)
        if path in _OWN:
            continue
        if entry.is_symlink():
            yield from ("--symlink", os.readlink(entry.path), path)
        elif entry.is_dir() and any(_missing(place, path, entry.path) for place in needed):
            yield from ("--dir", path)
            yield from _fill(entry.path, path, needed)
        else:
            yield from ("--ro-bind", entry.path, path)


def _missing(place: str, path: str, source: str) -> bool:
    """Whether a mount point lies beneath `path` and is not in the folder that is shown there."""
    if place == path or not inside(place, path):
        return False
    return not os.path.exists(os.path.join(source, os.path.relpath(place, path)))


_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/zsh", "/usr/bin/zsh", "/bin/sh")


def shells_in(rootfs: str) -> tuple[str, ...]:
    """The shells of a root file system; `/bin/sh` is always there."""
    return tuple(path for path in _SHELLS if os.path.exists(rootfs + path))


HOST = "/run/toolrest-host"
"""Where the host's Python is shown for the forwarder; the folder itself need not have one."""


def host_python(inner: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the forwarder needs of the host, to be shown beneath HOST, and its command there.

    The host's own loader starts its Python, with the libraries that are loaded here: those of the
    other root may be of another system.
    """
    python, script = os.path.realpath(inner[0]), inner[-3]
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        mapped = {line.split(None, 5)[5].rstrip("\n") for line in lines if "/" in line}
    libraries = [path for path in mapped if ".so" in os.path.basename(path)]
    loader = next((p for p in libraries if os.path.basename(p).startswith("ld-")), None)
    folders = {os.path.dirname(path) for path in libraries}
    standard = os.path.dirname(os.path.realpath(os.__file__))
    shown = sorted({python, script, standard, *folders})
    outer = [p for p in shown if not any(p != o and inside(p, o) for o in shown)]
    start = () if loader is None else (HOST + loader, "--library-path", _joined(folders))
    return tuple(outer), (*start, HOST + python, *inner[1:-3], HOST + script, *inner[-2:])


def _joined(folders: Iterable[str]) -> str:
    return ":".join(HOST + folder for folder in sorted(folders))
