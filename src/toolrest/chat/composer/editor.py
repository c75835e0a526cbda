"""The person's editor, which runs outside of the sandbox: nothing that a tool can write is started.

Neither the editor itself nor what it starts or loads comes from a folder of the tools: a script's
`env`, or a library that LD_LIBRARY_PATH names.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress

from prompt_toolkit.application.run_in_terminal import in_terminal

from toolrest.errors import ToolrestError
from toolrest.own_code import lies_in
from toolrest.private_files import private_file, private_folder, write_all
from toolrest.sandbox.programs import users_variables

_USUAL = ("editor", "nano", "pico", "vi", "emacs")
_LARGEST = 8 << 20
"""Bytes of a message that are read back."""


class EditorError(ToolrestError):
    """No editor can be started, or what was written in it cannot be read."""


async def edited(text: str, home: str, roots: Sequence[str]) -> str | None:
    """The text as the person leaves it in VISUAL, EDITOR or a usual editor; None if that fails.

    `roots` are the folders that tools may write. EditorError says why nothing was started.
    """
    variables = users_variables(roots)
    argv = _editor([root for root in roots if root != "/"], variables["PATH"])
    folder = private_folder(home, "chat")
    name = f"message-{os.urandom(8).hex()}.txt"
    try:
        file = private_file(folder, name)
        try:
            write_all(file, text.encode())
        finally:
            os.close(file)
        path = os.path.join(home, "chat", name)
        async with in_terminal():
            code = await _run([*argv, path], variables)
        return _read(path) if code == 0 else None
    except OSError as error:
        raise EditorError(f"{argv[0]}: {error.strerror}") from None
    finally:
        for each in (name, f"{name}~"):  # and what some editors leave beside it
            with suppress(OSError):
                os.unlink(each, dir_fd=folder)
        os.close(folder)


def _editor(roots: Sequence[str], path: str) -> list[str]:
    """The command of the first editor that is there; EditorError where a tool could write it."""
    for words in _chosen():
        for word in words:
            found = shutil.which(word) if word is words[0] else word
            if found and os.path.exists(found) and lies_in(os.path.abspath(found), roots):
                raise EditorError(f"not started: {found} is where tools may write; set EDITOR")
        if (program := shutil.which(words[0], path=path)) is not None:
            return [program, *words[1:]]
    raise EditorError("there is no editor: set EDITOR, or install nano or vi")


def _chosen() -> Iterator[list[str]]:
    for name in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(os.environ.get(name, ""))
        except ValueError:  # an open quote: it names nothing
            continue
        if words:
            yield words
    for name in _USUAL:
        yield [f"/usr/bin/{name}"]


async def _run(argv: Sequence[str], variables: dict[str, str]) -> int:
    child = await asyncio.create_subprocess_exec(*argv, env=variables)
    try:
        return await child.wait()
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()


def _read(path: str) -> str:
    """What was written, without the newline that editors end a file with."""
    with open(path, "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise EditorError(f"the message is larger than {_LARGEST:,} bytes")
    return data.decode("utf-8", "replace").removesuffix("\n")
