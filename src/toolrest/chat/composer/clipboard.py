"""The clipboard of the desktop, read and written by its programs when a key asks for it.

A terminal sends text only, so that a picture cannot come with a paste.
"""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256

from toolrest.agent.conversation.prompt import LARGEST_IMAGE
from toolrest.errors import ToolrestError
from toolrest.private_files import private_file, private_folder, write_all
from toolrest.sandbox.programs import find_program, users_variables
from toolrest.tools.images.pictures import format_of

_SECONDS = 5.0
_KINDS = ("png", "jpeg", "webp", "gif")
_HEX = re.compile(rb"\s*\xc2\xabdata PNGf((?:[0-9A-Fa-f]{2})+)\xc2\xbb\s*")
"""How osascript prints a picture."""
_NO_PROGRAM = (
    "no program here reads pictures from the clipboard: install wl-clipboard (Wayland), "
    "xclip (X11) or pngpaste (macOS); a path to a picture in your message works without"
)


class ClipboardError(ToolrestError):
    """The clipboard holds no picture, or nothing here can read it."""


async def clipboard_picture(roots: Sequence[str]) -> bytes:
    """The picture's bytes; no program or library in the writable `roots` is used."""
    commands, variables = list(_commands(roots)), users_variables(roots)
    if not commands:
        raise ClipboardError(_NO_PROGRAM)
    try:
        async with asyncio.timeout(_SECONDS):
            for argv in commands:
                data = await _output(argv, variables)
                if len(data) > LARGEST_IMAGE:
                    most = f"{LARGEST_IMAGE:,}"
                    raise ClipboardError(f"the clipboard's picture is larger than {most} bytes")
                if format_of(data) in _KINDS:
                    return data
    except TimeoutError:
        name = os.path.basename(argv[0])
        raise ClipboardError(f"{name} did not answer within {_SECONDS:.0f} s") from None
    raise ClipboardError("there is no picture on the clipboard")


def _commands(roots: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What may print the picture, one after the other."""
    if "WAYLAND_DISPLAY" in os.environ and (program := find_program("wl-paste", roots)):
        yield from ((program, "--no-newline", "--type", f"image/{kind}") for kind in _KINDS)
    if "DISPLAY" in os.environ and (program := find_program("xclip", roots)):
        words = ("-selection", "clipboard", "-out", "-target")
        yield from ((program, *words, f"image/{kind}") for kind in _KINDS)
    if program := find_program("pngpaste", roots):
        yield program, "-"
    elif program := find_program("osascript", roots):
        yield program, "-e", "get the clipboard as «class PNGf»"


async def set_clipboard(text: str, roots: Sequence[str]) -> bool:
    """Put a text on the desktop's clipboard; False where no program here does that."""
    copiers = (
        ("WAYLAND_DISPLAY", "wl-copy", ("--type", "text/plain;charset=utf-8")),
        ("DISPLAY", "xclip", ("-selection", "clipboard", "-in")),
        ("", "pbcopy", ()),
    )
    for variable, name, words in copiers:
        program = find_program(name, roots) if not variable or variable in os.environ else None
        if program is not None and await _copies((program, *words), text, users_variables(roots)):
            return True
    return False


@asynccontextmanager
async def _running(
    argv: Sequence[str], variables: Mapping[str, str], stdin: int, stdout: int
) -> AsyncIterator[Process]:
    """A program away from our terminal and folder, killed where it has not ended by itself."""
    child = await asyncio.create_subprocess_exec(
        *argv,
        stdin=stdin,
        stdout=stdout,
        stderr=DEVNULL,
        cwd="/",
        env=variables,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def _copies(argv: Sequence[str], text: str, variables: Mapping[str, str]) -> bool:
    """Give a text to a program; False where it does not take it."""
    try:
        async with _running(argv, variables, PIPE, DEVNULL) as child:
            async with asyncio.timeout(_SECONDS):
                await child.communicate(text.encode())
            return child.returncode == 0
    except (OSError, TimeoutError):
        return False


async def _output(argv: Sequence[str], variables: Mapping[str, str]) -> bytes:
    """What the program prints, up to a byte more than is taken."""
    data = b""
    try:
        async with _running(argv, variables, DEVNULL, PIPE) as child:
            try:
                if child.stdout is not None:
                    data = await child.stdout.readexactly(LARGEST_IMAGE + 1)
            except asyncio.IncompleteReadError as read:
                data = read.partial
                await child.wait()
    except OSError as error:
        raise ClipboardError(f"{argv[0]} cannot be started: {error.strerror}") from None
    printed = _HEX.fullmatch(data)
    return bytes.fromhex(printed[1].decode()) if printed else data


def keep_picture(home: str, session_id: str, data: bytes) -> str:
    """Keep a picture with the session's outputs, where its tools may read it; returns the path."""
    try:
        return _kept(home, session_id, data)
    except OSError as error:
        reason = error.strerror
        raise ClipboardError(f"the clipboard's picture cannot be kept: {reason}") from None


def _kept(home: str, session_id: str, data: bytes) -> str:
    name = f"picture-{sha256(data).hexdigest()[:32]}.{format_of(data)}"
    folder = private_folder(home, "spill", session_id)
    try:
        file = private_file(folder, name)
    except FileExistsError:
        pass  # the same picture
    else:
        try:
            write_all(file, data)
        finally:
            os.close(file)
    finally:
        os.close(folder)
    return os.path.join(home, "spill", session_id, name)
