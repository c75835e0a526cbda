"""Putting back what commands have changed under watched names, and the report of it.

Each name goes back whole or not at all. What is there is kept before anything is done.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from toolrest.agent.undo.git_config import merged, same_but_plain
from toolrest.agent.undo.packs import Packs
from toolrest.agent.undo.plan import Item
from toolrest.agent.undo.records import Change, Changes, FileRecord
from toolrest.agent.undo.restore import restore
from toolrest.agent.undo.watched import WatchedNames, is_being_written
from toolrest.events import PutBack
from toolrest.policy.paths.names import inside
from toolrest.private_files import own_file, private_folder, write_all

_CONFIGS = ("config", "config.worktree")
_SAMPLE = ".sample"
_OURS = "ours.jsonl"
_OURS_MOST = 1 << 20


class Result(NamedTuple):
    """What was put back, and what could not be."""

    done: Changes
    failed: dict[str, str]
    waiting: list[str]
    """Still being written: looked at again in a moment."""


def put_back(
    watched: WatchedNames,
    home: str,
    is_approved: Callable[[str], bool],
    *,
    spares_writing: bool = False,
) -> Result:
    """Put back what differs from the record, but for what is approved, ours or harmless."""
    found = watched.changes(watched.differing())
    ours = read_ours(home) if found else {}
    items: list[Item] = []
    result = Result({}, {}, [])
    made = [git for git in watched.pinned if watched.known.get(git) is None]
    for path, (was, now) in found.items():
        if is_approved(path) or ours.get(path, "") == content_of(now) != "":
            watched.learn(path)
        elif is_gone_repository(watched, path):
            continue
        elif any(inside(path, git) for git in made):
            watched.learn(path)
        elif spares_writing and now is not None and now.is_file and is_being_written(path):
            result.waiting.append(path)
        else:
            _sort_in(watched, Item(path, now, was), items, result)
    items += [hook for git in made for hook in live_hooks(watched, git)]
    if items:
        write_ours(home, {item.path: content_of(item.was) for item in items})
        watched.packs.flush()
        done, kept = restore("/", items, watched.packs)
        result.done.update({item.path: (item.now, item.was) for item in done})
        result.failed.update({one.path: one.why for one in kept})
        for path in result.done:
            watched.learn(path)
    if found:
        watched.save()
    return result


def _sort_in(watched: WatchedNames, item: Item, items: list[Item], result: Result) -> None:
    was, now = item.was, item.now
    if was is not None and item.path in watched.pinned:
        if now is not None and now.is_dir:
            watched.learn(item.path)  # another folder: its parts are compared by themselves
        else:  # git would go where it leads
            items.append(Item(item.path, now, None))
    elif was is not None and was.is_file and was.ref is None:
        result.failed[item.path] = was.why or "its content was not kept"
        watched.learn(item.path)
    else:
        plain = _plain_settings(watched, item)
        if plain is None:
            items.append(item)
        elif plain == was:
            watched.learn(item.path)
        else:
            items.append(item._replace(was=plain))


def _plain_settings(watched: WatchedNames, item: Item) -> FileRecord | None:
    """What a git config goes back to, `item.was` for not at all; None for any other file."""
    if os.path.basename(item.path) not in _CONFIGS or item.was is None:
        return None
    was, now = watched.content(item.was), watched.content(item.now)
    if was is None or now is None or item.now is None or item.was.mode != item.now.mode:
        return None
    if same_but_plain(was, now):
        return item.was
    text = merged(was, now)
    if text is None or text == was:
        return None
    return item.was._replace(ref=watched.keep(text), size=len(text))


def is_gone_repository(watched: WatchedNames, path: str) -> bool:
    """A git folder that was removed or moved away takes its parts along; nothing runs them."""
    return any(
        inside(path, git) and watched.known.get(git) is not None and not os.path.lexists(git)
        for git in watched.pinned
    )


def live_hooks(watched: WatchedNames, below: str) -> list[Item]:
    """What git would run in a git folder's `hooks`: executable, no sample, and not moved there."""
    known = {
        (record.inode, record.ctime): path
        for path, record in watched.known.items()
        if record is not None and not inside(path, below)
    }
    there = watched.known | dict(watched.crowded(below))
    return [
        Item(path, record, None)
        for path, record in there.items()
        if inside(path, below)
        and os.path.basename(os.path.dirname(path)) == "hooks"
        and record is not None
        and not record.is_dir
        and not path.endswith(_SAMPLE)
        and (record.is_link or record.mode & 0o111)
        and (record.inode, record.ctime) not in known
    ]


def event_of(path: str, pair: Change | None, by: str, workspace: str, why: str = "") -> PutBack:
    """The report of one name; without a pair it could not be put back."""
    now, was = pair or (None, None)
    change: Literal["made", "changed", "removed"] = "changed"
    if pair is not None and (was is None or now is None):
        change = "made" if was is None else "removed"
    shown = os.path.relpath(path, workspace) if inside(path, workspace) else path
    return PutBack(path=shown, change=change, by=by, failure=why)


def tops(changes: Changes) -> dict[str, Change]:
    """The outermost paths alone: what is said to people."""
    return {
        path: pair
        for path, pair in sorted(changes.items())
        if not any(str(above) in changes for above in PurePosixPath(path).parents)
    }


# What code of ours wrote, in any process


def content_of(record: FileRecord | None) -> str:
    """A content in a word, to compare by; empty where it is not known."""
    if record is None:
        return "gone"
    if record.is_link:
        return f"-> {record.ref}"
    if record.is_file and record.digest is None:
        return ""
    return f"{record.mode:o} {record.digest or ''}"


def write_ours(home: str, contents: Mapping[str, str]) -> None:
    """Note what is about to be written by code of ours: no session takes it for a command's."""
    if not contents:
        return
    folder = private_folder(home, "watched")
    try:
        fd = own_file(folder, _OURS, append=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_size > _OURS_MOST:
                os.ftruncate(fd, 0)
            # On a line of its own, whatever a writer that was killed has left.
            write_all(fd, f"\n{json.dumps(dict(contents))}\n".encode())
        finally:
            os.close(fd)
    finally:
        os.close(folder)


def read_ours(home: str) -> dict[str, str]:
    """The last content that code of ours wrote to each path."""
    found: dict[str, str] = {}
    with (
        contextlib.suppress(OSError),
        open(os.path.join(home, "watched", _OURS), "rb") as file,
    ):
        for line in file:
            with contextlib.suppress(ValueError, TypeError):  # a writer that was killed
                found.update(json.loads(line))
    return found


def move(changes: Changes, of: Packs, to: Callable[[bytes, str], str]) -> Changes:
    """The same changes with their contents kept elsewhere."""

    def moved(record: FileRecord | None) -> FileRecord | None:
        if record is None or not record.is_file or record.ref is None:
            return record
        data = b"".join(of.pieces(record.ref, record.size))
        return record._replace(ref=to(data, record.digest or ""))

    return {path: (moved(now), moved(was)) for path, (now, was) in changes.items()}
