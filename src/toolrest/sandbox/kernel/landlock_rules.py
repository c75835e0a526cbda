"""Landlock rules, as data for the launcher: confinement without namespaces.

Landlock grants rights beneath folders and denies all others. It cannot take a part back out of a
folder it granted; so what is hidden is left out by granting its neighbours one by one, and
protected names inside a writable root stay writable. It knows nothing of chmod, of other
processes' names or of sockets before Linux 7.1. `gaps` says what that leaves open.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from functools import cache

from toolrest.own_code import package_folder
from toolrest.policy.paths.names import inside
from toolrest.sandbox.policy import SandboxPolicy

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK = 1 << 6, 1 << 7, 1 << 8, 1 << 9
MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = 1 << 10, 1 << 11, 1 << 12
REFER, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX = 1 << 13, 1 << 14, 1 << 15, 1 << 16

READ = EXECUTE | READ_FILE
WRITE = (
    READ
    | READ_DIR
    | WRITE_FILE
    | TRUNCATE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
    | RESOLVE_UNIX
)
"""Everything but device nodes."""
DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV

SCOPE_ABSTRACT, SCOPE_SIGNAL = 1 << 0, 1 << 1

_CREATE_RULESET, _ABI_QUERY = 444, 1
TRUNCATE_ABI, SCOPE_ABI, UNIX_ABI = 3, 6, 9

DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
_MOST_RULES = 4000


@cache
def abi() -> int:
    """The version of Landlock that this kernel answers with; 0 where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        answer = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ABI_QUERY)
    except (AttributeError, ValueError):
        return 0
    return max(int(answer), 0)


def rules(policy: SandboxPolicy, tmp: str) -> tuple[tuple[str, int], ...]:
    """Real paths and the rights beneath them, the writable ones first.

    Names can be listed everywhere; contents cannot be read where something is hidden.
    """
    writable = [*policy.roots, *([policy.cache_dir] if policy.cache_dir else [])]
    if policy.tmp == "private":
        writable.append(tmp)
    granted = [(path, WRITE) for path in writable]
    granted += [(os.path.realpath(f"/dev/{name}"), DEVICE) for name in DEVICES]
    granted += [("/dev/pts", DEVICE), ("/", READ_DIR)]
    granted += [(path, READ) for path in policy.exceptions if os.path.exists(path)]
    kept_out = ["/dev", *policy.hidden, policy.session_dir]
    # The list may be cut: not /usr or the workspace for the sake of a thousand files elsewhere.
    found = _around(_readable(policy), kept_out)
    found.sort(key=lambda path: _distance(path, policy.workspace))
    granted += [(path, READ) for path in found]
    return tuple(granted[:_MOST_RULES])


def _distance(path: str, workspace: str) -> int:
    """How early a folder is granted: top folders, those of the workspace, the others by depth."""
    depth = path.count("/")
    if depth > 1 and (inside(path, workspace) or inside(workspace, path)):
        return 1
    return depth if depth <= 1 else depth + 1


def _readable(policy: SandboxPolicy) -> Sequence[str]:
    if policy.read_roots is None:
        return ("/",)
    minimal = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/nix", "/proc", "/sys")
    shown = (*minimal, package_folder(), *policy.read_roots)
    return list(dict.fromkeys(map(os.path.realpath, shown)))


def _around(folders: Iterable[str], hidden: Sequence[str]) -> list[str]:
    """The largest subtrees of these folders that hold nothing hidden."""
    taboo = {path.rstrip("/") or "/" for path in hidden}
    above = {parent for path in taboo for parent in _parents(path)}
    found: list[str] = []
    pending = [f for f in folders if not any(parent in taboo for parent in _parents(f))]
    while pending:
        folder = pending.pop()
        if folder in taboo:
            continue
        if folder not in above:
            found.append(folder)
            continue
        try:
            with os.scandir(folder) as entries:
                pending += [entry.path for entry in entries if not entry.is_symlink()]
        except OSError:
            continue
    return found


def _parents(path: str) -> list[str]:
    names = path.strip("/").split("/")
    return ["/", *("/" + "/".join(names[:count]) for count in range(1, len(names)))]


def scopes() -> int:
    """Signals and abstract sockets stay among the command's own processes."""
    return SCOPE_ABSTRACT | SCOPE_SIGNAL if abi() >= SCOPE_ABI else 0


OPEN: dict[str, str] = {
    "agents_dir": "protected names inside a writable root can be created",
    "chmod_outside": "the mode of a file outside can be changed",
    "chown_outside": "the owner of a file outside can be changed, as far as the user may",
    "codex_dir": "protected names inside a writable root can be created",
    "git_config": "`.git/config` can be written",
    "git_create_absent": "a `.git` folder can be created",
    "git_hooks": "hooks can be written to `.git/hooks`",
    "git_rename": "`.git` can be renamed and replaced",
    "git_symlink": "hooks can be written through a `.git` that is a link",
    "gitfile_create_absent": "a `.git` file can be created",
    "hardlink_preexisting": "a file outside with a hard link in a writable root can be written",
    "see_outside_procs": "processes outside can be seen in /proc",
    "setxattr_outside": "extended attributes of a file outside can be changed",
    "utime_outside": "the times of a file outside can be changed",
}
"""Rows of the escape matrix that Landlock cannot close, and what each one means."""

BROKEN: dict[str, str] = {
    "mp_semaphore": "POSIX semaphores do not work: /dev/shm is the host's",
    "tcp_listen_local": "no listening on loopback: there is no network of its own",
    "unix_listen_ws": "no unix sockets in the workspace: connecting is refused altogether",
}
"""Ordinary work that does not work beneath Landlock."""


def open_rows() -> dict[str, str]:
    """The rows that stay open on this kernel."""
    if abi() >= SCOPE_ABI:
        return OPEN
    note = "processes outside can be signalled (Landlock version 6 would prevent it)"
    return OPEN | {"kill_outside": note, "killpg_outside": note}
