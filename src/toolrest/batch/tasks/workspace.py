"""Workspaces of tasks: a folder, a worktree of a repository, or an empty folder for an image.

A repository is mirrored once a machine; each task gets a worktree of the mirror. git never reads
what tools can write as its own settings: it is given the worktree's administrative folder, which
lies in the mirror, and an index of ours. Tools can read the mirror: it names the repository without
the user and password of its address, and what a patch is made of does not lie there.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import signal
import stat
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial

from msgspec import Struct, field

from toolrest.batch.stores.addresses import without_users
from toolrest.batch.tasks.nested import nested_repositories
from toolrest.batch.tasks.processes import send_signal
from toolrest.batch.tasks.task import BatchTask
from toolrest.errors import ToolrestError
from toolrest.own_code import Safe, child_environment
from toolrest.private_files import make_private, remove_tree
from toolrest.process.helper.kernel import die_with_parent
from toolrest.sandbox.programs import SYSTEM_FOLDERS, find_program

_QUIET = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"),
    *("-c", "advice.detachedHead=false"),
)
_LOCK_SECONDS = 0.05
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_OWN_SETTINGS = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
"""For what writes or reads a worktree: no filter of the user runs on what tools have written, and
what was checked out without filters is no change without them."""
_ALWAYS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "LC_ALL": "C",
}
"""A remote helper (`NAME::ADDRESS`, or `NAME://`) is a program: git starts only its own."""
_MOST_BYTES = 64 << 20
_TOO_LARGE = f"changed files are more than {_MOST_BYTES >> 20} MB"
_FULL_DISK = ("No space left on device", "Disk quota exceeded")
_FINAL = re.compile(
    r"repository '.*' (does not exist|not found)|does not appear to be a git repository"
    r"|Repository not found|couldn't find remote ref|not our ref|unadvertised object"
    r"|Authentication failed|could not read (Username|Password)|Permission denied \("
    r"|returned error: (401|404|410)|protocol '.*' is not supported|Unable to find remote helper"
    r"|transport '.*' not allowed|dubious ownership|Host key verification failed"
)
"""What git says of a repository or commit that is not there, or that it may not read."""
_fetched: set[str] = set()
"""Mirrors that have been brought up to date by this process."""


class WorkspaceError(ToolrestError):
    """A workspace that cannot be made: the repository or the commit is not there."""


class WorkspaceRefused(WorkspaceError):
    """One whose repository or commit is not there or may not be read, as its server says."""


class WorkspaceUnavailable(WorkspaceError):
    """One that cannot be made at present: no connection, a server's error, a full disk."""


class Workspace(Struct):
    """A task's folder. `base` is the commit that it started from, None without a repository."""

    path: str
    base: str | None = None
    git_dir: str | None = None
    is_ours: bool = False
    """Whether it was made for the task, and is removed with it."""
    is_new: bool = False
    """Whether it is without an earlier attempt's changes; a user's folder never is."""


class Patch(Struct):
    """The changes in a worktree, and the nested repositories whose files are not among them."""

    data: bytes = b""
    left_out: list[str] = field(default_factory=list)


class Repository(Struct, frozen=True):
    """Where a task's repository is, and how that is said where tools can read it."""

    address: str
    shown: str
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that make git connect to `address` where its configuration says `shown`."""

    @classmethod
    def of(cls, repo: str) -> Repository:
        """The repository of a URL or a path; a path is one of this process's folder."""
        address = os.path.abspath(repo) if os.path.isdir(repo) else repo
        shown = without_users(address)
        if shown == address:
            return cls(address, shown)
        name = f"url.{address}.insteadOf"
        # Not as arguments: other users of the machine see those.
        env = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": name, "GIT_CONFIG_VALUE_0": shown}
        return cls(address, shown, env)


class Workspaces:
    """The workspaces and mirrors of one machine, in one folder."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch

    async def make(
        self, task: BatchTask, name: str, base: object, *, keep: bool = True
    ) -> Workspace:
        """The workspace of a task, as an earlier attempt on this machine left it, or new.

        `base` is the commit that an earlier attempt started from. Without `keep` it is new: that
        of this machine is older than what another one has stored, or of an earlier run.
        """
        if task.folder is not None:
            return Workspace(task.folder)
        name = _unchanged_by_git(name)
        path = os.path.join(self._scratch, "workspaces", name)
        make_private(os.path.dirname(path))
        if task.repo is None:
            is_new = not keep or not _are_folders(path)
            if is_new:
                remove_tree(path)
            make_private(path)
            return Workspace(path, is_ours=True, is_new=is_new)
        if base is not None and not (isinstance(base, str) and _COMMIT.fullmatch(base)):
            raise WorkspaceError(f"the store names {base!r} as the base, which is no commit")
        repository = Repository.of(task.repo)
        mirror = self._mirror(repository)
        async with _locked(f"{mirror}.lock"):
            commit = await self._commit(mirror, repository, base or task.commit or "HEAD")
            git_dir = os.path.join(mirror, "worktrees", name)
            is_new = not keep or not _are_folders(path, git_dir)
            if is_new:
                remove_tree(path)
                await _git(mirror, "worktree", "prune")
                add = ("worktree", "add", "--detach", "--force", path, commit)
                await _git(mirror, *add, env=_OWN_SETTINGS)
                if not _are_folders(git_dir):
                    raise WorkspaceError(f"git worktree add: {git_dir} was not made")
        return Workspace(path, commit, git_dir, is_ours=True, is_new=is_new)

    def _mirror(self, repository: Repository) -> str:
        name = hashlib.sha256(repository.address.encode()).hexdigest()[:24]
        return os.path.join(self._scratch, "mirrors", f"{name}.git")

    async def _commit(self, mirror: str, repository: Repository, wanted: str) -> str:
        """The full name of a commit, which the mirror then has. Branches are as they are now."""
        is_full = _COMMIT.fullmatch(wanted) is not None
        if not _are_folders(mirror):
            await self._clone(mirror, repository)
        elif repository.env:  # earlier versions left the whole address there
            await _git(mirror, "config", "remote.origin.url", repository.shown)
        if not is_full:
            await self._fetch(mirror, repository)
        found = await self._find(mirror, wanted)
        if not found:
            await self._fetch(mirror, repository, again=True)
            if is_full:  # of commits in no branch, servers have those of pull requests
                fetch = ("fetch", "-q", "--end-of-options", "origin", wanted)
                with suppress(WorkspaceRefused):
                    await _git(mirror, *fetch, env=repository.env)
            found = await self._find(mirror, wanted)
        if not found:
            raise WorkspaceError(f"{repository.shown} has no commit {wanted}")
        return found

    async def _clone(self, mirror: str, repository: Repository) -> None:
        making = f"{mirror}.new"
        remove_tree(making)
        clone = ("clone", "-q", "--mirror", "--template=", "--", repository.shown, making)
        await _git(None, *clone, env=repository.env)
        os.rename(making, mirror)
        _fetched.add(mirror)

    async def _fetch(self, mirror: str, repository: Repository, *, again: bool = False) -> None:
        """Bring a mirror up to date, once a process: HEAD as well, which git leaves as it was."""
        if mirror in _fetched and not again:
            return
        await _git(mirror, "fetch", "-q", "--prune", "origin", env=repository.env)
        # A repository's HEAD may be a branch that it does not have.
        with suppress(WorkspaceRefused):
            await _git(mirror, "fetch", "-q", "origin", "HEAD", env=repository.env)
            await _git(mirror, "update-ref", "--no-deref", "HEAD", "FETCH_HEAD")
        _fetched.add(mirror)

    async def _find(self, mirror: str, wanted: str) -> str:
        verify = ("rev-parse", "-q", "--verify", "--end-of-options", f"{wanted}^{{commit}}")
        return (await _git(mirror, *verify, check=False)).decode().strip()

    async def patch(self, workspace: Workspace, index: str) -> Patch:
        """What was changed since the base, new files included, as `git apply` takes it.

        `index` is a path for files that this call has alone. git runs commands of a submodule's
        own settings, which tools can write: it finds no submodule in the index, and no nested
        repository is entered. WorkspaceError when it is more than a store takes.
        """
        if workspace.base is None or workspace.git_dir is None:
            return Patch()
        where = (f"--work-tree={workspace.path}", "-c", "core.bare=false")
        objects, found = f"{index}.objects", f"{index}.diff"
        env = {
            **_OWN_SETTINGS,
            "GIT_INDEX_FILE": index,
            "GIT_OBJECT_DIRECTORY": objects,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(_objects(workspace.git_dir)),
        }
        git = partial(_git, workspace.git_dir, *where, env=env, cwd=workspace.path)
        make_private(objects)
        try:
            await git("read-tree", workspace.base)
            entries = (await git("ls-files", "-s", "-z")).split(b"\0")
            links = [row.partition(b"\t")[2] for row in entries if row.startswith(b"160000 ")]
            if links:
                update = ("update-index", "-z", "--force-remove", "--stdin")
                await git(*update, stdin=b"".join(link + b"\0" for link in links))
            nested = await asyncio.to_thread(nested_repositories, os.fsencode(workspace.path))
            paths = [b".", *(b":(top,exclude,literal)" + path for path in nested)]
            add = ("add", "-A", "--pathspec-from-file=-", "--pathspec-file-nul")
            changed = ("ls-files", "-z", "-m", "-o", "--exclude-standard")
            names = (await git(*changed)).split(b"\0")
            await asyncio.to_thread(_check_size, os.fsencode(workspace.path), names)
            await git(*add, stdin=b"\0".join(paths))
            await git(
                "diff", "--cached", "--binary", "--no-ext-diff", "--no-textconv", "--no-color",
                "--ignore-submodules=all", f"--output={found}", workspace.base,
            )  # fmt: skip
            data = await asyncio.to_thread(_content, found)
        finally:
            for path in (index, f"{index}.lock", found):
                with suppress(FileNotFoundError):
                    os.unlink(path)
            await asyncio.to_thread(remove_tree, objects)
        return Patch(data, list(map(os.fsdecode, nested)))

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


def _objects(git_dir: str) -> str:
    """The objects of the mirror that a worktree's administrative folder lies in."""
    return os.path.join(os.path.dirname(os.path.dirname(git_dir)), "objects")


def _quoted(path: str) -> str:
    """One path for a variable that is a list of them."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check_size(root: bytes, names: Iterable[bytes]) -> None:
    """WorkspaceError when changed files are more than a patch takes; git would copy them all."""
    size = 0
    for name in set(names):
        with suppress(OSError, ValueError):
            status = os.lstat(os.path.join(root, name))
            size += status.st_size if stat.S_ISREG(status.st_mode) else 0
    if size > _MOST_BYTES:
        raise WorkspaceError(_TOO_LARGE)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size > 2 * _MOST_BYTES:  # old contents are in it as well
            raise WorkspaceError(_TOO_LARGE)
        return file.read()


def _are_folders(*paths: str) -> bool:
    return all(map(os.path.isdir, paths))


def _unchanged_by_git(name: str) -> str:
    """A name that git takes for a worktree as it is; it changes some with a dot, as `a.lock`."""
    if "." not in name:
        return name
    return f"{name.replace('.', '_')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


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

    It dies with us, as all children do. `cwd` is a folder that tools write: neither git nor what
    it loads or starts is taken from there, by a relative entry of PATH for one.
    """
    where = [] if git_dir is None else [f"--git-dir={git_dir}"]
    written = [] if cwd is None else [cwd]
    program = find_program("git", written)
    if program is None:
        raise WorkspaceError("git is not installed, and a task with a `repo` needs it")
    known = child_environment(os.environ, written)
    variables = {name: value for name, value in known.items() if not name.startswith("GIT_")}
    folders = Safe(written).folders(variables.get("PATH", "").split(os.pathsep))
    variables["PATH"] = os.pathsep.join((*folders, *SYSTEM_FOLDERS))
    try:
        process = await asyncio.create_subprocess_exec(
            program, *where, *_QUIET, *words,
            cwd=cwd or git_dir,
            preexec_fn=partial(die_with_parent, signal.SIGKILL),
            env={**variables, **_ALWAYS, **(env or {})},
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise WorkspaceUnavailable(f"cannot start git: {error}") from None
    try:
        out, err = await process.communicate(stdin)
    except BaseException:
        send_signal(process, signal.SIGKILL)
        await process.wait()
        raise
    if process.returncode and check:
        raise _failed(words, err.decode("utf-8", "replace").strip()[-500:])
    return out if not process.returncode else b""


def _failed(words: tuple[str, ...], message: str) -> WorkspaceError:
    verb = next((word for word in words if not word.startswith("-") and "=" not in word), "")
    text = f"git {verb}: {message}"
    if any(reason in message for reason in _FULL_DISK):
        return WorkspaceUnavailable(text)
    if verb not in ("clone", "fetch"):
        return WorkspaceError(text)
    return WorkspaceRefused(text) if _FINAL.search(message) else WorkspaceUnavailable(text)
