"""Garbage collection of checkpoints: old turns go, and the contents that only they needed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from toolrest.agent.undo.checkpoints import Checkpoints, key_of
from toolrest.agent.undo.journal import Journal
from toolrest.agent.undo.packs import Packs
from toolrest.agent.undo.plan import turns_in
from toolrest.agent.undo.records import CheckpointError, FileRecord, parse
from toolrest.private_files import regular_file, write_all

DAY = 86_400.0
_LONGEST_JOURNAL = 64 << 20


class Collected(Struct):
    """The result of a collection for one workspace, or why nothing was collected."""

    workspace: str
    turns: int = 0
    freed: int = 0
    problem: str = ""


def tidy(home: str, workspace: str, max_size: int) -> None:
    """Keep one workspace's checkpoints from growing for ever; quick when there is nothing to do."""
    folder = os.path.join(home, "checkpoints", key_of(workspace))
    size = sum(size for _, size in _packs_in(folder))
    try:
        lines = os.stat(os.path.join(folder, "journal.jsonl")).st_size
    except FileNotFoundError:
        return
    if size > 2 * max_size or lines > _LONGEST_JOURNAL:
        _collect(home, workspace, 30 * DAY, max_size // 2, dry_run=False)


def collect_all(
    home: str, *, max_age: float = 30 * DAY, max_size: int = 4_000_000_000, dry_run: bool = False
) -> list[Collected]:
    """Clear every workspace's checkpoints; those of a workspace that is gone go as a whole.

    Turns older than `max_age` seconds are forgotten, and the oldest ones until what is kept of a
    workspace is at most `max_size` bytes; the newest turn always stays.
    """
    place = os.path.join(home, "checkpoints")
    try:
        keys = sorted(os.listdir(place))
    except FileNotFoundError:
        return []
    found = []
    for key in keys:
        workspace = _workspace_of(os.path.join(place, key))
        if workspace is None or key_of(workspace) != key:
            continue
        try:
            if not os.path.isdir(workspace):
                found.append(_remove(os.path.join(place, key), workspace, max_age, dry_run))
            else:
                found.append(_collect(home, workspace, max_age, max_size, dry_run))
        except (CheckpointError, OSError) as error:
            found.append(Collected(workspace, problem=str(error)))
    return found


def _workspace_of(folder: str) -> str | None:
    """The path that the journal's first turn names; later ones repeat it after a collection."""
    try:
        with open(os.path.join(folder, "journal.jsonl"), "rb", opener=regular_file) as file:
            for line in file:
                record = json.loads(line)
                if isinstance(record, dict) and "workspace" in record:
                    return str(record["workspace"])
    except (OSError, ValueError, RecursionError):
        pass
    return None


def _remove(folder: str, workspace: str, max_age: float, dry_run: bool) -> Collected:
    """The workspace is gone; it may be a disk that is not mounted, so age counts here too."""
    newest = os.stat(os.path.join(folder, "journal.jsonl")).st_mtime
    if time.time() - newest < max_age:
        return Collected(workspace)
    size = sum(size for _, size in _packs_in(folder))
    if not dry_run:
        shutil.rmtree(folder)
    return Collected(workspace, freed=size)


def _packs_in(folder: str) -> Iterator[tuple[str, int]]:
    place = os.path.join(folder, "packs")
    with contextlib.suppress(FileNotFoundError), os.scandir(place) as entries:
        for entry in entries:
            yield entry.name, entry.stat(follow_symlinks=False).st_size


def _collect(home: str, workspace: str, max_age: float, max_size: int, dry_run: bool) -> Collected:
    checkpoints = Checkpoints(home, workspace)
    with checkpoints.quiet() as journal:
        if journal.open:
            return Collected(workspace, problem="a turn is running")
        history = journal.history()
        first = _first_kept(history, time.time() - max_age, max_size)
        kept = _since(history, first)
        for line in kept:
            line.pop("workspace", None)
        kept.insert(0, {"t": "kept", "n": first, "workspace": workspace})
        forgotten = sum(1 for line in history if line["t"] == "open" and line["n"] < first)
        size = sum(size for _, size in _packs_in(journal.folder))
        live = _live(kept, journal)
        if dry_run:
            return Collected(workspace, forgotten, max(size - sum(live.values()), 0))
        if forgotten or sum(live.values()) < size // 2:
            _rewrite(journal, kept, live)
        after = sum(size for _, size in _packs_in(journal.folder))
        return Collected(workspace, forgotten, size - after)


def _first_kept(history: list[dict[str, Any]], oldest: float, max_size: int) -> int:
    """The first turn that stays: young enough, and not too much in all."""
    turns = turns_in(history)
    if not turns:
        return 1
    candidates = [turn.number for turn in turns if turn.time >= oldest] or [turns[-1].number]
    sizes = dict.fromkeys(candidates, 0)
    current = 0
    for line in history:
        if line["t"] == "open":
            current = line["n"]
        elif line["t"] == "step":
            for pair in line["c"].values():
                before = parse(pair[0])
                if current in sizes and before is not None and before.ref is not None:
                    sizes[current] += before.size
    total = 0
    for number in sorted(candidates, reverse=True):
        total += sizes[number]
        if total > max_size and number != candidates[-1]:
            return number + 1
    return min(candidates)


def _since(history: list[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    """The lines from the first kept turn on, and the paths that calls have named."""
    for at, line in enumerate(history):
        if line["t"] == "open" and line["n"] >= first:
            return [dict(line) for line in history[at:]]
    return []


def _live(lines: list[dict[str, Any]], journal: Journal) -> dict[str, int]:
    """Every content that is still needed, with its size."""
    live = {r.ref: r.size for _, r in journal.state.records() if r.is_file and r.ref}
    for line in lines:
        for record in _records(line):
            if record.is_file and record.ref:
                live[record.ref] = record.size
    return live


def _records(line: dict[str, Any]) -> Iterator[FileRecord]:
    if line["t"] in ("step", "put_back"):
        for pair in line["c"].values():
            yield from (record for side in pair if (record := parse(side)) is not None)
    elif line["t"] == "stat":
        yield from (FileRecord(*value) for value in line["c"].values())


def _rewrite(journal: Journal, lines: list[dict[str, Any]], live: dict[str, int]) -> None:
    """Copy what is needed into new packs, then swap journal and index, then drop the old packs.

    Old packs go last: a process that dies before leaves all of the old or all of the new.
    """
    old = [name for name, _ in _packs_in(journal.folder)]
    moved = _copy(journal.folder, live, old)

    def moved_record(value: Any) -> Any:
        record = parse(value)
        if record is None or not record.is_file or record.ref is None:
            return value
        return record._replace(ref=moved[record.ref])

    for line in lines:
        if line["t"] in ("step", "put_back"):
            line["c"] = {p: [moved_record(side) for side in pair] for p, pair in line["c"].items()}
        elif line["t"] == "stat":
            line["c"] = {path: moved_record(value) for path, value in line["c"].items()}
    for names in journal.state.folders.values():
        for name, record in names.items():
            names[name] = moved_record(record)
    place = os.path.join(journal.folder, "journal.jsonl")
    fd = os.open(place + ".new", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        journal.adopt(fd)
    finally:
        os.close(fd)
    os.replace(place + ".new", place)
    for name in old:
        os.unlink(os.path.join(journal.folder, "packs", name))


def _copy(folder: str, live: dict[str, int], old: list[str]) -> dict[str, str]:
    packs = Packs(folder)
    packs.start_anew(max((int(name) for name in old), default=0) + 1)
    moved: dict[str, str] = {}
    for ref, size in live.items():
        digest = ref.split(".", 1)[0]
        moved[ref] = packs.add_pieces(packs.pieces(ref, size), digest)
    packs.flush()
    return moved
