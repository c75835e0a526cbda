"""What a task has on one machine: its home, its workspace, its journal and their stored copies."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import time
from contextlib import suppress

from toolrest.batch.stores.store import Store
from toolrest.batch.tasks import journal
from toolrest.batch.tasks.home import make_task_home, state_folder, store_name
from toolrest.batch.tasks.task import BatchTask
from toolrest.batch.tasks.workspace import Patch, Workspace, WorkspaceError, Workspaces
from toolrest.config.files import USERS_HOME, toolrest_home
from toolrest.items import JSONObject
from toolrest.own_code import child_environment
from toolrest.private_files import make_private, remove_tree
from toolrest.wire.http.shared_pace import VARIABLE as PACE_VARIABLE

_SYNC_SECONDS = 1.0


def content(path: str | None) -> bytes | None:
    """The content of a file; None when there is none."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


class TaskSetup:
    """What a task has on this machine, through all its attempts here."""

    def __init__(
        self, task: BatchTask, store: Store, folder: str, overrides: tuple[str, ...], scratch: str
    ) -> None:
        self.task = task
        self.store = store
        self.folder = folder
        self.overrides = [word for one in overrides for word in ("-c", one)]
        if task.image is not None:
            image = ("sandbox_policy=docker", f"sandbox.image={json.dumps(task.image)}")
            self.overrides += [word for one in image for word in ("-c", one)]
        self._users = toolrest_home(None, os.environ)
        self.state = state_folder(self._users, store, task.key)
        self.home = os.path.join(self.state, "home")
        self.events = os.path.join(self.state, "events.jsonl")
        self.workspaces = Workspaces(scratch)
        self.workspace: Workspace | None = None
        self.journal: str | None = None
        self._pace = os.path.join(self._users, "batch", "pace")
        self.place = ""
        """A name for what this machine has of the task, for the rows of its attempts."""
        self._place = os.path.join(self.state, "place")
        self._synced = -1
        self._next_sync = 0.0
        self._syncing: asyncio.Task[None] | None = None
        self._name = f"{store_name(store)}-{task.key}"

    async def prepare(self, earlier: list[JSONObject]) -> None:
        """Make home and workspace; bring back an earlier attempt's journal and changes."""
        make_private(self._pace)
        await asyncio.to_thread(make_task_home, self._users, self.state)
        base = next((row["base"] for row in earlier if row.get("base")), None)
        place = await asyncio.to_thread(content, self._place)
        is_latest = place is not None and self._was_last(earlier, place.decode())
        workspace = await self.workspaces.make(self.task, self._name, base, keep=is_latest)
        if workspace.is_new and earlier:
            await self.workspaces.apply(workspace, await self._read("patch.diff") or b"")
        self.journal = await self._journal(earlier, is_latest=is_latest)
        self.place = place.decode() if place is not None else await asyncio.to_thread(self._begin)
        self.workspace = workspace

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
            raise OSError(errno.EBUSY, "its session is still open in another process")
        return found

    async def _read(self, name: str) -> bytes | None:
        return await asyncio.to_thread(self.store.read, f"{self.folder}/{name}")

    async def write(self, name: str, data: bytes) -> None:
        """Write a file of the task in the store."""
        await asyncio.to_thread(self.store.write, f"{self.folder}/{name}", data)

    async def sync(self) -> None:
        """Store the journal and the changes so far, for a runner on another machine."""
        if self.journal is None or self.workspace is None:
            return
        data = await asyncio.to_thread(content, self.journal)
        if data is None or len(data) == self._synced:
            return
        if self.workspace.base is not None:
            await self.write("patch.diff", (await self.patch()).data)
        await self.write("journal.jsonl", data)
        self._synced = len(data)

    def sync_soon(self) -> None:
        """Store the journal, if that was not just done: another machine loses a second's work."""
        now = time.monotonic()
        if now >= self._next_sync and self.journal is not None:
            if self._syncing is None and self._next_sync:
                self._syncing = asyncio.ensure_future(self._sync_now())
            self._next_sync = now + _SYNC_SECONDS

    async def _sync_now(self) -> None:
        start = time.monotonic()
        with suppress(OSError, WorkspaceError):
            await self.sync()
        # A slow store gets a tenth of the time.
        end = time.monotonic()
        self._next_sync = end + max(_SYNC_SECONDS, 10 * (end - start))
        self._syncing = None

    async def settle(self) -> None:
        """Wait for the storing that is under way."""
        if self._syncing is not None:
            await asyncio.wait({self._syncing})

    async def patch(self) -> Patch:
        """The changes in a worktree so far."""
        if self.workspace is None:
            return Patch()
        index = os.path.join(self.state, f"index-{secrets.token_hex(8)}")
        return await self.workspaces.patch(self.workspace, index)

    def environment(self) -> dict[str, str]:
        """Variables of the task's programs: without those that bring code, with its own home."""
        roots = [self.workspace.path] if self.workspace is not None else []
        env = child_environment(os.environ, roots)
        env.pop("TOOLREST_LOG", None)
        return env | {
            "TOOLREST_HOME": self.home,
            USERS_HOME: self._users,
            PACE_VARIABLE: self._pace,
        }

    async def remove(self, *, keep: bool) -> None:
        """Remove what this machine has of a task with a result; what undo needs stays, no key."""
        if keep or self.workspace is None or self._has_checkpoints(self.workspace):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self.home, "keys.json"))
            return
        await asyncio.to_thread(self.workspaces.remove, self.workspace)
        await asyncio.to_thread(remove_tree, self.state)

    def _has_checkpoints(self, workspace: Workspace) -> bool:
        return not workspace.is_ours and os.path.isdir(os.path.join(self.home, "checkpoints"))
