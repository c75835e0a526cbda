"""The workspace's files as git lists them: tracked ones and new ones, without what is ignored.

git is run as search programs are: in a read-only sandbox, and only in one, without any setting
or variable of the user's, and with nothing of the repository's settings that names a program.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from selectors import EVENT_READ, DefaultSelector
from time import monotonic
from typing import TYPE_CHECKING

from toolrest.chat.composer.files import MOST
from toolrest.errors import ToolrestError
from toolrest.sandbox.programs import find_program

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest

_SECONDS = 5.0
_MOST_BYTES = 64 << 20
_PIECE = 1 << 18
_OFF = ("core.fsmonitor=false", "core.untrackedCache=false", f"core.hooksPath={os.devnull}")
_WORDS = ("--no-optional-locks", *(word for off in _OFF for word in ("-c", off)))
_LIST = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
_ENV = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
    "PATH": os.defpath,
}


async def git_names(rest: Toolrest) -> list[str] | None:
    """The files, relative to the workspace; None where git or a sandbox is missing, or it fails."""
    session = rest.session
    folder = session.files.workspace
    program = find_program("git", session.files.tool_roots)
    runner = session.runner()
    if program is None:
        return None
    argv = (program, *_WORDS, *_LIST)
    try:
        async with runner.searches.running(argv, folder, _ENV, always=False) as child:
            data = await asyncio.to_thread(_read, child.outputs)
            ended = await child.wait() if data is not None else None
    except (ToolrestError, OSError):
        return None
    if data is None or ended is None or ended.exit_code != 0:
        return None
    names = dict.fromkeys(os.fsdecode(name) for name in data.split(b"\0") if name)
    return [name for name in names if name.isprintable()][:MOST]


def _read(outputs: Sequence[int]) -> bytes | None:
    """What it prints; None when that is too much, or takes too long."""
    out, found = outputs[0], bytearray()
    deadline = monotonic() + _SECONDS
    with DefaultSelector() as ready:
        for fd in outputs:
            ready.register(fd, EVENT_READ)
        while ready.get_map():
            if monotonic() > deadline or len(found) > _MOST_BYTES:
                return None
            for key, _ in ready.select(0.1):
                piece = os.read(key.fd, _PIECE)
                if not piece:
                    ready.unregister(key.fd)
                elif key.fd == out:
                    found += piece
    return bytes(found)
