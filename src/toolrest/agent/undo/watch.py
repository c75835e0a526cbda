"""`Watch`: protected names that a sandbox does not hold are recorded, compared and put back.

Linux does not say who wrote a file, so time and content decide: what changed while no process of
ours lived is the person's and becomes the record; what changed while one lived counts as ours and
goes back. What is put back is kept in the turn's checkpoint, so that undo brings it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from secrets import token_hex
from typing import TYPE_CHECKING

from msgspec import Struct, field

from toolrest.agent.undo.put_back import (
    Result,
    content_of,
    event_of,
    is_gone_repository,
    live_hooks,
    put_back,
    read_ours,
    tops,
    write_ours,
)
from toolrest.agent.undo.records import Changes, CheckpointError
from toolrest.agent.undo.watched import LIVING, LOCK, MOST, ROOM, WatchedNames
from toolrest.agent.undo.watched_git import watched_names
from toolrest.events import Warning as WarningEvent
from toolrest.gate.threads import run_in_thread
from toolrest.policy.paths.names import inside
from toolrest.private_files import own_file, private_folder, remove_tree
from toolrest.process.folder_events import FolderEvents
from toolrest.sandbox.backends.engine import Controls
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.weak import is_weak

if TYPE_CHECKING:
    from toolrest.agent.undo.turn_checkpoint import Saver
    from toolrest.gate.bus import Bus
    from toolrest.sandbox.policy import SandboxPolicy

_SETTLE = 0.05
"""Seconds after an event when names are compared: most files are whole by then."""
_BACKGROUND = 0.3
"""Seconds after which a command is watched while it runs."""
_LINGER = 0.25
_PATIENCE = 4
"""So often a file that is being written is left alone."""
_UNSEEN = 1.0
"""Seconds between looks where a folder is missing, or the system gives no events: a command can use
up what the user may have of them."""
_TOLD = 20
"""So many names are told one by one."""


class Hold(Struct, eq=False):
    """A process of ours that lives, the names that it may change, and how to end it."""

    approved: Collection[str] = ()
    end: Callable[[], None] | None = None


class Watch(Struct, eq=False):
    """The watched names of one session and its sub-agents. Used on the session's event loop."""

    home: str
    workspace: str
    session_id: str
    bus: Bus
    saver: Saver | None
    notes: list[str] = field(default_factory=list)
    """What the model has not been told yet."""
    _holds: list[Hold] = field(default_factory=list)
    _approved: list[Hold] = field(default_factory=list)
    _policies: dict[int, tuple[SandboxPolicy, bool]] = field(default_factory=dict)
    _planned: object = None
    _watched: WatchedNames | None = None
    _too_many: bool = False
    _lock: int = -1
    _events: FolderEvents | None = None
    _timer: asyncio.TimerHandle | None = None
    _put_back: Counter[str] = field(default_factory=Counter)
    _waits: int = 0
    _unfiled: Changes = field(default_factory=dict)
    _filing: threading.Lock = field(default_factory=threading.Lock)

    folder: str = ""
    """The folder of the record, of this process alone."""

    def __post_init__(self) -> None:
        self.folder = os.path.join(self.home, "watched", f"{self.session_id}-{token_hex(4)}")

    # Processes of ours

    def enter(
        self,
        policy: SandboxPolicy,
        controls: Controls,
        *,
        approved: Collection[str] = (),
        end: Callable[[], None] | None = None,
        lives: Callable[[], bool] = lambda: False,
    ) -> Callable[[], None]:
        """A confined process is about to start; call what is returned when it has ended.

        `lives` says whether something of it goes on all the same; SandboxUnavailable where the
        names cannot be recorded.
        """
        if not policy.roots:
            return lambda: None
        self._policies[id(policy)] = (policy, is_weak(controls))
        try:
            self._refresh()
            if self._watched is None:
                return lambda: None
            if not self._holds:
                self._mark_living(self._watched)
        except OSError as error:
            raise SandboxUnavailable(
                f"sandbox: cannot record the protected names in {self.folder}: {error}."
            ) from error
        hold = Hold(approved, end)
        self._watched.room = self._watched.room if self._holds else ROOM
        self._holds.append(hold)
        self._watched.in_use = True
        if self._events is None:
            self._later(_BACKGROUND)

        def leave() -> None:
            if hold not in self._holds:
                return
            if lives():
                asyncio.get_running_loop().call_later(_LINGER, leave)
            else:
                self._leave(hold)

        return leave

    def _leave(self, hold: Hold) -> None:
        self.compare(final=len(self._holds) == 1)
        self._holds.remove(hold)
        if not self._holds:
            self._rest()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._events is not None:
            self._events.close()
            self._events = None
        self._put_back.clear()
        if self._watched is not None:
            self._watched.in_use = False
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.folder, LIVING))

    @contextlib.contextmanager
    def allowing(self, names: Iterable[str]) -> Iterator[None]:
        """Names that code of ours, or an approval, may change meanwhile."""
        hold = Hold(tuple(names))
        self._approved.append(hold)
        try:
            yield
        finally:
            self._approved.remove(hold)
            self._take_over(hold.approved)

    def _take_over(self, names: Collection[str]) -> None:
        """What code of ours has written is the new record, in sessions beside this one too."""
        watched = self._watched
        changed = [] if watched is None else watched.differing()
        ours = [path for path in changed if any(inside(path, name) for name in names)]
        if watched is not None and ours:
            for path in ours:
                watched.learn(path)
            write_ours(self.home, {path: content_of(watched.known.get(path)) for path in ours})
            watched.save()

    # The record

    def _refresh(self) -> None:
        """Take what has changed for the person's where nothing of ours lived; record new names."""
        if self._watched is not None:
            if self._holds:
                self.compare()
            else:
                self._learn(self._watched)
        repositories = frozenset() if self.saver is None else self.saver.repositories
        plan = (tuple(self._policies), repositories)
        if plan == self._planned:
            return
        names: set[str] = set()
        pinned: set[str] = set()
        too_many: set[str] = set()
        for policy, weak in self._policies.values():
            more, git, rest = watched_names(policy, repositories, weak=weak)
            names |= more
            pinned |= git
            too_many |= rest
        if (names or pinned) and self._watched is None:
            from toolrest.agent.undo.dead_records import tell  # once a session

            tell(self.home, self.workspace, self.bus, undo=self.saver is not None)
            self._watched = WatchedNames(self.folder, self.workspace)
        before = set() if self._watched is None else set(self._watched.left_out)
        if self._watched is not None and self._watched.add(names, pinned):
            self._watched.save()
            for name in sorted(self._watched.left_out - before):
                self._warn(f"{name} is not watched: it has more than {MOST:,} entries")
        if too_many and not self._too_many:
            self._too_many = True
            self._warn(
                f"{len(too_many):,} new repositories here are not watched: there are too many"
            )
        self._planned = plan

    def _learn(self, watched: WatchedNames) -> None:
        found = watched.changes(watched.differing())
        changed = [path for path in found if not is_gone_repository(watched, path)]
        for path in changed:
            watched.learn(path)
        if changed:
            watched.save()
            # What code of ours wrote before that is no longer what should be there.
            old = read_ours(self.home)
            write_ours(self.home, {path: "" for path in changed if old.get(path)})

    def _mark_living(self, watched: WatchedNames) -> None:
        folder = private_folder(watched.folder)
        try:
            if self._lock < 0:
                self._lock = own_file(folder, LOCK)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(own_file(folder, LIVING))
        finally:
            os.close(folder)

    async def before_end(self) -> None:
        """The turn is about to end: what was put back belongs to it."""
        if self._unfiled:
            await run_in_thread(self.file, (), threading.Event())

    def after_end(self) -> None:
        """The turn's scan is done: git folders that are new were made by it.

        They stay; hooks in them that would run are moved aside.
        """
        with contextlib.suppress(OSError, CheckpointError):
            self._refresh()
        watched = self._watched
        if watched is None or self.saver is None:
            return
        made = (os.path.join(folder, ".git") for folder in self.saver.made_repositories)
        hooks = [hook.path for git in made for hook in live_hooks(watched, git)]
        if hooks:
            watched.miss(hooks)
            self.compare(final=True)

    # Comparing

    def compare(self, *, final: bool = False) -> None:
        """Compare all names, and put back what is not approved; report it."""
        watched = self._watched
        if watched is None:
            return
        spares = not final and self._waits < _PATIENCE
        try:
            result = put_back(watched, self.home, self._is_approved, spares_writing=spares)
        except (CheckpointError, OSError) as error:
            self._warn(f"cannot put back changes of protected names: {error}")
            return
        self._waits = self._waits + 1 if result.waiting else 0
        if result.waiting and self._holds:
            self._later(_SETTLE * 4)
        if result.done or result.failed:
            self._report(result, "this command" if final else "a running command or server")

    def _is_approved(self, path: str) -> bool:
        names = (name for hold in (*self._holds, *self._approved) for name in hold.approved)
        return any(inside(path, name) for name in names)

    def _report(self, result: Result, by: str) -> None:
        self._unfiled.update(result.done)
        events = [
            event_of(one, pair, by, self.workspace) for one, pair in tops(result.done).items()
        ]
        failed = result.failed.items()
        events += [event_of(one, None, by, self.workspace, why) for one, why in failed]
        for event in events[:_TOLD]:
            self.notes.append(event.message)
            self.bus.emit(event)
        if len(events) > _TOLD:
            more = f"{len(events) - _TOLD:,} more protected names were put back, or could not be"
            self.notes.append(more)
            self._warn(more)
        self._put_back.update([*result.done, *result.failed])
        again = [path for path, times in self._put_back.items() if times > 1]
        if again and self._holds:
            self._put_back.clear()
            self._end_all(f"{again[0]} was changed again")
        elif self._holds and self._watched and (len(result.done) > MOST or not self._watched.room):
            self._end_all("there was too much to put back")
        self._file_soon()

    def _end_all(self, why: str) -> None:
        """End what changes a name again and again, or much at once."""
        self._warn(f"{why}, so the commands that run are ended")
        self.notes.append(f"{why}, so the commands that ran were ended")
        for hold in self._holds:
            if hold.end is not None:
                hold.end()

    def take_notes(self) -> list[str]:
        """What the model has not been told yet, after a look where something lives."""
        if self._holds:
            self.compare()
        taken, self.notes = self.notes, []
        return taken

    # While something lives

    def _later(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return  # events without a pause would put it off for ever
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._events is None:
            self._events = FolderEvents(lambda: self._later(_SETTLE))
        is_whole = self._events.watch(self._folders())
        self.compare()
        if self._holds and not is_whole:
            self._later(_UNSEEN)

    def _folders(self) -> set[str]:
        watched = self._watched
        if watched is None:
            return set()
        folders = {path for path, known in watched.known.items() if known and known.is_dir}
        return folders | {os.path.dirname(path) for path in (*watched.names, *watched.pinned)}

    # Undo

    def _file_soon(self) -> None:
        if self.saver is not None and self._unfiled:
            work = run_in_thread(self.file, (), threading.Event())
            task = asyncio.ensure_future(work)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def file(self) -> None:
        """Give undo what was put back; blocks."""
        with self._filing:
            watched = self._watched
            if self.saver is None or watched is None:
                return
            taken, self._unfiled = self._unfiled, {}
            if not taken:
                return
            try:
                self.saver.get().note_put_back(taken, watched.packs, self.session_id)
            except (CheckpointError, OSError) as error:
                self._unfiled = {**taken, **self._unfiled}
                self._warn(f"undo cannot restore the changes that were put back: {error}")

    def _warn(self, message: str) -> None:
        self.bus.emit(WarningEvent(message=message))

    async def aclose(self) -> None:
        """Compare a last time, once no process of ours lives, and remove the record."""
        if self._watched is not None:
            if self._holds:
                self.compare(final=True)
            self._holds.clear()
            self._rest()
            await asyncio.to_thread(self.file)
            if not self._unfiled or self.saver is None:
                await asyncio.to_thread(remove_tree, self.folder)
            self._watched = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
