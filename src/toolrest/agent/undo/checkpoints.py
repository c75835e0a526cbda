"""`Checkpoints`: save a workspace before a turn, note what the turn changed, take it back.

Everything here blocks: call it off the event loop. Two sessions, or two processes, may use the
same workspace; a process that dies leaves a turn that the next one finds and ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from msgspec import Struct, field

from toolrest.agent.undo.journal import Journal
from toolrest.agent.undo.live_turns import Claims
from toolrest.agent.undo.packs import Packs
from toolrest.agent.undo.plan import (
    Item,
    Kept,
    Own,
    RecordedTurn,
    UndoPlan,
    changes_of,
    is_cache,
    is_own,
    last_to_undo,
    left_out,
    plan,
    turns_in,
)
from toolrest.agent.undo.put_back import content_of, move, write_ours
from toolrest.agent.undo.records import OUTSIDE, Changes, FileRecord, TooSlow, UndoError, same
from toolrest.agent.undo.restore import restore
from toolrest.agent.undo.scan import KeepLimits, Scan
from toolrest.agent.undo.spans import Spans

_LONGEST_LABEL = 120
_QUICK = 0.002
"""A look that took so long can be had on the event loop: handing it to a thread costs as much."""

T = TypeVar("T")


def _never() -> bool:
    return False


class Undone(Struct):
    """The result of an undo; `number` is its own, to take it back by."""

    plan: UndoPlan
    number: int | None = None
    done: list[Item] = field(default_factory=list)
    failed: list[Kept] = field(default_factory=list)


class Changed(NamedTuple):
    """A path before and after; its contents are None where there was none or it is not kept."""

    path: str
    was: FileRecord | None
    now: FileRecord | None
    before: bytes | None
    after: bytes | None


class Checkpoints:
    """The checkpoints of one workspace, under `home`/checkpoints."""

    def __init__(self, home: str, workspace: str, limits: KeepLimits | None = None) -> None:
        self.workspace = os.path.realpath(workspace)
        self.home = os.path.realpath(home)
        self._limits = limits or KeepLimits()
        self._journal = Journal(self.home, key_of(self.workspace))
        self._packs = Packs(self._journal.folder)
        self._claims = Claims(self._journal.folder)
        self._mutex = threading.RLock()
        self._quick = self._haste = False
        self.repositories: frozenset[str] = frozenset()
        """The folders that hold a `.git`, as of the last look."""
        self.repositories_before: frozenset[str] = frozenset()
        """And as of the last turn's begin."""
        self._alone: set[int] = set()
        """Turns of ours that began when no other was open."""

    @property
    def exists(self) -> bool:
        """Whether anything was ever saved for this workspace."""
        return os.path.exists(os.path.join(self._journal.folder, "journal.jsonl"))

    # A turn

    def begin(
        self, session: str = "", label: str = "", cancelled: Callable[[], bool] = _never
    ) -> int:
        """Save the workspace as it is; the number of the turn that may now change it."""
        with self._using():
            self._look(cancelled)
            self.repositories_before = self.repositories
            self._end_dead()
            return self._open("turn", session, label, ())

    def at_once(self, work: Callable[[], T]) -> T | None:
        """Do a `begin` or `end` of ours on the event loop; None, and nothing done, if it is long.

        It waits for no lock, and gives up where more has changed than is read in a moment.
        """
        if not self._quick or not self._mutex.acquire(blocking=False):
            return None
        self._haste = True
        try:
            return work()
        except TooSlow:
            return None
        finally:
            self._haste = False
            self._mutex.release()

    def covers(self, paths: Iterable[str]) -> bool:
        """Whether these (absolute) paths are kept without `keep`; does not block."""
        return not any(self._is_left_out(self._key(path)) for path in paths)

    def keep(self, paths: Iterable[str]) -> None:
        """Keep files that a call is about to write and that the walk leaves out."""
        wanted = [key for path in paths if self._is_left_out(key := self._key(path))]
        if not wanted:
            return
        with self._using():
            scan = self._scan(_never)
            self._journal.append({"t": "touched", "paths": wanted})
            for path in wanted:
                scan.keep_one(path)
            self._packs.flush()
            if scan.refreshed:
                self._journal.append({"t": "stat", "c": scan.refreshed})

    def end(
        self,
        number: int,
        cancelled: Callable[[], bool] = _never,
        *,
        spans: Spans | None = None,
    ) -> Changes:
        """The turn is over: what it changed, by path (absolute outside the workspace).

        What others have changed meanwhile, as far as `spans` tells it, is noted: undo keeps it.
        """
        with self._using():
            self._look(cancelled)
            if spans is not None and number in self._alone and self._journal.last == number:
                changes = self._journal.watching.get(number, {})
                others = spans.by_others(changes, self.workspace)
                if others:
                    self._journal.append({"t": "others", "n": number, "paths": others})
            return self._close(number)

    def note_put_back(
        self, changes: Changes, kept: Packs, session: str, label: str = "put back"
    ) -> int:
        """What was put back is part of the turn that runs, or of one of its own; its number.

        `changes` has what an undo is to bring again, and what is there now, by absolute path.
        """
        with self._using():
            moved = move(changes, kept, self._packs.add)
            self._packs.flush()
            ours = sorted(self._journal.open & self._claims.held)
            number = ours[-1] if ours else self._open("turn", session, label, ())
            self._journal.append({"t": "put_back", "c": moved})
            if not ours:
                self._close(number)
            return number

    def turns(self) -> list[RecordedTurn]:
        """Every turn and undo that is still known, oldest first."""
        if not self.exists:
            return []
        with self._using(create=False):
            return turns_in(self._journal.history())

    def changed_by(self, session: str, most: int, in_all: int) -> list[Changed]:
        """What a session has changed since its first turn, up to the end of its last.

        Contents of more than `most` bytes are left out, and what would be more than `in_all`.
        """
        if not self.exists:
            return []
        with self._using(create=False):
            found = changes_of(self._journal.history(), session)
            changed = []
            for path, pair in sorted(found.items()):
                one = self._contents(path, *pair, min(most, in_all))
                in_all = max(0, in_all - len(one.before or b"") - len(one.after or b""))
                changed.append(one)
            return changed

    def _contents(
        self, path: str, was: FileRecord | None, now: FileRecord | None, most: int
    ) -> Changed:
        return Changed(path, was, now, self._content(was, most), self._content(now, most))

    def _content(self, record: FileRecord | None, most: int) -> bytes | None:
        """The kept bytes of a file; a link's target."""
        if record is None or record.ref is None or record.size > most:
            return None
        if record.is_link:
            return os.fsencode(record.ref)
        return b"".join(self._packs.pieces(record.ref, record.size))

    # Going back

    def newest(self, own: Own) -> int | None:
        """The number of the newest turn of these sessions that can be undone."""
        found = last_to_undo(self.turns(), own)
        return None if found is None else found.number

    def preview(
        self, turn: int | None = None, *, force: bool = False, own: Own | None = None
    ) -> UndoPlan:
        """What `undo` would do now."""
        with self._going_back():
            return self._plan(turn, force, own)

    def undo(
        self,
        turn: int | None = None,
        *,
        force: bool = False,
        session: str = "",
        own: Own | None = None,
        tell: Callable[[UndoPlan], None] | None = None,
    ) -> Undone:
        """Go back to before `turn` (default: the newest that is not undone), later ones included.

        Only paths that these turns changed are touched. What others changed since is left
        alone unless `force`. With `own`, only a turn of these sessions, and only if it is the
        newest. `tell` gets the plan before anything happens. The undo is a turn of its own:
        `undo(its number)` takes it back.
        """
        with self._going_back():
            chosen = self._plan(turn, force, own)
            if tell is not None:
                tell(chosen)
            result = Undone(chosen)
            if not chosen.items:
                return result
            label = f"undo of turn {chosen.turn}"
            result.number = self._open("undo", session, label, chosen.undoes)
            # If this dies in the middle the undo stays open: the next one ends it as interrupted,
            # and it does not count as having undone anything.
            write_ours(self.home, {self._place(i.path): content_of(i.was) for i in chosen.items})
            moved = [*chosen.items, *chosen.caches]
            done, failed = restore(self.workspace, moved, self._packs)
            result.done = [item for item in done if item in chosen.items]
            result.failed = [kept for kept in failed if not is_cache(kept.path)]
            self._look(_never)
            self._close(result.number)
            return result

    def left_out(self) -> list[Kept]:
        """Files and folders of the workspace whose content is not kept, and why."""
        with self._using():
            return left_out(self._journal.state)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[Journal]:
        """The journal, locked and with dead turns ended, for collecting garbage."""
        with self._using(create=False):
            if self._journal.open:
                self._look(_never)
                self._end_dead()
            yield self._journal

    def _plan(self, turn: int | None, force: bool, own: Own | None) -> UndoPlan:
        history = self._journal.history()
        turns = turns_in(history)
        if own is not None:
            _check_own(turns, turn, own)
        if turn is None:
            newest = last_to_undo(turns)
            if newest is None:
                raise UndoError("there is nothing to undo: no turn has changed this workspace")
            turn = newest.number
        elif turn not in {known.number for known in turns}:
            raise UndoError(f"there is no turn {turn}; `toolrest undo --list` shows them")
        running = [str(number) for number in sorted(self._journal.open) if number >= turn]
        if running and not force:
            raise UndoError(
                f"turn {', '.join(running)} is still running; end its session first, or force it"
            )
        return plan(history, self._journal.state, turn, force=force)

    @contextlib.contextmanager
    def _going_back(self) -> Iterator[None]:
        if not self.exists:
            raise UndoError(f"there is nothing to undo: no checkpoint of {self.workspace}")
        with self._using(create=False):
            self._look(_never)
            self._end_dead()
            yield

    # Parts

    @contextlib.contextmanager
    def _using(self, *, create: bool = True) -> Iterator[None]:
        with self._mutex, self._journal.locked(create=create, haste=self._haste):
            yield

    def _scan(self, cancelled: Callable[[], bool]) -> Scan:
        return Scan(
            self.workspace,
            self._journal.state,
            self._packs,
            self._limits,
            skip=self.home,
            cancelled=cancelled,
            haste=self._haste,
        )

    def _look(self, cancelled: Callable[[], bool]) -> None:
        began = time.perf_counter()
        scan = self._scan(cancelled)
        scan.run()
        self._journal.step(scan.changes, scan.refreshed)
        self.repositories = frozenset(scan.repositories)
        self._quick = time.perf_counter() - began < _QUICK

    def _open(self, kind: str, session: str, label: str, undid: tuple[int, ...]) -> int:
        number = self._journal.last + 1
        self._claims.take(number)
        if not self._journal.open:
            self._alone.add(number)
        line = {"t": "open", "n": number, "kind": kind, "time": time.time(), "undid": undid}
        line |= {"session": session, "label": label[:_LONGEST_LABEL], "pid": os.getpid()}
        if number == 1:
            line["workspace"] = self.workspace
        self._journal.append(line)
        self._journal.watching[number] = {}
        return number

    def _close(self, number: int) -> Changes:
        self._journal.append({"t": "close", "n": number})
        self._claims.release(number)
        self._alone.discard(number)
        changes = self._journal.watching.pop(number, {})
        return {path: pair for path, pair in changes.items() if not same(*pair)}

    def _end_dead(self) -> None:
        """End turns whose process is gone: what changed until now is counted as theirs."""
        for number in sorted(self._journal.open - self._claims.held):
            if self._claims.is_alive(number):
                continue
            self._journal.append({"t": "close", "n": number, "interrupted": True})
            self._claims.release(number)

    # Paths

    def _key(self, path: str) -> str:
        prefix = self.workspace.rstrip("/") + "/"
        return path[len(prefix) :] if path.startswith(prefix) else path

    def _place(self, key: str) -> str:
        return os.path.join(self.workspace, key)

    def _is_left_out(self, key: str) -> bool:
        state = self._journal.state
        if key in state.touched:
            return False
        if key.startswith("/"):
            return key not in state.folders.get(OUTSIDE, {})
        record = state.get(key)
        if record is not None:
            return record.is_file and record.ref is None
        return any(above is not None and bool(above.why) for above in map(state.get, _above(key)))


def _check_own(turns: list[RecordedTurn], turn: int | None, own: Own) -> None:
    """Refuse to undo what is not the newest turn, or not of one's own."""
    mine, newest = last_to_undo(turns, own), last_to_undo(turns)
    if mine is None or newest is None:
        raise UndoError("there is nothing to undo: this session has changed nothing here")
    if not is_own(newest, own):
        raise UndoError(
            f"turn {newest.number} of the session {newest.session} changed this folder later; "
            "take that back first, in its session or with `toolrest undo`"
        )
    if turn not in (None, mine.number):
        raise UndoError(f"turn {turn} is not the newest of this session: that is {mine.number}")


def _above(key: str) -> Iterator[str]:
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key


def key_of(workspace: str) -> str:
    """The folder name of a workspace: readable, and unique by its path."""
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in os.path.basename(workspace))
    digest = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    return f"{name[:40].lstrip('.') or 'root'}-{digest}"
