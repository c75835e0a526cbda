"""Folders that an MCP server needs beyond the session's own: found, asked about, one by one.

A server that is installed in the host's /tmp is not seen in its sandbox, and one that keeps its
data beside its program or in `~/.cache` may not write there. The user is asked about exactly that
folder; the approval is for this server alone and is kept with its pin.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from toolrest.agent.mcp.code_folders import is_code_folder
from toolrest.mcp.errors import McpError, approve_hint
from toolrest.mcp.launch import command_of
from toolrest.mcp.transports.host import FolderDenial
from toolrest.own_code import own_places
from toolrest.policy.paths.hidden import home_folders
from toolrest.policy.paths.names import both_forms, inside, unique
from toolrest.sandbox.denial import find_denials
from toolrest.sandbox.errors import SandboxUnavailable

if TYPE_CHECKING:
    from toolrest.agent.mcp.confine import ServerBoxes
    from toolrest.agent.mcp.trust import Trust
    from toolrest.mcp.pins import Access
    from toolrest.mcp.servers import Server
    from toolrest.policy.paths.policy import PathPolicy
    from toolrest.process.command import Command
    from toolrest.sandbox.confine import SessionSandbox

MOST_ASKED = 5
"""A server names the folders itself: so many of them it is asked about in a session."""
_TMP = ("/tmp", "/var/tmp")  # noqa: S108 - what the sandbox replaces
_WIDE = ("", ".cache", ".config", ".local", ".local/share", ".local/state", "Library")
"""Folders of a home that hold those of many programs."""
_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin"),
    *("/sys", "/usr", "/var/lib/dpkg", "/var/run", "/var/spool", "/System", "/Library"),
)
_PROJECT = ("package.json", "pyproject.toml", "pyvenv.cfg", "deno.json", ".git")


class ServerFolders:
    """Approval of the folders that the session's servers turn out to need."""

    def __init__(
        self, boxes: ServerBoxes, trust: Trust, files: PathPolicy, environ: Mapping[str, str]
    ) -> None:
        self._boxes = boxes
        self._trust = trust
        self._files = files
        self._environ = environ
        self._asked: dict[str, dict[str, bool]] = {}

    async def may_start(self, server: Server) -> str | None:
        """None, or the reason why a server cannot start: its sandbox does not show its program."""
        unseen = await asyncio.to_thread(self._unseen, server, await self._box(server))
        for folder in unseen:
            reason = (
                f"the MCP server {server.name} is installed in {folder}, and its sandbox has a "
                f"{_tmp_of(folder)} of its own: it has to read that folder, and only that"
            )
            if not await self._approved(server, folder, "read", reason):
                return (
                    f"its program lies in {folder}, which its sandbox does not show. "
                    + approve_hint(server.name)
                )
        # Its code may have changed while the user was asked.
        return await self._trust.may_start(server) if unseen else None

    async def denied(self, server: Server, text: str) -> FolderDenial | None:
        """The folder that the sandbox kept from a server, out of its error, and the answer."""
        box = await self._box(server)
        if box is None:
            return None
        path = await asyncio.to_thread(_refused_path, text, box, self._cwd(server))
        if path is None:
            return None
        folder = folder_for(path, text)
        kept = f"the sandbox keeps this server from writing {path}"
        if reason := await asyncio.to_thread(self._unfit, folder, box):
            return FolderDenial(approved=False, note=f"{kept}: {reason}")
        if not await self._approved(server, folder, "write", self._why(server, path, folder)):
            setting = f"mcp_servers.{server.name}.writable_roots"
            return FolderDenial(
                approved=False,
                note=f"{kept}; the folder {folder} is not approved (to allow it: {setting})",
            )
        return FolderDenial(
            approved=True,
            note=f"the user has approved that this server writes in {folder}, and it was started "
            "again: repeat the call",
        )

    def _cwd(self, server: Server) -> str:
        return os.path.join(self._files.workspace, server.cwd or "")

    async def _box(self, server: Server) -> SessionSandbox | None:
        """The server's sandbox; None when it has none."""
        if server.transport != "stdio" or self._files.mode == "danger-full-access":
            return None
        box = await self._boxes.box(server)
        return box if box.policy.confines else None

    async def _approved(self, server: Server, folder: str, access: Access, reason: str) -> bool:
        """Ask, once a session for a folder; with the approval the next sandbox has it."""
        asked = self._asked.setdefault(server.name, {})
        if folder in asked or len(asked) >= MOST_ASKED:
            return False
        write = access == "write"
        asked[folder] = await self._trust.approve_folder(server, folder, reason, write=write)
        if asked[folder]:
            self._boxes.forget(server)
        return asked[folder]

    def _why(self, server: Server, path: str, folder: str) -> str:
        made = "" if os.path.isdir(folder) else ", which is made for it"
        own = ""
        if any(inside(word, folder) for word in self._command_words(server)):
            own = "; its own program lies there, and it could change what runs as this server"
        return (
            f"the MCP server {server.name} was kept from writing {path}; it wants to write in the "
            f"folder {folder}{made}{own}. An approval is for this server alone, from now on"
        )

    def _command_words(self, server: Server) -> tuple[str, ...]:
        command = self._command(server)
        if command is None:
            return ()
        words = (os.path.join(command.cwd, word) for word in command.argv)
        return tuple(form for word in words for form in (word, os.path.realpath(word)))

    def _command(self, server: Server) -> Command | None:
        try:
            return command_of(server, self._files.workspace, self._environ, ())
        except McpError:
            return None  # starting it will say what is wrong

    # Reading

    def _unseen(self, server: Server, box: SessionSandbox | None) -> list[str]:
        """Folders of the server's program and scripts that the sandbox's own /tmp hides."""
        if box is None or box.policy.tmp != "private":
            return []
        try:
            if box.choose()[1].name == "landlock":
                return []  # it leaves the host's /tmp readable
        except SandboxUnavailable:
            return []  # starting it will say so
        policy = box.policy
        shown = (*policy.roots, policy.workspace, *policy.exceptions, *own_places())
        words = [word for word in self._command_words(server) if os.path.isfile(word)]
        if server.cwd:
            words.append(os.path.join(self._cwd(server), "."))
        hidden = (word for word in words if any(inside(word, tmp) for tmp in _TMP))
        unseen = (word for word in hidden if not any(inside(word, place) for place in shown))
        folders = unique(installed_in(word) for word in unseen)
        return [folder for folder in folders if not self._holds_hidden(folder)]

    # Writing

    def _unfit(self, folder: str, box: SessionSandbox) -> str:
        """Why a folder is not asked about: the mode, or too wide, the system's, hidden, run by
        other programs.

        Empty if it may be asked about.
        """
        if not box.policy.roots:
            return 'sandbox_mode is "read-only"'
        if folder in _wide_folders() and not os.path.exists(folder):
            return "it is not there; make it, and call again"
        kept = (self._files.workspace, self._files.toolrest_home, *_wide_folders(), *_TMP)
        path = self._environ.get("PATH", os.defpath).split(os.pathsep)
        path = [form for place in path if os.path.isabs(place) for form in both_forms(place)]
        unfit = (
            folder.count("/") < 2
            or any(inside(place, folder) for place in (*kept, *path))
            or any(inside(folder, place) for place in (*_SYSTEM, *own_places(), *path))
            or is_code_folder(folder)
            or self._holds_hidden(folder)
            or self._boxes.write_rule(folder) is not None
        )
        return "servers are not given that folder" if unfit else ""

    def _holds_hidden(self, folder: str) -> bool:
        hidden = self._files.hidden_paths()
        return any(inside(place, folder) or inside(folder, place) for place in hidden)


def _refused_path(text: str, box: SessionSandbox, cwd: str) -> str | None:
    """The path that the sandbox did not let be written, by an error's text."""
    try:
        backend = box.choose()[1].name
    except SandboxUnavailable:
        return None
    found = find_denials(text, box.policy, cwd, backend=backend)
    return next((denial.subject for denial in found if denial.op == "write"), None)


def folder_for(path: str, text: str) -> str:
    """The smallest folder to approve so that a path can be written.

    That is the folder which was to be made, the outermost that is missing, or the one that holds
    the file; in folders of many programs, such as `~/.cache`, never the whole of them.
    """
    is_folder = os.path.isdir(path) or f"mkdir '{path}'" in text
    path = os.path.realpath(path)
    chosen = path if is_folder else os.path.dirname(path)
    wide = _wide_folders()
    if chosen in wide:
        # A name there is a folder of one program, unless it looks like a file.
        is_file = chosen in home_folders() or "." in os.path.basename(path)
        return chosen if is_file else path
    parent = os.path.dirname(chosen)
    while not os.path.isdir(parent) and parent not in wide:
        chosen, parent = parent, os.path.dirname(parent)
    return chosen


def _wide_folders() -> set[str]:
    return {os.path.normpath(os.path.join(home, n)) for home in home_folders() for n in _WIDE}


def installed_in(path: str) -> str:
    """The folder in /tmp that a program needs to run: its environment, project or own folder."""
    above = list(_folders_above(path))
    if not above:
        return path  # it lies in /tmp itself
    for folder in reversed(above):
        if os.path.basename(folder) == "node_modules":
            parent = os.path.dirname(folder)
            return folder if parent in _TMP else parent
    for folder in above:
        if any(os.path.exists(os.path.join(folder, name)) for name in _PROJECT):
            return folder
    return above[0]


def _folders_above(path: str) -> Iterator[str]:
    """The folders that hold a path, innermost first, without /tmp itself."""
    folder = os.path.dirname(path)
    while folder not in (*_TMP, "/"):
        yield folder
        folder = os.path.dirname(folder)


def _tmp_of(folder: str) -> str:
    return next(tmp for tmp in _TMP if inside(folder, tmp))
