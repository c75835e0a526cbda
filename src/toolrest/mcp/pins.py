"""Pins of approved servers: how each is started, and every tool's definition.

A server or tool that differs from its pin is not used until the difference is approved. The file
holds no values of the user's variables or headers, only their names.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field

from toolrest.config.files import read_text
from toolrest.config.secrets import is_secret_name
from toolrest.config.write import replace_file
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.mcp.definitions import Definition, digest
from toolrest.mcp.json_files import variables_in
from toolrest.private_files import make_private

if TYPE_CHECKING:
    from toolrest.config.schema.mcp import McpServer
    from toolrest.mcp.servers import Server

Access: TypeAlias = Literal["read", "write"]
_VERSION = 1


class Pin(Struct):
    """The approved launch and tools of one server."""

    launch: JSONObject
    tools: dict[str, JSONObject] | None = None
    """Each tool's definition by name; None until the server was listed for the first time."""
    folders: dict[str, Access] = field(default_factory=dict)
    """Folders beyond the session's own that this server may read or write."""


class Changes(Struct, frozen=True):
    """The differences of a server's tools from their pins."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def untrusted(self) -> tuple[str, ...]:
        """The new and changed tools, which need approval."""
        return (*self.added, *self.changed)


class Pins(Struct):
    """The pins of a user, in one 0600 file."""

    path: str
    _pins: dict[str, Pin] = field(default_factory=dict)
    _loaded: bool = False

    def get(self, server: Server) -> Pin | None:
        """The pin of a server, if it was ever approved."""
        self._load()
        return self._pins.get(pin_key(server))

    def folders(self, server: Server) -> dict[str, Access]:
        """The approved folders of a server, as long as it is the same program and they are there.

        A folder that was replaced by a link is another one.
        """
        pin = self.get(server)
        if pin is None or not _is_same_program(pin.launch, server.row):
            return {}
        return {path: how for path, how in pin.folders.items() if os.path.realpath(path) == path}

    def put_launch(self, server: Server, launch: JSONObject) -> None:
        """Store an approved launch; the tools need approval again, folders that hold do not."""
        self._load(again=True)
        self._pins[pin_key(server)] = Pin(launch, folders=self.folders(server))
        self._save()

    def put_sources(self, server: Server, launch: JSONObject) -> None:
        """Add the current sources to a pin that has none yet; its tools stay approved."""
        self._load(again=True)
        self._pins[pin_key(server)].launch = launch
        self._save()

    def put_tools(self, server: Server, definitions: Mapping[str, Definition]) -> None:
        """Store approved definitions."""
        self._load(again=True)
        pin = self._pins.setdefault(pin_key(server), Pin({}))
        pin.tools = {name: definition.to_json() for name, definition in definitions.items()}
        self._save()

    def put_folder(
        self, server: Server, folder: str, access: Access, launch: JSONObject | None
    ) -> None:
        """Store an approved folder, and the launch with what the server could now change.

        Without a launch the approved one stays: the server's start is to be asked about.
        """
        self._load(again=True)
        pin = self._pins.setdefault(pin_key(server), Pin({}))
        pin.folders[folder] = access
        if launch is not None:
            pin.launch = launch
        self._save()

    def remove(self, server: Server) -> None:
        """Remove a server's pin."""
        self._load(again=True)
        if self._pins.pop(pin_key(server), None) is not None:
            self._save()

    def _load(self, *, again: bool = False) -> None:
        if self._loaded and not again:
            return
        self._loaded = True
        try:
            document = json.loads(read_text(self.path) or "{}")
            rows = document["servers"] if document.get("version") == _VERSION else {}
            self._pins = {
                key: Pin(row["launch"], row.get("tools"), _folders(row.get("folders")))
                for key, row in rows.items()
                if isinstance(row.get("launch"), dict)
            }
        except (ConfigError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # An unreadable file approves nothing.
            self._pins = {}

    def _save(self) -> None:
        rows = {
            key: {"launch": pin.launch, "tools": pin.tools}
            | ({"folders": pin.folders} if pin.folders else {})
            for key, pin in self._pins.items()
        }
        text = json.dumps({"version": _VERSION, "servers": rows}, indent=1, sort_keys=True)
        make_private(os.path.dirname(self.path))
        replace_file(self.path, text)


def _folders(stored: Any) -> dict[str, Access]:
    """The approved folders of a pin; an entry that makes no sense approves nothing."""
    rows = stored.items() if isinstance(stored, dict) else ()
    return {path: access for path, access in rows if access in ("read", "write")}


def _is_same_program(launch: JSONObject, row: McpServer) -> bool:
    """Whether a server is still the program, with the arguments, that an approval was for."""
    given = (launch.get("command"), launch.get("args", []), launch.get("url"), launch.get("cwd"))
    return given == (row.command, list(row.args), row.url, row.cwd)  # a script may be named by cwd


def pin_key(server: Server) -> str:
    """Key of a server's pin: its name, with the file or editor that brought it."""
    return server.name if server.origin == "user" else f"{server.file}#{server.name}"


def launch_record(
    server: Server,
    program: str | None,
    files: Mapping[str, str] | None = None,
    sources: Mapping[str, str] | None = None,
) -> JSONObject:
    """The record of how a server is started or reached, as shown for approval and pinned.

    `files` are hashes of what it names and a tool could have written, `sources` those of folders
    that it may load code from. That there are none is pinned, too.
    """
    row = server.row
    record: JSONObject = {
        "command": row.command,
        "program": program,
        "args": list(row.args),
        "env": {name: _value(name, value, server) for name, value in sorted(row.env.items())},
        "env_vars": sorted(row.env_vars),
        "cwd": row.cwd,
        "url": row.url,
        "headers": sorted(_headers(row)),
        "bearer_token_env_var": row.bearer_token_env_var,
        "network": list(row.network) if isinstance(row.network, tuple) else row.network,
        "writable_roots": list(row.writable_roots),
        "files": dict(files or {}),
    }
    kept = {key: value for key, value in record.items() if value not in (None, [], {})}
    return kept if sources is None else {**kept, "sources": dict(sources)}


def is_same_launch(pin: Pin, record: JSONObject) -> bool:
    """Whether a server is started as it was approved; pins of 0.1 have no sources."""
    return pin.launch == record or pin.launch == {k: v for k, v in record.items() if k != "sources"}


def _value(name: str, value: str, server: Server) -> str:
    """A variable as pinned: a hash that shows a change, and nothing of one that holds a secret.

    A value from a folder's file, or from an editor, which may have it from there, can change what
    the program does: it is shown as it is. So are names of the user's variables that are passed on.
    """
    if is_secret_name(name):
        return f"(a secret){_passed_on(value)}"
    return digest(value)[:16] if server.origin == "user" else value


def _headers(row: McpServer) -> Iterator[str]:
    """The names of the headers, and of the variables whose values they carry."""
    for name, value in {**row.headers, **row.http_headers}.items():
        yield name + _passed_on(value)
    for name, variable in row.env_http_headers.items():
        yield name + _passed_on(f"${{{variable}}}")


def _passed_on(value: str) -> str:
    names = variables_in(value)
    return f" with {', '.join(f'${{{name}}}' for name in names)}" if names else ""


def changes(pin: Pin, definitions: Mapping[str, Definition]) -> Changes:
    """The differences of a server's tools from its pin."""
    if pin.tools is None:
        return Changes(added=tuple(sorted(definitions)))
    approved = {name: digest(tool) for name, tool in pin.tools.items()}
    return Changes(
        added=tuple(sorted(definitions.keys() - approved.keys())),
        changed=tuple(
            sorted(n for n, d in definitions.items() if n in approved and approved[n] != d.digest)
        ),
        removed=tuple(sorted(approved.keys() - definitions.keys())),
    )


def launch_diff(old: JSONObject, new: JSONObject) -> str:
    """The diff of how a server is started, line by line."""
    return _diff(_lines(old), _lines(new))


def tool_diff(pin: Pin, definition: Definition) -> str:
    """The diff of a tool's definition, line by line; the whole of it when it is new."""
    old = (pin.tools or {}).get(definition.name)
    return _diff([] if old is None else _lines(old), _lines(definition.to_json()))


def _lines(value: Any) -> list[str]:
    shown = {k: v for k, v in value.items() if v not in (None, {}, [])}
    text = json.dumps(shown, indent=1, sort_keys=True, ensure_ascii=False)
    return text.replace("\\n", "\n").splitlines()


def _diff(old: list[str], new: list[str]) -> str:
    # The first two lines are the names of two files. Nothing else is left out or cut: an approval
    # covers only what it showed.
    lines = list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
    return "\n".join(line for line in lines if not line.startswith("@@"))
