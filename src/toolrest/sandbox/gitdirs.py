"""How does `git commit` work in a root while nobody can plant a hook?

Git runs programs that its hooks and config name, the next time the user types `git` outside the
sandbox. So a root's `.git` is writable, but those parts are not; nor are the pointer files by
which git finds its folders (`.git` of a worktree, `commondir`): whoever moves a pointer brings a
config of his own. Parts that are missing are held by a mount point, so they stay missing.

A git folder outside the roots (worktree, submodule) is made writable only when its own
back-pointer names this root: a `.git` file that was merely put there opens nothing.
"""

from __future__ import annotations

import os
import re
import stat

from toolrest.lazy_dataclass import dataclass, field
from toolrest.policy.names import inside

_POINTER_MOST = 4096
_CONFIG_MOST = 1 << 20
_NESTED_MOST = 16
"""So many submodules or worktrees get mounts of their own; beyond, all of them are read-only."""

COMMON_DIR_HERE = b".\n"
"""What a plain repository's `commondir` says when it is there at all: this very folder."""

_WORKTREE = re.compile(rb"^\s*worktree\s*=\s*(.*?)\s*$", re.IGNORECASE | re.MULTILINE)


@dataclass(slots=True)
class GitPlan:
    """What to do about git in one root."""

    writable: list[str] = field(default_factory=list)
    read_only: list[str] = field(default_factory=list)
    pinned: list[str] = field(default_factory=list)
    missing_folders: list[str] = field(default_factory=list)
    missing_files: dict[str, bytes] = field(default_factory=dict)
    there: dict[str, bytes | None] = field(default_factory=dict)
    """Of the read-only names those that must not become free, with what stands for each then.

    Somebody may remove one; and what looked like one may have been another session's placeholder.
    """
    refusal: str | None = None
    """Why nothing may run in this root."""

    def keep(self, path: str, blank: bytes | None) -> None:
        """Read-only as long as it is there, and never anybody else's to make."""
        self.read_only.append(path)
        self.there[path] = blank


def git_plan(root: str) -> GitPlan:
    """Look at the root's `.git` once, at the start of a session."""
    plan = GitPlan()
    entry = os.path.join(root, ".git")
    kind = _kind(entry)
    if kind is None:
        plan.missing_folders.append(entry)
    elif kind == "link":
        plan.refusal = _link(entry)
    elif kind == "folder" and _kind(os.path.join(entry, "HEAD")) is None:
        plan.keep(entry, None)  # not a repository; nobody makes it one unasked
    elif kind == "folder":
        plan.pinned.append(entry)
        _folder(plan, entry)
        _nested(plan, root, entry)
    else:
        plan.keep(entry, None)
        _pointed(plan, root, entry)
    return plan


def only(entry: str) -> GitPlan:
    """For a `.git` that points elsewhere since the session began: nobody changes it."""
    plan = GitPlan()
    if _kind(entry) == "link":
        plan.refusal = _link(entry)
    plan.keep(entry, None)
    return plan


def _pointed(plan: GitPlan, root: str, entry: str) -> None:
    """`.git` is a file: a worktree or a submodule, or something that only looks like one."""
    folder = _target(entry, b"gitdir:")
    if folder is None:
        return
    if not os.path.isfile(os.path.join(folder, "HEAD")):
        if inside(folder, root):
            plan.refusal = f"{entry} points at {folder}, which is not there; repair or remove it"
        return
    common = _target(os.path.join(folder, "commondir"), b"")
    if common in (None, folder):  # a session beside this one may hold the name, pointing nowhere
        if _checkout(folder) == entry or inside(folder, root):
            plan.writable.append(folder)
            _folder(plan, folder)
        return
    ours = _target(os.path.join(folder, "gitdir"), b"") == entry
    if os.path.dirname(os.path.dirname(folder)) == common and ours:
        _worktree(plan, common, folder)
    elif inside(folder, root):
        plan.refusal = f"{entry} points at {folder}, which is not a worktree that git made"


def _worktree(plan: GitPlan, common: str, folder: str) -> None:
    """The root's worktree folder, and the repository that it shares with others."""
    plan.writable += [common, folder]
    _folder(plan, common)
    for name in ("HEAD", "index", "worktrees", "modules"):
        path = os.path.join(common, name)
        if _kind(path) == "link":
            plan.keep(path, None)
        elif _kind(path) is not None:
            plan.read_only.append(path)  # the main checkout and other worktrees are not its own
    for name in ("commondir", "gitdir"):
        plan.keep(os.path.join(folder, name), b"")
    _worktree_config(plan, common, folder)


def _folder(plan: GitPlan, folder: str) -> None:
    """One git folder: everything but the parts that make git run something."""
    for name in ("hooks", "info"):
        path = os.path.join(folder, name)
        if _kind(path) is None:
            plan.missing_folders.append(path)
        else:
            plan.keep(path, None)
    _file(plan, os.path.join(folder, "config"), b"")
    _file(plan, os.path.join(folder, "commondir"), COMMON_DIR_HERE)
    common = os.path.join(folder, "commondir")
    if _kind(common) == "link":
        plan.refusal = _link(common)
    elif _target(common, b"") not in (None, folder):
        plan.refusal = f"{common} points elsewhere, but this is no worktree's folder"
    _worktree_config(plan, folder, folder)
    alternates = os.path.join(folder, "objects", "info", "alternates")
    if _kind(alternates) == "file":
        plan.read_only.append(alternates)


def _worktree_config(plan: GitPlan, common: str, folder: str) -> None:
    """`config.worktree` counts only where the config switches it on."""
    if b"worktreeconfig" in _config(common).lower():
        _file(plan, os.path.join(folder, "config.worktree"), b"")


def _file(plan: GitPlan, path: str, blank: bytes) -> None:
    if _kind(path) is None:
        plan.missing_files[path] = blank
    else:
        plan.keep(path, blank)


def _nested(plan: GitPlan, root: str, folder: str) -> None:
    """Submodules and further worktrees keep their git folders inside this one."""
    modules = _nested_in(plan, root, os.path.join(folder, "modules"), 3)
    for module in modules:
        _folder(plan, module)
        _keep_pointer(plan, root, module)
    worktrees = _nested_in(plan, root, os.path.join(folder, "worktrees"), 1)
    for worktree in worktrees:
        for name in ("commondir", "gitdir"):
            _file(plan, os.path.join(worktree, name), b"")
        _worktree_config(plan, folder, worktree)


def _keep_pointer(plan: GitPlan, root: str, module: str) -> None:
    """The `.git` of a submodule's checkout, if that is in this root."""
    pointer = _checkout(module)
    if pointer is None or not inside(pointer, root):
        return
    if _kind(pointer) == "link":
        plan.keep(pointer, None)
    elif _kind(pointer) == "file":
        plan.read_only.append(pointer)


def _nested_in(plan: GitPlan, root: str, parent: str, levels: int) -> list[str]:
    """The git folders there; none where all of it is read-only instead."""
    if _kind(parent) == "link":
        plan.keep(parent, None)
        return []
    found = _git_folders(plan, root, parent, levels)
    if len(found) <= _NESTED_MOST:
        return found
    plan.read_only.append(parent)
    return []


def _git_folders(plan: GitPlan, root: str, parent: str, levels: int) -> list[str]:
    """Folders with a HEAD beneath this one; submodule names may contain slashes."""
    found: list[str] = []
    try:
        with os.scandir(parent) as entries:
            names = sorted((e.path, e.is_symlink()) for e in entries if e.is_dir())
    except OSError:
        return found
    for path, is_link in names[: 4 * _NESTED_MOST]:
        if is_link:
            plan.keep(path, None)
            _keep_pointer(plan, root, path)
        elif _kind(os.path.join(path, "HEAD")) == "file":
            found.append(path)
        elif levels > 1:
            found += _git_folders(plan, root, path, levels - 1)
    return found


def _checkout(module: str) -> str | None:
    """The `.git` file of the checkout that belongs to a submodule's git folder."""
    match = _WORKTREE.search(_config(module))
    if match is None or not match[1] or b'"' in match[1]:
        return None
    place = os.path.normpath(os.path.join(module, os.fsdecode(match[1])))
    return os.path.join(place, ".git") if os.path.realpath(place) == place else None


def _target(file: str, label: bytes) -> str | None:
    """The real path that a one-line pointer file names."""
    if _kind(file) != "file":
        return None
    text = _read(file, _POINTER_MOST)
    if not text.startswith(label) or b"\0" in text:
        return None
    name = os.fsdecode(text[len(label) :].strip())
    return os.path.realpath(os.path.join(os.path.dirname(file), name)) if name else None


def _config(folder: str) -> bytes:
    """A git folder's config; one that is a link is held in place, and so may be followed."""
    return _read(os.path.realpath(os.path.join(folder, "config")), _CONFIG_MOST)


def _read(path: str, most: int) -> bytes:
    """The start of a regular file; nothing for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, most) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)


def _kind(path: str) -> str | None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else "file"


def _link(path: str) -> str:
    return (
        f"{path} is a symbolic link: where git then looks for its parts is not known;"
        " put the real folder there, or a `gitdir:` file as `git worktree` does"
    )
