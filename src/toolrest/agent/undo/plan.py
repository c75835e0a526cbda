"""Which paths must go back, and to what? Read off the journal; nothing is changed here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from toolrest.agent.undo.records import Changes, FileRecord, State, parse, same

CHANGED_SINCE = "changed since, and not by these turns"
_CACHES = frozenset(("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"))


class RecordedTurn(Struct):
    """A turn that may have changed the workspace, or an undo, as the journal tells it."""

    number: int
    kind: Literal["turn", "undo"]
    time: float
    session: str
    label: str
    status: Literal["open", "done", "interrupted"] = "open"
    changed: int = 0
    """How many paths it changed."""
    undid: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()
    """Turns that ran when this one began."""
    undone: bool = False


class Item(NamedTuple):
    """A path to put back: what it is now and what it was."""

    path: str
    now: FileRecord | None
    was: FileRecord | None

    @property
    def action(self) -> str:
        """In one word, for people."""
        if self.was is None:
            return "remove"
        return "restore" if self.now is not None else "bring back"


class Kept(NamedTuple):
    """A path that stays as it is, and why."""

    path: str
    why: str


class UndoPlan(Struct):
    """The plan of an undo: what it would restore, remove and leave alone."""

    turn: int
    undoes: tuple[int, ...]
    items: list[Item] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    """Paths left alone because others changed them since; `force` takes them back too."""
    lost: list[Kept] = field(default_factory=list)
    """Changed, but the content before was never kept."""
    shared: dict[str, int] = field(default_factory=dict)
    """Paths that it would put back and that changed while a turn of another session ran, too, with
    that turn: whose they are cannot be told."""
    left_out: list[Kept] = field(default_factory=list)
    """Everything that checkpoints of this workspace do not hold, changed or not."""
    caches: list[Item] = field(default_factory=list)
    """What these turns wrote into caches: it is removed, and nothing is said of it."""


def turns_in(history: Iterable[dict[str, Any]]) -> list[RecordedTurn]:
    """Every turn and undo, oldest first."""
    turns: dict[int, RecordedTurn] = {}
    paths: dict[int, set[str]] = {}
    running: set[int] = set()
    for line in history:
        if line["t"] == "open":
            number = line["n"]
            turns[number] = RecordedTurn(
                number,
                line["kind"],
                line["time"],
                line["session"],
                line["label"],
                undid=tuple(line.get("undid", ())),
                inside=tuple(sorted(running)),
            )
            paths[number] = set()
            running.add(number)
        elif line["t"] == "close" and line["n"] in turns:
            turns[line["n"]].status = "interrupted" if line.get("interrupted") else "done"
            running.discard(line["n"])
        elif line["t"] in ("step", "put_back"):
            for number in running:
                paths[number].update(path for path in line["c"] if not is_cache(path))
        elif line["t"] == "others" and line["n"] in paths:
            paths[line["n"]].difference_update(line["paths"])
    for number, turn in turns.items():
        turn.changed = len(paths[number])
    _mark_undone(turns)
    return list(turns.values())


def _mark_undone(turns: dict[int, RecordedTurn]) -> None:
    """The newest undo counts; what it took back, undos included, does not."""
    for number in sorted(turns, reverse=True):
        turn = turns[number]
        if turn.kind == "undo" and turn.status == "done" and not turn.undone:
            for other in turn.undid:
                if other in turns:
                    turns[other].undone = True


def is_cache(path: str) -> bool:
    """Whether a path is of a cache: programs make it again, and an older one may be stale."""
    return not _CACHES.isdisjoint(path.split("/"))


Own: TypeAlias = Mapping[str, float]
"""The ids of sessions whose turns count as one's own, each with the time until which they do."""


def is_own(turn: RecordedTurn, own: Own) -> bool:
    """Whether a turn is one of these sessions'."""
    return turn.time < own.get(turn.session, float("-inf"))


def last_to_undo(turns: list[RecordedTurn], own: Own | None = None) -> RecordedTurn | None:
    """The newest turn that changed something and was not taken back; with `own`, of those.

    A sub-agent's turn is part of the turn of its session that it began in.
    """
    known = {turn.number: turn for turn in turns}
    for turn in reversed(turns):
        if own is not None and not is_own(turn, own):
            continue
        if turn.kind == "turn" and turn.changed and not turn.undone:
            around = (known[number] for number in turn.inside if number in known)
            same_session = (outer for outer in around if outer.session == turn.session)
            return next((outer for outer in same_session if outer.kind == "turn"), turn)
    return None


def plan(history: Iterable[dict[str, Any]], state: State, turn: int, *, force: bool) -> UndoPlan:
    """How to get back to what was there before `turn`, without the changes of others.

    A path is taken back to what it was before the first of these turns that changed it. What
    changed it outside of them, a person or an older turn, is not ours to undo; nor is what a person
    changed while they ran, where that could be told.
    """
    first: dict[str, FileRecord | None] = {}
    foreign: set[str] = set()
    shared: dict[str, int] = {}
    running = _Running(turn)
    for line in history:
        running.follow(line)
        if line["t"] == "put_back" and running.ours:
            first.update(_befores(line))  # what was put back comes again
        elif line["t"] == "step" and running.ours:
            first = {**_befores(line), **first}
            other = running.of_another_session()
            if other is not None:
                shared.update((path, other) for path in line["c"] if path not in shared)
        elif line["t"] == "step":
            foreign.update(path for path in line["c"] if path in first)
        elif line["t"] == "others":
            foreign.update(path for path in line["paths"] if path in first)
    result = UndoPlan(turn, tuple(sorted(running.numbers)), left_out=left_out(state))
    for path, was in sorted(first.items()):
        _sort_in(result, Item(path, state.get(path), was), path in foreign and not force)
    planned = {item.path for item in result.items}
    result.shared = {path: other for path, other in shared.items() if path in planned}
    return result


def _befores(line: dict[str, Any]) -> dict[str, FileRecord | None]:
    return {path: parse(before) for path, (before, _) in line["c"].items()}


class _Running:
    """The turns that run at a line of the history, while one is undone with all later ones."""

    def __init__(self, turn: int) -> None:
        self._turn = turn
        self._sessions: dict[int, str] = {}
        self._session = ""
        self.numbers = {turn}
        """The turns that are undone, but for later ones that changed caches alone."""

    def follow(self, line: dict[str, Any]) -> None:
        """Go on to the next line."""
        if line["t"] == "open":
            self._sessions[line["n"]] = line["session"]
            if line["n"] == self._turn:
                self._session = line["session"]
        elif line["t"] == "close":
            self._sessions.pop(line["n"], None)
        elif line["t"] in ("step", "put_back") and not all(map(is_cache, line["c"])):
            self.numbers.update(number for number in self._sessions if number >= self._turn)

    @property
    def ours(self) -> bool:
        """Whether one of those runs that are undone."""
        return any(number >= self._turn for number in self._sessions)

    def of_another_session(self) -> int | None:
        """A turn of another session that runs beside the one that is undone."""
        if self._session not in self._sessions.values():
            return None
        others = (n for n, session in self._sessions.items() if session != self._session)
        return next(others, None)


def changes_of(history: Iterable[dict[str, Any]], session: str) -> Changes:
    """The paths that the turns of one session changed: before the first of them, after the last."""
    found: Changes = {}
    ours: set[int] = set()
    for line in history:
        if line["t"] == "open" and line["session"] == session:
            ours.add(line["n"])
        elif line["t"] == "close":
            ours.discard(line["n"])
        elif line["t"] == "step" and ours:
            for path, (before, after) in line["c"].items():
                first = found[path][0] if path in found else parse(before)
                found[path] = (first, parse(after))
    return {path: pair for path, pair in found.items() if not same(*pair)}


def left_out(state: State) -> list[Kept]:
    """Files and folders whose content is not kept, and why; those in one ignored folder as one."""
    found: list[Kept] = []
    ignored: dict[tuple[str, str], list[str]] = {}
    for path, record in state.records():
        top, inside, _ = path.partition("/")
        if record.why and record.ignored and top and inside:
            ignored.setdefault((top, record.why), []).append(path)
        elif record.why:
            found.append(Kept(path, record.why))
    for (_, why), paths in ignored.items():
        if len(paths) == 1:
            found.append(Kept(paths[0], why))
        else:
            found.append(Kept(os.path.commonpath(paths), f"{len(paths)} files: {why}"))
    return sorted(found)


def _sort_in(result: UndoPlan, item: Item, foreign: bool) -> None:
    if same(item.now, item.was) or (item.was is None and _is_closed(item.now)):
        return  # as it was, or new and not looked into: it stays
    if is_cache(item.path):
        if not foreign and item.now is not None and (item.was is None or not item.now.is_dir):
            result.caches.append(item._replace(was=None))
    elif foreign:
        result.kept.append(Kept(item.path, CHANGED_SINCE))
    elif item.was is not None and (_is_closed(item.was) or not _has_content(item.was)):
        result.lost.append(Kept(item.path, item.was.why or "never kept"))
    else:
        result.items.append(item)


def _is_closed(record: FileRecord | None) -> bool:
    return record is not None and record.is_dir and bool(record.why)


def _has_content(record: FileRecord) -> bool:
    return not record.is_file or record.ref is not None
