"""The checkpoint of one turn: taken before its first change, closed when the turn is over.

How a session takes back what its turns have changed, off the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from toolrest.agent.undo.records import CheckpointError, UndoError
from toolrest.agent.undo.spans import Spans
from toolrest.errors import RespondToModel
from toolrest.events import FileChange, FilesChanged
from toolrest.events import Warning as WarningEvent
from toolrest.gate.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolrest.agent.undo.checkpoints import Checkpoints, Undone
    from toolrest.agent.undo.plan import Own
    from toolrest.agent.undo.records import Changes, FileRecord
    from toolrest.agent.undo.watch import Watch
    from toolrest.gate.bus import Bus
    from toolrest.gate.session import Lazy
    from toolrest.policy.effects import Effects


_MOST_FILES = 1000
NOT_KEPT = "(not kept)"

T = TypeVar("T")


class Saver(Struct):
    """Makes a session's `Checkpoints` when they are first needed."""

    home: str
    workspace: str
    session_id: str
    bus: Bus
    max_file_size: int
    max_size: int
    watch: Lazy[Watch] | None = None
    """The names that are watched, once some are."""
    _made: Checkpoints | None = None
    _warned: bool = False

    def turn(self, turn_id: str) -> TurnCheckpoint:
        """The checkpoint of a turn."""
        return TurnCheckpoint(self, self.bus, turn_id)

    def is_refused(self) -> bool:
        """Whether this workspace is too much to save: a whole disk or home; warns once."""
        if self.workspace not in ("/", os.path.realpath(os.path.expanduser("~"))):
            return False
        if not self._warned:
            self._warned = True
            text = f"no checkpoints of {self.workspace}, so undo takes nothing back there"
            self.bus.emit(WarningEvent(message=f"{text}; work in one of its folders to have them"))
        return True

    def tidy(self) -> None:
        """Forget old turns when what is kept has become too much."""
        from toolrest.agent.undo.gc import tidy

        tidy(self.get().home, self.get().workspace, self.max_size)

    def at_once(self, work: Callable[[Checkpoints], T]) -> T | None:
        """Do it here and now if that takes no time, as the last look says; else None."""
        saved = self._made
        return None if saved is None else saved.at_once(lambda: work(saved))

    @property
    def repositories(self) -> frozenset[str]:
        """The folders that hold a `.git`, as the last look found them."""
        return frozenset() if self._made is None else self._made.repositories

    @property
    def made_repositories(self) -> frozenset[str]:
        """Those of them that the last turn has made."""
        made = self._made
        return frozenset() if made is None else made.repositories - made.repositories_before

    @property
    def watching(self) -> Watch | None:
        """What watches names, where a command has needed that."""
        return None if self.watch is None else self.watch.made

    def get(self) -> Checkpoints:
        """The checkpoints of this session's workspace."""
        if self._made is None:
            from toolrest.agent.undo.checkpoints import Checkpoints
            from toolrest.agent.undo.scan import KeepLimits

            limits = KeepLimits(file=self.max_file_size, total=self.max_size)
            self._made = Checkpoints(self.home, self.workspace, limits)
        return self._made


class TurnCheckpoint(Struct):
    """The checkpoint of one turn: begun before its first change, ended after its calls."""

    saver: Saver
    bus: Bus
    turn_id: str
    spans: Spans = field(default_factory=Spans)
    _saving: asyncio.Future[int] | None = None
    _cancel: threading.Event = field(default_factory=threading.Event)

    def calling(self) -> AbstractContextManager[None]:
        """Note that a call is under way."""
        return self.spans.calling()

    def give_up(self) -> None:
        """Something of the turn may work outside its calls."""
        self.spans.give_up()

    async def before(self, effects: Effects, label: str) -> None:
        """Return once the state before this call is safe; RespondToModel when it cannot be."""
        acts = effects.writes or effects.runs or effects.calls or effects.is_unknown
        if effects.looks or not acts or self.saver.is_refused():
            return
        try:
            if self._saving is None:
                self.spans = Spans()
                self._saving = self._saved(label) or asyncio.ensure_future(self._save(label))
            if not self._saving.done():
                await asyncio.shield(self._saving)
            self._saving.result()
            if effects.writes and not self.saver.get().covers(effects.writes):
                await run_in_thread(self.saver.get().keep, (effects.writes,), threading.Event())
        except (CheckpointError, OSError) as error:
            raise RespondToModel(
                f"not run: the files as they are could not be saved: {error}. Make room or repair "
                "that; checkpoints.enabled = false works without undo"
            ) from None

    def _saved(self, label: str) -> asyncio.Future[int] | None:
        """The checkpoint, where it could be made at once."""
        number = self.saver.at_once(lambda saved: saved.begin(self.saver.session_id, label))
        if number is None:
            return None
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(number)
        return done

    async def _save(self, label: str) -> int:
        return await run_in_thread(self._begin, (label,), self._cancel)

    def _begin(self, label: str) -> int:
        checkpoints = self.saver.get()
        number = checkpoints.begin(self.saver.session_id, label, self._cancel.is_set)
        if self._cancel.is_set():
            checkpoints.end(number)  # the turn does not wait for it any more
        return number

    async def after(self) -> None:
        """The turn's calls are done: note what they changed."""
        saving, self._saving = self._saving, None
        if saving is None:
            return
        if not saving.done():
            saving.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await saving
            return
        if saving.cancelled() or saving.exception() is not None:
            return
        number = saving.result()
        watch = self.saver.watching
        if watch is not None:
            await watch.before_end()
        try:
            changes = self.saver.at_once(lambda saved: saved.end(number, spans=self.spans))
            if changes is None:
                end = partial(self.saver.get().end, spans=self.spans)
                changes = await run_in_thread(end, (number,), threading.Event())
        except (CheckpointError, OSError) as error:
            # The turn stays open in the journal; the next one to look ends it.
            self.bus.emit(WarningEvent(message=f"undo does not know this turn's changes: {error}"))
            return
        if watch is not None:
            watch.after_end()
        if changes:
            self._tell(number, changes)
            with contextlib.suppress(CheckpointError, OSError):  # the next turn tries again
                await run_in_thread(self.saver.tidy, (), threading.Event())

    def _tell(self, number: int, changes: Changes) -> None:
        root = self.saver.get().workspace
        files = [
            FileChange(os.path.join(root, path), _digest(before), _digest(after))
            for path, (before, after) in sorted(changes.items())
            if not all(record is None or record.is_dir for record in (before, after))
        ]
        self.bus.emit(
            FilesChanged(
                checkpoint=number,
                files=files[:_MOST_FILES],
                files_in_all=len(files),
                turn_id=self.turn_id,
            )
        )


def _digest(record: FileRecord | None) -> str | None:
    if record is None or record.is_dir:
        return None
    if record.is_link:
        return f"-> {record.ref}"
    return record.digest or NOT_KEPT


async def newest_turn(saver: Saver | None, own: Callable[[], Own]) -> int | None:
    """The newest turn of one's own that can be undone."""
    if saver is None:
        return None
    return await run_in_thread(lambda: saver.get().newest(own()), (), threading.Event())


async def undo_turns(
    saver: Saver | None,
    session_id: str,
    turn: int | None,
    *,
    force: bool,
    dry_run: bool,
    own: Callable[[], Own] | None = None,
) -> Undone:
    """Take back the newest turn, or turn N and all after it; UndoError without checkpoints."""
    if saver is None:
        raise UndoError("there are no checkpoints: checkpoints.enabled is false")

    watch = saver.watching

    def work() -> Undone:
        from toolrest.agent.undo.checkpoints import Undone

        if watch is not None:
            watch.file()
        checkpoints = saver.get()
        mine = None if own is None else own()
        if dry_run:
            return Undone(checkpoints.preview(turn, force=force, own=mine))
        return checkpoints.undo(turn, force=force, session=session_id, own=mine)

    return await run_in_thread(work, (), threading.Event())
