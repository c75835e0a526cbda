"""Trust in MCP servers: approval of their start and of changed tools, against the pins."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from toolrest.answer import Answer
from toolrest.errors import ToolCallError
from toolrest.events import ToolCallDecision
from toolrest.gate.approval.request import ApprovalRequest
from toolrest.items import JSONObject
from toolrest.mcp.definitions import Definition
from toolrest.mcp.errors import McpError, approve_hint
from toolrest.mcp.launch import command_of, writable_files
from toolrest.mcp.pins import (
    Access,
    Changes,
    Pin,
    Pins,
    changes,
    is_same_launch,
    launch_diff,
    launch_record,
    tool_diff,
)
from toolrest.mcp.sources import source_hashes
from toolrest.policy.effects import Effects, Risk
from toolrest.policy.terminal_safe import display_safe

if TYPE_CHECKING:
    from toolrest.gate.session import Ground
    from toolrest.mcp.servers import Server
    from toolrest.policy.paths.policy import PathPolicy

START = "mcp_server_start"
"""The name of a server's start in approvals and the audit log."""
CHANGED = "mcp_tools_changed"
"""The name of new or changed tools in approvals."""


FOLDER = "mcp_server_folder"
"""The name of a folder that a server needs in approvals and the audit log."""


def record_of(
    server: Server, files: PathPolicy, environ: Mapping[str, str], own: Sequence[str] = ()
) -> JSONObject:
    """The launch record of a server, as its pin holds it; `own` are folders that it may write."""
    if not server.argv:
        return launch_record(server, None)
    roots = files.writable_roots if files.mode == "workspace-write" else ()
    try:
        command = command_of(server, files.workspace, environ, roots)
    except McpError:
        return launch_record(server, None)  # starting it will say what is wrong
    # What another session may write counts too, whatever this one may.
    written = writable_files(command, (*files.tool_roots, *own))
    sources = source_hashes(command, (*files.tool_roots, *own))
    return launch_record(server, command.argv[0], written, sources)


def pins_in(home: str) -> Pins:
    """The pins of approved servers."""
    return Pins(os.path.join(home, "mcp", "pins.json"))


class Trust:
    """The pins, and approval of differences from them. One request at a time."""

    def __init__(self, ground: Ground) -> None:
        self._pins = pins_in(ground.config.home)
        self._ground = ground
        self._turn = asyncio.Lock()
        self._started: set[str] = set()

    # Starting

    def is_pinned(self, server: Server) -> bool:
        """Whether the server would be started exactly as it was approved."""
        pin = self._pins.get(server)
        return pin is not None and is_same_launch(pin, self._record(server))

    async def may_start(self, server: Server) -> str | None:
        """None when the server may be started, else the reason why not.

        A server in the user's own settings is approved by that, the first time; one of the
        folder's own files or of an editor, and one that has changed, needs approval.
        """
        # Reading a folder of sources takes its time.
        record = await asyncio.to_thread(self._record, server)
        pin = self._pins.get(server)
        if pin is not None and is_same_launch(pin, record):
            if pin.launch != record:
                self._pins.put_sources(server, record)
            self._note_start(server, record, Answer.ALLOW, "mcp.pin")
            return None
        if pin is None and server.origin == "user":
            self._pins.put_launch(server, record)
            self._note_start(server, record, Answer.ALLOW, "mcp.first-use")
            return None
        kept = (f"  {how}: {path} (approved before)" for path, how in self._kept(server))
        diff = "\n".join((launch_diff(pin.launch if pin else {}, record), *kept))
        title = f"Start the MCP server {server.name}?"
        refused = await self._ask(START, record, title, _why_start(server, pin), diff)
        if refused is None:
            self._pins.put_launch(server, record)
            self._note_start(server, record, Answer.ALLOW, "mcp.approved")
            return None
        self._note_start(server, record, Answer.DENY, "mcp.unapproved")
        changed = "changed since it was approved" if pin else f"brought by {server.file}"
        reason = f"it is not approved ({changed}): {refused}"
        if server.origin == "editor":
            return reason  # only a session of the editor has it
        return f"{reason}. {approve_hint(server.name)}"

    def _kept(self, server: Server) -> list[tuple[str, Access]]:
        """The folders that stay approved, for the code that is about to be approved as well."""
        return sorted(self._pins.folders(server).items())

    def _record(self, server: Server) -> JSONObject:
        own = self.folders(server, "write")
        return record_of(server, self._ground.files, self._ground.environ, own)

    def _note_start(self, server: Server, record: JSONObject, verdict: Answer, rule: str) -> None:
        """Emit the decision on starting a server, for the audit log."""
        if verdict == Answer.ALLOW and server.name in self._started:
            return  # the same server connecting again
        self._started.add(server.name)
        self._note(START, server, record, verdict, rule)

    def _note(
        self, what: str, server: Server, record: JSONObject, verdict: Answer, rule: str
    ) -> None:
        self._ground.bus.emit(
            ToolCallDecision(
                call_id=f"mcp-{server.name}",
                tool=what,
                arguments=json.dumps(record),
                verdict=verdict,
                rule=rule,
                risk=Risk.EXECUTE.label,
                reason=f"MCP server {server.name}",
                mutating=True,
            )
        )

    # Folders

    def folders(self, server: Server, access: Access) -> tuple[str, ...]:
        """The folders that this server may read or write by approval."""
        approved = self._pins.folders(server)
        return tuple(path for path, granted in approved.items() if granted == access)

    async def approve_folder(
        self, server: Server, folder: str, reason: str, *, write: bool
    ) -> bool:
        """Ask for a folder that this server needs. No setting approves writing for a person.

        A missing folder is made; one that cannot be made is not approved. Code that has changed
        since its approval is not approved with the folder.
        """
        access: Access = "write" if write else "read"
        asked: JSONObject = {"server": server.name, "folder": folder, "access": access}
        protected = f"{server.name} wants to write in {folder}" if write else ""
        same = await asyncio.to_thread(self.is_pinned, server)
        verb = "change" if write else "read"
        title = f"Let the MCP server {server.name} {verb} {folder}?"
        diff = f"+ {access}: {folder}"
        refused = await self._ask(FOLDER, asked, title, reason, diff, protected)
        if refused is None and write:
            try:
                await asyncio.to_thread(os.makedirs, folder, 0o700, exist_ok=True)
            except OSError as error:
                refused = str(error)
        if refused is None:
            own = (*self.folders(server, "write"), *((folder,) if write else ()))
            files, environ = self._ground.files, self._ground.environ
            record = await asyncio.to_thread(record_of, server, files, environ, own)
            # Compared last: the answer takes its time, and so does the new record.
            same = same and await asyncio.to_thread(self.is_pinned, server)
            self._pins.put_folder(server, folder, access, record if same else None)
        verdict = Answer.ALLOW if refused is None else Answer.DENY
        self._note(FOLDER, server, asked, verdict, "mcp.folder")
        return refused is None

    # Tools

    def known_tools(
        self, server: Server, definitions: Mapping[str, Definition]
    ) -> dict[str, Definition]:
        """The tools that are exactly as they were approved."""
        pin = self._pins.get(server)
        if pin is None:
            return {}
        untrusted = set(changes(pin, definitions).untrusted)
        return {name: d for name, d in definitions.items() if name not in untrusted}

    def first_sight(self, server: Server, definitions: Mapping[str, Definition]) -> bool:
        """Pin the tools of a server that was approved and is listed for the first time."""
        pin = self._pins.get(server)
        if pin is not None and pin.tools is not None:
            return False
        self._pins.put_tools(server, definitions)
        return True

    def difference(self, server: Server, definitions: Mapping[str, Definition]) -> Changes:
        """The differences of the tools from the approved ones."""
        pin = self._pins.get(server)
        return changes(pin, definitions) if pin is not None else Changes()

    async def approve_tools(
        self, server: Server, definitions: Mapping[str, Definition], found: Changes
    ) -> str | None:
        """Ask for approval of new or changed tools, with the difference; None if approved."""
        pin = self._pins.get(server) or Pin({})
        shown = "\n".join(
            f"{_kind(name, found)} {name}:\n{tool_diff(pin, definitions[name])}"
            for name in found.untrusted
        )
        reason = (
            f"the MCP server {server.name} describes tools differently than when it was approved: "
            f"{', '.join(found.untrusted)}"
        )
        asked = {"server": server.name, "added": found.added, "changed": found.changed}
        title = f"Use the changed tools of the MCP server {server.name}?"
        refused = await self._ask(CHANGED, asked, title, reason, shown)
        if refused is None:
            self._pins.put_tools(server, definitions)
        return refused

    # Asking

    async def _ask(
        self,
        what: str,
        arguments: JSONObject,
        title: str,
        reason: str,
        diff: str,
        protected: str = "",
    ) -> str | None:
        """None if approved, else the reason why not."""
        if self._ground.approval_policy == "never":
            return 'approval_policy = "never" never asks'
        request = ApprovalRequest(
            f"mcp-{what}",
            what,
            json.dumps(arguments),
            f"{display_safe(reason)}\n{display_safe(diff, keep_newlines=True)}",
            Risk.EXECUTE,
            Effects(calls=(what,)),
            diff=diff,
            protected=protected,
            title=title,
            notes=(f"{reason[:1].upper()}{reason[1:]}.",),
        )
        async with self._turn:
            try:
                await self._ground.approvals.ask(request, "")
            except ToolCallError as error:
                return error.message
        return None


def _kind(name: str, found: Changes) -> str:
    return "new tool" if name in found.added else "changed tool"


def _why_start(server: Server, pin: Pin | None) -> str:
    if pin is not None:
        return f"the MCP server {server.name} is started differently than when it was approved"
    row = server.row
    how = row.url or " ".join((row.command or "", *row.args))
    if isinstance(row.network, bool):
        network = "the network" if row.network else "no network"
    else:
        network = f"only the hosts {', '.join(row.network)}"
    return (
        f"{server.file} wants to start the MCP server {server.name}: {how} "
        f"(it may touch the files that this session may, and {network})"
    )
