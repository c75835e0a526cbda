"""Dangerous things that are done to files: deleting, moving, emptying, opening to everybody."""

from __future__ import annotations

from collections.abc import Callable

from toolrest.policy.commands.git import git_command
from toolrest.policy.commands.options import Options, read_options
from toolrest.policy.dangerous.targets import Danger, critical_system, critical_target
from toolrest.policy.shell.place import WorkingDirs
from toolrest.policy.shell.script import FROM_SHELL, GLOB, Simple
from toolrest.policy.shell.special_commands import find_is_narrow, find_starts
from toolrest.policy.shell.words import wordset


def _rm(simple: Simple, place: WorkingDirs) -> Danger | None:
    options = read_options(simple.argv)
    if options.has("--no-preserve-root"):
        return Danger("rm_recursive_critical_target", "rm has the option not to spare /")
    hidden = any(
        simple.mark(index) & FROM_SHELL and simple.argv[index][:1] in ("$", "`")
        for index in range(1, len(simple.argv))
    )
    recursive = options.has("r", "R", "--recursive")
    masked = any(
        mark and word[:1] == "-" for word, mark in zip(simple.argv, simple.marks, strict=False)
    )
    if not (recursive or masked or (hidden and len(options.operands) > 1)):
        return None
    for index in options.operands:
        text, mark = simple.argv[index], simple.mark(index)
        critical = critical_target(text, mark, place)
        if critical is not None:
            return Danger("rm_recursive_critical_target", f"rm -r would delete {critical}")
    return _rm_elsewhere(simple, options, place) if recursive else None


def _rm_elsewhere(simple: Simple, options: Options, place: WorkingDirs) -> Danger | None:
    for index in options.operands:
        text, mark = simple.argv[index], simple.mark(index)
        paths = () if mark else place.paths(text)
        if not paths:
            return Danger(
                "rm_recursive_expansion", f"rm -r of {text!r}, which only the shell can tell"
            )
        for path in paths:
            if not place.writable(path):
                return Danger("rm_outside_roots", f"rm -r of {path}, outside the writable roots")
    return None


def _find(simple: Simple, place: WorkingDirs) -> Danger | None:
    if not _deletes(simple.argv):
        return None
    for index in find_starts(simple):
        text, mark = simple.argv[index], simple.mark(index)
        if critical_system(text, mark, place):
            return Danger("find_delete_critical_target", f"find -delete beneath {text!r}")
        if mark:
            return Danger(
                "find_delete_expansion", f"find -delete beneath {text!r}, unknown until it runs"
            )
        if any(not place.writable(path) for path in place.paths(text)):
            return Danger("find_outside_roots", f"find -delete beneath {text!r}")
    if not find_is_narrow(simple) and not any(find_starts(simple)[1:]):
        start = simple.argv[find_starts(simple)[0]] if find_starts(simple) else "."
        if critical_target(start, 0, place):
            return Danger("find_delete_critical_target", f"find -delete of all of {start!r}")
    return None


def _deletes(argv: tuple[str, ...]) -> bool:
    if "-delete" in argv:
        return True
    runs = (place for place, word in enumerate(argv[:-1]) if word.startswith(("-exec", "-ok")))
    return any(argv[place + 1].rpartition("/")[2] in _REMOVERS for place in runs)


_REMOVERS = wordset("rm unlink shred")


def _mv(simple: Simple, place: WorkingDirs) -> Danger | None:
    options = read_options(simple.argv, "tS", wordset("--target-directory --suffix"))
    for index in options.operands:
        text, mark = simple.argv[index], simple.mark(index)
        if index != options.operands[-1] or options.has("t", "--target-directory"):
            critical = critical_target(text, mark, place)
            if critical is not None and mark != GLOB:
                return Danger("mv_critical_target", f"mv would move {critical} away")
        elif text == "/dev/null":
            return Danger("mv_to_null", "mv to /dev/null destroys what it moves")
        if mark & FROM_SHELL:
            return Danger("mv_expansion", f"mv of {text!r}, which only the shell can tell")
    return None


def _truncate(simple: Simple, place: WorkingDirs) -> Danger | None:
    options = read_options(simple.argv, "sr", wordset("--size --reference"))
    for index in options.operands:
        if simple.mark(index):
            return Danger(
                "truncate_expansion",
                f"truncate of {simple.argv[index]!r}, which only the shell can tell",
            )
    return None


def _permissions(simple: Simple, place: WorkingDirs) -> Danger | None:
    options = read_options(simple.argv, "", wordset("--from --reference"))
    first = 0 if options.has("--reference") else 1
    for index in options.operands[first:]:
        text, mark = simple.argv[index], simple.mark(index)
        critical = critical_system(text, mark, place)
        if critical is not None:
            return Danger("recursive_permissions", f"changes who may use {critical}")
        if mark & FROM_SHELL and options.has("R", "--recursive"):
            return Danger(
                "recursive_permissions", f"changes everything in {text!r}, whatever that is"
            )
    return None


def _rsync(simple: Simple, place: WorkingDirs) -> Danger | None:
    if not any(word.startswith(("--del", "--remove-source")) for word in simple.argv):
        return None
    options = read_options(simple.argv, "efTBM")
    for index in options.operands[-1:]:
        text, mark = simple.argv[index], simple.mark(index)
        if mark or critical_target(text, mark, place):
            return Danger("rsync_delete", f"rsync deletes what {text!r} has and the source lacks")
    return None


def _git(simple: Simple, place: WorkingDirs) -> Danger | None:
    start = git_command(simple.argv)
    verb = simple.argv[start] if start < len(simple.argv) else ""
    check = _GIT.get(verb)
    return None if check is None else check(simple, start + 1)


def _push(simple: Simple, start: int) -> Danger | None:
    for word in simple.argv[start:]:
        if _rewrites(word):
            return Danger("force_push", f"git push {word} rewrites or deletes what others have")
    return None


def _rewrites(word: str) -> bool:
    if word.startswith("--"):
        name = word.partition("=")[0]
        # --force, its kin with a lease, and the beginnings of its name that git accepts.
        return name.startswith("--force") or name in _PUSH_FLAGS
    if word.startswith("-"):
        return not word.startswith("-o") and bool(set("fd") & set(word[1:]))
    return len(word) > 1 and word[0] in "+:"


_PUSH_FLAGS = wordset("--forc --for --fo --mirror --delete --prune")


def _reset(simple: Simple, start: int) -> Danger | None:
    if any(len(word) > 3 and "--hard".startswith(word) for word in simple.argv[start:]):
        return Danger("git_discard", "git reset --hard throws away changes that are not committed")
    return None


def _clean(simple: Simple, start: int) -> Danger | None:
    options = read_options(simple.argv, "e", wordset("--exclude"), start=start)
    if options.has("f", "--force") and not options.has("n", "--dry-run"):
        return Danger("git_discard", "git clean -f deletes files that git does not know")
    return None


def _git_rm(simple: Simple, start: int) -> Danger | None:
    options = read_options(simple.argv, start=start)
    marked = any(simple.mark(index) & FROM_SHELL for index in options.operands)
    if marked and options.has("r"):
        return Danger("rm_recursive_expansion", "git rm -r of what only the shell can tell")
    return None


def _stash(simple: Simple, start: int) -> Danger | None:
    if simple.argv[start : start + 1] in (("clear",), ("drop",)):
        return Danger("git_discard", f"git stash {simple.argv[start]} throws away saved changes")
    return None


def _reflog(simple: Simple, start: int) -> Danger | None:
    if simple.argv[start : start + 1] in (("expire",), ("delete",)):
        return Danger("git_discard", "git reflog expire removes the way back to lost commits")
    return None


def _filter(simple: Simple, start: int) -> Danger | None:
    return Danger("git_discard", "it rewrites the whole history")


_GIT: dict[str, Callable[[Simple, int], Danger | None]] = {
    "push": _push,
    "reset": _reset,
    "clean": _clean,
    "rm": _git_rm,
    "stash": _stash,
    "reflog": _reflog,
    "filter-branch": _filter,
    "filter-repo": _filter,
}

FILE_CHECKS: dict[str, Callable[[Simple, WorkingDirs], Danger | None]] = {
    "rm": _rm,
    "find": _find,
    "mv": _mv,
    "truncate": _truncate,
    **dict.fromkeys(wordset("chmod chown chgrp setfacl"), _permissions),
    "rsync": _rsync,
    "git": _git,
}
