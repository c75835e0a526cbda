"""Git folders in a root: `git commit` works in them, but no command can plant a hook.

Git runs programs that its hooks and config name, the next time the user types `git` outside the
sandbox. So a root's `.git` is writable, but those parts are not; nor are the pointer files by
which git finds its folders (`.git` of a worktree, `commondir`): a moved pointer brings another
config. Parts that are missing are held by a mount point, so they stay missing.

A git folder outside the roots (worktree, submodule) is made writable only when its own
back-pointer names this root: a `.git` file that was merely put there opens nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct, field

from toolrest.git_pointers import Pointer
from toolrest.policy.paths.names import inside
from toolrest.sandbox.guard.git_files import (
    Nested,
    checkouts,
    kind,
    linked_worktree,
    pointer,
    real,
)

_NESTED_MOST = 16
"""So many submodules or worktrees get mounts of their own; beyond, all of them are read-only."""

_POINTERS_MOST = 256
"""So many checkouts of submodules can keep their `.git`, as no other nested repository does."""

COMMON_DIR_HERE = b".\n"
"""What a plain repository's `commondir` says when it is there at all: this very folder."""


class GitPlan(Struct):
    """The plan for git in one root: what is shown read-only, pinned, kept missing or watched."""

    writable: list[str] = field(default_factory=list)
    read_only: list[str] = field(default_factory=list)
    pinned: list[str] = field(default_factory=list)
    missing_folders: list[str] = field(default_factory=list)
    missing_files: dict[str, bytes] = field(default_factory=dict)
    there: dict[str, bytes | None] = field(default_factory=dict)
    """Of the read-only names those that must not become free, with what stands for each then.

    One may be removed; and what looked like one may have been another session's placeholder.
    """
    followed: list[str] = field(default_factory=list)
    """Where git is sent by what its files say, as it is written there."""
    watched: list[str] = field(default_factory=list)
    """What a plan depends on besides `.git` itself: made again when one of these changes."""
    info: str = ""
    """The folder in which git looks for `exclude`, if there is a repository."""
    refusal: str | None = None
    """Why nothing may run in this root."""

    def keep(self, path: str, blank: bytes | None) -> None:
        """Keep it read-only where it exists, and missing where it does not."""
        self.read_only.append(path)
        self.there[path] = blank

    def target(self, file: str, label: bytes) -> str | None:
        """The real path that a one-line file names; links on its way must stay."""
        found = pointer(file, label)
        return None if found is None else self.follow(found)

    def follow(self, found: Pointer) -> str:
        """The real path of a pointer; links on its way must stay."""
        if found.real != os.path.normpath(found.spelled):
            self.followed.append(found.spelled)
        return found.real


def git_plan(root: str) -> GitPlan:
    """Look at the root's `.git` once, at the start of a session."""
    plan = GitPlan()
    entry = os.path.join(root, ".git")
    what = kind(entry)
    if what is None:
        plan.missing_folders.append(entry)
    elif what == "link":
        plan.refusal = _link(entry)
    elif what == "folder" and kind(os.path.join(entry, "HEAD")) is None:
        plan.keep(entry, None)  # not a repository; git makes it one only when asked to
    elif what == "folder":
        plan.pinned.append(entry)
        plan.refusal = _folder(plan, entry)
        _nested(plan, root, entry)
    else:
        plan.keep(entry, None)
        _pointed(plan, root, entry)
    return plan


def only(entry: str) -> GitPlan:
    """The plan for a `.git` that points elsewhere since the session began: it is read-only."""
    plan = GitPlan()
    plan.keep(entry, None)
    target = plan.target(entry, b"gitdir:")
    if kind(entry) == "link":
        plan.refusal = _link(entry)
    elif target is not None and inside(target, os.path.dirname(entry)):
        plan.refusal = f"{entry} points at {target} since this session began; start another one"
    return plan


def _pointed(plan: GitPlan, root: str, entry: str) -> None:
    """`.git` is a file: a worktree or a submodule, or something that only looks like one."""
    if (worktree := linked_worktree(entry)) is not None:
        real_folder, real_common, _ = map(plan.follow, worktree)
        _worktree(plan, root, real_common, real_folder)
        return
    folder = plan.target(entry, b"gitdir:")
    if folder is None:
        return
    if not os.path.isfile(os.path.join(folder, "HEAD")):
        if inside(folder, root):
            plan.refusal = f"{entry} points at {folder}, which is not there; repair or remove it"
        return
    common = plan.target(os.path.join(folder, "commondir"), b"")
    if common in (None, folder):  # a session beside this one may hold the name, pointing nowhere
        if entry in checkouts(folder) or inside(folder, root):
            plan.writable.append(folder)
            plan.refusal = _folder(plan, folder)
            _nested(plan, root, folder)
    elif inside(folder, root):
        plan.refusal = f"{entry} points at {folder}, which is not a worktree that git made"


def _worktree(plan: GitPlan, root: str, common: str, folder: str) -> None:
    """The root's worktree folder, and the repository that it shares with others."""
    plan.writable += [common, folder]
    plan.refusal = _folder(plan, common)
    for name in ("HEAD", "index", "worktrees", "modules"):
        path = os.path.join(common, name)
        if kind(path) == "link" or (name == "modules" and kind(path) is not None):
            plan.keep(path, None)
        elif kind(path) is not None:
            plan.read_only.append(path)  # the main checkout and other worktrees are not its own
    if kind(os.path.join(common, "modules")) is None:
        plan.missing_folders.append(os.path.join(common, "modules"))
    for name in ("commondir", "gitdir"):
        plan.keep(os.path.join(folder, name), b"")
    _file(plan, os.path.join(folder, "config.worktree"), b"")
    _nested(plan, root, folder)


def _folder(plan: GitPlan, folder: str) -> str | None:
    """One git folder: everything but the parts that make git run something.

    Returns what is wrong with it, if it must not be used like this.
    """
    if not plan.info:  # the root's own, which comes before the nested ones
        plan.info = os.path.join(folder, "info")
    for name in ("hooks", "info"):
        path = os.path.join(folder, name)
        if kind(path) is None:
            plan.missing_folders.append(path)
        else:
            plan.keep(path, None)
    common = os.path.join(folder, "commondir")
    _file(plan, os.path.join(folder, "config"), b"")
    _file(plan, os.path.join(folder, "config.worktree"), b"")
    _file(plan, common, COMMON_DIR_HERE)
    plan.watched.append(os.path.join(folder, "config"))
    alternates = os.path.join(folder, "objects", "info", "alternates")
    if kind(alternates) == "file":
        plan.read_only.append(alternates)
    if kind(common) == "link":
        return _link(common)
    if plan.target(common, b"") not in (None, folder):
        return f"{common} points elsewhere, but this is no worktree's folder"
    return None


def _file(plan: GitPlan, path: str, blank: bytes) -> None:
    if kind(path) is None:
        plan.missing_files[path] = blank
    else:
        plan.keep(path, blank)


def _nested(plan: GitPlan, root: str, folder: str) -> None:
    """Submodules and further worktrees keep their git folders inside this one."""
    nested = Nested()
    nested.search_all(folder)
    plan.watched += nested.searched
    if not nested.is_whole or len(nested.links) > _POINTERS_MOST:
        plan.refusal = f"{folder} has too many folders in `modules` or `worktrees` to look at"
        return
    for link in nested.links:
        plan.keep(link, None)
    _keep_pointers(plan, root, nested)
    whole = [os.path.join(folder, name) for name in ("modules", "worktrees")]
    if max(len(nested.modules) + len(nested.worktrees), len(nested.deep)) > _NESTED_MOST:
        plan.read_only += [parent for parent in whole if kind(parent) == "folder"]
        return
    plan.read_only += nested.deep
    for module in nested.modules:
        if _folder(plan, module) is not None:
            plan.read_only.append(module)
    for worktree in nested.worktrees:
        for name in ("commondir", "gitdir", "config.worktree"):
            _file(plan, os.path.join(worktree, name), b"")


def _keep_pointers(plan: GitPlan, root: str, nested: Nested) -> None:
    """The `.git` of the checkouts of submodules and worktrees, as far as these are in the root."""
    paths = {path for module in _modules(plan, root, nested) for path in checkouts(module)}
    back = (pointer(os.path.join(worktree, "gitdir"), b"") for worktree in nested.worktrees)
    paths |= {found.real for found in back if found is not None}
    paths = {path for path in paths if inside(path, root) and kind(path) in ("link", "file")}
    if len(paths) > _POINTERS_MOST:
        plan.refusal = f"{root} has more than {_POINTERS_MOST} checkouts of submodules"
        return
    for path in sorted(paths):
        if kind(path) == "link":
            plan.keep(path, None)
        else:
            plan.read_only.append(path)
            plan.target(path, b"gitdir:")


def _modules(plan: GitPlan, root: str, nested: Nested) -> Iterator[str]:
    """The git folders of submodules, also those that are links or behind one in this root."""
    yield from nested.modules
    for link in nested.links:
        place = real(link)
        if not inside(place, root):
            continue
        yield link
        behind = Nested()
        behind.search(place)
        behind.search_all(place)
        if not behind.is_whole:
            plan.refusal = f"{link} leads to too many folders to look at"
        yield from behind.modules


def _link(path: str) -> str:
    return (
        f"{path} is a symbolic link: where git then looks for its parts is not known;"
        " put the real folder there, or a `gitdir:` file as `git worktree` does"
    )


def info_above(root: str) -> tuple[str, str]:
    """The `info` folder of the repository that a root lies in, and the root's path in that one."""
    folder = os.path.dirname(root)
    while folder != "/":
        info = os.path.join(folder, ".git", "info")
        if os.path.isfile(os.path.join(info, "exclude")):
            return info, os.path.relpath(root, folder) + "/"
        folder = os.path.dirname(folder)
    return "", ""
