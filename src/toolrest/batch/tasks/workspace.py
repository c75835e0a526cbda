"""Workspaces of tasks: a folder, a worktree of a repository, or an empty folder for an image.

A repository is mirrored once a machine; each task gets a worktree of the mirror. git never reads
what tools can write as its own settings: it is given the worktree's administrative folder, which
lies in the mirror, and an index of ours.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial

from msgspec import Struct, field

from toolrest.batch.tasks.task import BatchTask
from toolrest.errors import ToolrestError
from toolrest.private_files import make_private, remove_tree
from toolrest.process.helper.kernel import die_with_parent

_QUIET = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"),
    *("-c", "protocol.ext.allow=never", "-c", "advice.detachedHead=false"),
)
_LOCK_SECONDS = 0.05
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_OWN_SETTINGS = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
"""For what reads a worktree that tools have written: no filter of the user runs on it."""


class WorkspaceError(ToolrestError):
    """A workspace that cannot be made: the repository or the commit is not there."""


class Workspace(Struct):
    """A task's folder. `base` is the commit that it started from, None without a repository."""

    path: str
    base: str | None = None
    git_dir: str | None = None
    is_ours: bool = False
    """Whether it was made for the task, and is removed with it."""
    is_new: bool = False
    """Whether it is a worktree without an earlier attempt's changes."""


class Patch(Struct):
    """The changes in a worktree, and the nested repositories whose files are not among them."""

    data: bytes = b""
    left_out: list[str] = field(default_factory=list)


class Workspaces:
    """The workspaces and mirrors of one machine, in one folder."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch

    async def make(
        self, task: BatchTask, name: str, base: object, *, keep: bool = True
    ) -> Workspace:
        """The workspace of a task, as an earlier attempt on this machine left it, or new.

        `base` is the commit that an earlier attempt started from. Without `keep` a worktree is
        new: that of this machine is older than what another one has stored.
        """
        if task.folder is not None:
            return Workspace(task.folder)
        path = os.path.join(self._scratch, "workspaces", name)
        make_private(os.path.dirname(path))
        if task.repo is None:
            make_private(path)
            return Workspace(path, is_ours=True)
        if base is not None and not (isinstance(base, str) and _COMMIT.fullmatch(base)):
            raise WorkspaceError(f"the store names {base!r} as the base, which is no commit")
        mirror = self._mirror(task.repo)
        async with _locked(f"{mirror}.lock"):
            commit = await self._commit(mirror, task.repo, base or task.commit or "HEAD")
            git_dir = os.path.join(mirror, "worktrees", name)
            is_new = not keep or not _are_folders(path, git_dir)
            if is_new:
                remove_tree(path)
                await _git(mirror, "worktree", "prune")
                await _git(mirror, "worktree", "add", "--detach", "--force", path, commit)
        return Workspace(path, commit, git_dir, is_ours=True, is_new=is_new)

    def _mirror(self, repo: str) -> str:
        name = hashlib.sha256(repo.encode()).hexdigest()[:24]
        return os.path.join(self._scratch, "mirrors", f"{name}.git")

    async def _commit(self, mirror: str, repo: str, wanted: str) -> str:
        if not _are_folders(mirror):
            making = f"{mirror}.new"
            remove_tree(making)
            source = ("--mirror", "--template=", "--", _source(repo))
            await _git(None, "clone", "-q", *source, making)
            os.rename(making, mirror)
        for fetched in (False, True):
            if fetched:
                await _git(mirror, "fetch", "-q", "--prune", "origin", check=False)
                fetch = ("fetch", "-q", "--end-of-options", "origin", wanted)
                await _git(mirror, *fetch, check=False)
            verify = ("rev-parse", "-q", "--verify", "--end-of-options", f"{wanted}^{{commit}}")
            found = await _git(mirror, *verify, check=False)
            if found:
                return found.decode().strip()
        raise WorkspaceError(f"{repo} has no commit {wanted}")

    async def patch(self, workspace: Workspace, index: str) -> Patch:
        """What was changed since the base, new files included, as `git apply` takes it.

        `index` is a path for a file that this call has alone. git runs commands of a submodule's
        own settings, which tools can write: it finds no submodule in the index, and no nested
        repository is entered.
        """
        if workspace.base is None or workspace.git_dir is None:
            return Patch()
        where = (f"--work-tree={workspace.path}", "-c", "core.bare=false")
        env = {**_OWN_SETTINGS, "GIT_INDEX_FILE": index}
        git = partial(_git, workspace.git_dir, *where, env=env, cwd=workspace.path)
        try:
            await git("read-tree", workspace.base)
            entries = (await git("ls-files", "-s", "-z")).split(b"\0")
            links = [row.partition(b"\t")[2] for row in entries if row.startswith(b"160000 ")]
            if links:
                update = ("update-index", "-z", "--force-remove", "--stdin")
                await git(*update, stdin=b"".join(link + b"\0" for link in links))
            nested = await asyncio.to_thread(_nested_repositories, os.fsencode(workspace.path))
            paths = [b".", *(b":(top,exclude,literal)" + path for path in nested)]
            add = ("add", "-A", "--pathspec-from-file=-", "--pathspec-file-nul")
            await git(*add, stdin=b"\0".join(paths))
            data = await git(
                "diff", "--cached", "--binary", "--no-ext-diff", "--no-textconv", "--no-color",
                "--ignore-submodules=all", workspace.base,
            )  # fmt: skip
        finally:
            for path in (index, f"{index}.lock"):
                with suppress(FileNotFoundError):
                    os.unlink(path)
        return Patch(data, [path.decode("utf-8", "replace") for path in nested])

    async def apply(self, workspace: Workspace, patch: bytes) -> None:
        """Apply an earlier attempt's patch to a new worktree."""
        if patch and workspace.git_dir is not None:
            where = (f"--work-tree={workspace.path}", "-c", "core.bare=false")
            apply = ("apply", "--whitespace=nowarn", "-")
            await _git(
                workspace.git_dir, *where, *apply, env=_OWN_SETTINGS, cwd=workspace.path,
                stdin=patch,
            )  # fmt: skip

    def remove(self, workspace: Workspace) -> None:
        """Remove what was made for a task."""
        if workspace.is_ours:
            remove_tree(workspace.path)
            if workspace.git_dir is not None:
                remove_tree(workspace.git_dir)


def _are_folders(*paths: str) -> bool:
    return all(map(os.path.isdir, paths))


def _nested_repositories(root: bytes) -> list[bytes]:
    """The folders below a worktree that are repositories of their own, relative to it."""
    found = []
    for folder, folders, files in os.walk(root):
        if folder != root and b".git" in (*folders, *files):
            found.append(os.path.relpath(folder, root))
            folders.clear()
        elif folder == root and b".git" in folders:
            folders.remove(b".git")
    return sorted(found)


def _source(repo: str) -> str:
    return os.path.abspath(repo) if os.path.isdir(repo) else repo


@asynccontextmanager
async def _locked(path: str) -> AsyncIterator[None]:
    """Hold a lock file. Waiting for it can be cancelled."""
    make_private(os.path.dirname(path))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_SECONDS)
        yield
    finally:
        os.close(fd)


async def _git(
    git_dir: str | None,
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: bytes | None = None,
    check: bool = True,
) -> bytes:
    """Run git on a folder of ours; WorkspaceError with its message when it fails.

    It dies with us, as all children do.
    """
    where = [] if git_dir is None else [f"--git-dir={git_dir}"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = await asyncio.create_subprocess_exec(
            "git", *where, *_QUIET, *words,
            cwd=cwd or git_dir,
            preexec_fn=partial(die_with_parent, signal.SIGKILL),
            env={**variables, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(env or {})},
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except FileNotFoundError:
        raise WorkspaceError("git is not installed, and a task with a `repo` needs it") from None
    try:
        out, err = await process.communicate(stdin)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode and check:
        message = err.decode("utf-8", "replace").strip()[-500:]
        verb = next((word for word in words if not word.startswith("-") and "=" not in word), "")
        raise WorkspaceError(f"git {verb}: {message}")
    return out if not process.returncode else b""
