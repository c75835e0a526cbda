"""Has a file changed since this session read it? Then what is about to be written may undo it.

Whoever changed it, a person, another agent or a command of this one: the model's picture of the
file is old, and it has to look again before it writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context, ReadStamp, Services
from toolrest._merge_files import hash_file


async def refuse_stale(paths: Iterable[str], ctx: Context, services: Services) -> None:
    """RespondToModel when one of the files that a call writes is not what was read."""
    reads = services.reads
    if not reads:
        return
    for path in paths:
        stamp = reads.get(path)
        if stamp is None or not _looks_changed(path, stamp):
            continue
        if stamp.sha256 is not None and await ctx.in_thread(hash_file, path) == stamp.sha256:
            continue  # touched, or written anew with the same content
        raise RespondToModel(
            f"stale_file: {path} has changed since you last read it, and nothing was written. "
            "Read it again, then repeat the change if it is still right."
        )


def refuse_moved(paths: Iterable[str], ctx: Context) -> None:
    """RespondToModel when a judged place is now reached through a link: it would be another one."""
    for path in paths:
        if ctx.files.canonical(path) != path:
            raise RespondToModel(
                f"{path} was not written: a folder or a link on the way was replaced meanwhile, "
                "and it would be another file now. Look again, then repeat the change."
            )


def _looks_changed(path: str, stamp: ReadStamp) -> bool:
    try:
        now = os.stat(path)
    except OSError:
        return False  # gone: what the tool makes of that it says itself
    return (now.st_size, now.st_mtime_ns, now.st_ino) != (stamp.size, stamp.mtime_ns, stamp.inode)


def note_written(hashes: Mapping[str, str | None], services: Services) -> None:
    """Our own writes do not make a file stale."""
    for path, sha256 in hashes.items():
        if path not in services.reads:
            continue
        try:
            now = os.stat(path)
        except OSError:
            del services.reads[path]
        else:
            services.reads[path] = ReadStamp(now.st_size, now.st_mtime_ns, now.st_ino, sha256)
