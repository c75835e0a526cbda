"""What a task has on one machine: its home, its workspace, its journal and their stored copies."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from toolrest.batch.stores.store import FolderStore, Store
from toolrest.batch.stores.threads import in_thread
from toolrest.batch.tasks import journal
from toolrest.batch.tasks.home import make_task_home, state_folder, store_name
from toolrest.batch.tasks.nested import pack, unpack
from toolrest.batch.tasks.records import AUDIT, EVENTS, Records, content
from toolrest.batch.tasks.task import BatchTask
from toolrest.batch.tasks.workspace import (
    Patch,
    Workspace,
    WorkspaceError,
    Workspaces,
    WorkspaceUnavailable,
)
from toolrest.config.files import BATCH_TASKS, USERS_HOME, toolrest_home
from toolrest.items import JSONObject
from toolrest.own_code import child_environment
from toolrest.private_files import make_private, remove_tree
from toolrest.wire.http.shared_pace import VARIABLE as PACE_VARIABLE

_SYNC_SECONDS = 1.0
ARCHIVE = "workspace.tar.gz"
EARLIER_RUN = "earlier_run"
"""The field of attempts before a retry that starts over."""


def this_run(attempts: Iterable[JSONObject]) -> list[JSONObject]:
    """The attempts since the task began, or began anew."""
    return [row for row in attempts if not row.get(EARLIER_RUN)]


def seconds_of(attempts: Iterable[JSONObject]) -> float:
    """How long attempts of this run have run, without the time between them."""
    ended = [row for row in this_run(attempts) if row.get("ended")]
    return sum(
        (max(0.0, row["ended"] - (row.get("started") or row["ended"])) for row in ended), 0.0
    )


class TaskSetup:
    """What a task has on this machine, through all its attempts here."""

    def __init__(
        self, task: BatchTask, store: Store, folder: str, overrides: tuple[str, ...], scratch: str
    ) -> None:
        self.task = task
        self.store = store
        self.folder = folder
        self.settings = overrides
        """Settings of the run and the task, as `-c` takes them."""
        if task.image is not None:
            image = f"sandbox.image={json.dumps(task.image)}"
            self.settings = (*overrides, "sandbox_policy=docker", image)
        self.overrides = [word for one in self.settings for word in ("-c", one)]
        self._users = toolrest_home(None, os.environ)
        self.state = state_folder(self._users, store, task.key)
        self.home = os.path.join(self.state, "home")
        self.events = os.path.join(self.state, EVENTS)
        self.records = Records(self.events, self.home)
        self.workspaces = Workspaces(scratch)
        self._written = [path for path in (scratch, task.folder) if path]
        self.workspace: Workspace | None = None
        self.journal: str | None = None
        self._pace = os.path.join(self._users, "batch", "pace")
        self.place = ""
        """A name for what this machine has of the task, for the rows of its attempts."""
        self._place = os.path.join(self.state, "place")
        self._synced = -1
        self._next_sync = 0.0
        self._has_news = False
        self._timer: asyncio.TimerHandle | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._has_ended = False
        self.is_held: Callable[[], bool] = lambda: True
        """Whether this runner's heartbeat is recent: without one the task may be another's."""
        self._name = f"{store_name(store)}-{task.key}"

    async def prepare(self, earlier: list[JSONObject]) -> None:
        """Make home and workspace; bring back an earlier attempt's journal and changes."""
        make_private(self._pace)
        await asyncio.to_thread(self._clear_earlier_run, earlier)
        earlier = this_run(earlier)
        await asyncio.to_thread(make_task_home, self._users, self.state, self._written)
        base = next((row["base"] for row in earlier if row.get("base")), None)
        place = await asyncio.to_thread(content, self._place)
        is_latest = place is not None and self._was_last(earlier, place.decode())
        workspace = await self.workspaces.make(self.task, self._name, base, keep=is_latest)
        if earlier:
            await self._bring_back(workspace, is_latest=is_latest)
        self.journal = await self._journal(earlier, is_latest=is_latest)
        self.place = place.decode() if place is not None else await asyncio.to_thread(self._begin)
        self.workspace = workspace

    def _clear_earlier_run(self, earlier: list[JSONObject]) -> None:
        """Remove what is left of a run before a retry that starts over.

        What undo needs of a user's folder is only moved: `KEY~1` is no other task's.
        """
        place = content(self._place)
        before = {row.get("place") for row in earlier if row.get(EARLIER_RUN)}
        if place is None or place.decode() not in before:
            return
        if self.task.folder is None or not self._has_checkpoints():
            remove_tree(self.state)
            return
        numbers = range(1, len(os.listdir(os.path.dirname(self.state))) + 1)
        names = (f"{self.state}~{number}" for number in numbers)
        os.rename(self.state, next(name for name in names if not os.path.lexists(name)))

    def _begin(self) -> str:
        """Give what this machine has of the task a name."""
        name = secrets.token_hex(16)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(self._place, flags, 0o600), "w", encoding="ascii") as file:
            file.write(name)
        return name

    def _was_last(self, earlier: list[JSONObject], place: str) -> bool:
        """Whether the last attempt that got to work did so here."""
        places = [row["place"] for row in earlier if row.get("place")]
        return not places or places[-1] == place

    async def _bring_back(self, workspace: Workspace, *, is_latest: bool) -> None:
        """Take what earlier attempts have stored: events, audit, the changes in a workspace."""
        events = None if is_latest else await self._read(EVENTS)
        audit = await self._read(AUDIT)
        await asyncio.to_thread(self.records.go_on_from, events, audit, is_latest=is_latest)
        if not workspace.is_new:
            return
        if workspace.base is not None:
            await self.workspaces.apply(workspace, await self._read("patch.diff") or b"")
        elif (data := await self._read(ARCHIVE)) is not None:
            await asyncio.to_thread(unpack, data, workspace.path)

    async def _journal(self, earlier: list[JSONObject], *, is_latest: bool) -> str | None:
        names = [row["journal"] for row in earlier if row.get("journal")]
        if not names:
            # A runner may die before it records the session's name.
            found = await asyncio.to_thread(journal.only_journal, self.home)
        else:
            stored = await self._read("journal.jsonl") or b""
            found = await asyncio.to_thread(
                journal.restore, self.home, names[-1], stored, is_latest=is_latest
            )
        if found is None or not journal.is_usable(found):
            return None
        if not await asyncio.to_thread(journal.wait_until_closed, found):
            raise journal.StillOpen("its session is still open in another process")
        return found

    async def _read(self, name: str) -> bytes | None:
        """What is stored of the task; a store that fails at that is tried again, as a server is."""
        try:
            return await asyncio.to_thread(self.store.read, f"{self.folder}/{name}")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise WorkspaceUnavailable(f"cannot read the store: {reason}") from None

    async def write(self, name: str, data: bytes) -> None:
        """Write a file of the task in the store."""
        await in_thread(self.store.write, f"{self.folder}/{name}", data)

    async def sync(self) -> None:
        """Store the journal and the changes so far, for a runner on another machine."""
        await self.settle()
        await self._sync()

    async def _sync(self) -> None:
        if self.journal is None or self.workspace is None:
            return
        data = await asyncio.to_thread(content, self.journal)
        if data is None or len(data) == self._synced:
            return
        if self.workspace.base is not None:
            await self.write("patch.diff", (await self.patch()).data)
        elif (archive := await self._archive_that_fits()) is not None:
            await self.write(ARCHIVE, archive)
        await self.write("journal.jsonl", data)
        for name, lines in (await asyncio.to_thread(self.records.found)).items():
            if lines is not None:
                await self.write(name, lines)
        self._synced = len(data)

    def sync_soon(self) -> None:
        """Store the journal within a second or so: another machine loses no more than that."""
        if self.journal is None:
            return
        if not self._next_sync:
            self._next_sync = time.monotonic() + _SYNC_SECONDS
        self._has_news = True
        self._plan()

    def _plan(self) -> None:
        """Have the news stored when it is time; a session may print nothing for long after them."""
        if self._timer is None and self._syncing is None:
            delay = max(0.0, self._next_sync - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._store_news)

    def _store_news(self) -> None:
        self._timer = None
        if self._has_news:
            self.start_sync()

    def start_sync(self) -> None:
        """Store the journal in the background, unless that is under way; one at a time."""
        if self._syncing is None and not self._has_ended and self.is_held():
            self._has_news = False
            self._syncing = asyncio.ensure_future(self._sync_now())

    async def _sync_now(self) -> None:
        start = time.monotonic()
        try:
            with suppress(OSError, WorkspaceError):
                await self._sync()
        finally:
            # A slow store gets a tenth of the time.
            end = time.monotonic()
            self._next_sync = end + max(_SYNC_SECONDS, 10 * (end - start))
            self._syncing = None
            if self._has_news and not self._has_ended:
                self._plan()

    async def settle(self, *, has_ended: bool = False) -> None:
        """Wait for the storing that is under way; with `has_ended` none is started after it."""
        self._has_ended |= has_ended
        if self._has_ended and self._timer is not None:
            self._timer.cancel()
        if self._syncing is not None:
            await asyncio.wait({self._syncing})

    async def patch(self) -> Patch:
        """The changes in a worktree so far."""
        if self.workspace is None:
            return Patch()
        index = os.path.join(self.state, f"index-{secrets.token_hex(8)}")
        return await self.workspaces.patch(self.workspace, index)

    async def archive(self) -> bytes | None:
        """The files of a folder that was made for the task without a repository.

        OSError when they cannot be read, or do not fit.
        """
        workspace = self.workspace
        if workspace is None or not workspace.is_ours or workspace.base is not None:
            return None
        return await asyncio.to_thread(pack, workspace.path, ["."])

    async def _archive_that_fits(self) -> bytes | None:
        with suppress(OSError):  # the end will say why
            return await self.archive()
        return None

    def environment(self) -> dict[str, str]:
        """Variables of the task's programs: without those that bring code, with its own home."""
        roots = [self.workspace.path] if self.workspace is not None else []
        env = child_environment(os.environ, roots)
        env.pop("TOOLREST_LOG", None)
        if isinstance(self.store, FolderStore):
            env[BATCH_TASKS] = os.path.join(self.store.path, "tasks")
        return env | {
            "TOOLREST_HOME": self.home,
            USERS_HOME: self._users,
            PACE_VARIABLE: self._pace,
        }

    async def remove(self, *, keep: bool) -> None:
        """Remove what this machine has of a task with a result; what undo needs stays, no key."""
        workspace = self.workspace
        if keep or workspace is None or (not workspace.is_ours and self._has_checkpoints()):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.home, "keys.json"))
            return
        await asyncio.to_thread(self.workspaces.remove, workspace)
        await asyncio.to_thread(remove_tree, self.state)

    def _has_checkpoints(self) -> bool:
        return os.path.isdir(os.path.join(self.home, "checkpoints"))
