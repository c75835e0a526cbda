"""The token store of MCP servers: the system's keyring, or a 0600 file."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from toolrest.config.files import USERS_HOME, read_text
from toolrest.config.write import replace_file
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.mcp.errors import McpError
from toolrest.private_files import make_private

StoreMode: TypeAlias = Literal["auto", "keyring", "file"]
SERVICE = "toolrest.mcp.login.oauth"


class TokenStore(Protocol):
    """One entry a server: tokens, when they expire, the client's registration, the endpoints."""

    def get(self, url: str) -> JSONObject | None:
        """The entry of a server's address."""
        ...

    def put(self, url: str, entry: JSONObject) -> None:
        """Store an entry."""
        ...

    def remove(self, url: str) -> bool:
        """Remove an entry; return whether there was one."""
        ...


def token_key(url: str) -> str:
    """A hash of an address, the same for every spelling of it."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = f":{parts.port}" if parts.port else ""
    plain = urlunsplit((parts.scheme.lower(), host + port, parts.path.rstrip("/"), parts.query, ""))
    return hashlib.sha256(plain.encode()).hexdigest()


def token_store(home: str, mode: StoreMode = "auto") -> TokenStore:
    """The keyring if there is one and it may be used, else the file."""
    ring = _keyring() if mode != "file" else None
    if ring is not None:
        return KeyringStore(ring)
    if mode == "keyring":
        raise McpError(
            'mcp.oauth_credentials_store = "keyring" needs the package `keyring` and a keyring '
            "that is unlocked; install it, or set it to file"
        )
    # A task of a batch has a home of its own, but no logins: a token that one renews is void
    # for all others.
    return FileStore(os.path.join(os.environ.get(USERS_HOME) or home, "auth", "mcp-oauth.json"))


def _keyring() -> Any:
    try:
        import keyring  # type: ignore[import-not-found, unused-ignore]

        usable = keyring.get_keyring().priority > 0
    except Exception:
        return None  # not installed, or no keyring that works here
    return keyring if usable else None


class FileStore:
    """A file that only its owner can read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def get(self, url: str) -> JSONObject | None:
        """The entry of a server's address."""
        entry = self._entries().get(token_key(url))
        return entry if isinstance(entry, dict) else None

    def put(self, url: str, entry: JSONObject) -> None:
        """Store an entry."""
        self._write({**self._entries(), token_key(url): entry})

    def remove(self, url: str) -> bool:
        """Remove an entry."""
        entries = self._entries()
        if entries.pop(token_key(url), None) is None:
            return False
        self._write(entries)
        return True

    def _entries(self) -> JSONObject:
        try:
            document = json.loads(read_text(self.path) or "{}")
        except (ConfigError, ValueError, RecursionError):
            return {}
        entries = document.get("servers") if isinstance(document, dict) else None
        return dict(entries) if isinstance(entries, dict) else {}

    def _write(self, entries: JSONObject) -> None:
        folder = os.path.dirname(self.path)
        make_private(folder)
        os.chmod(folder, 0o700)
        replace_file(self.path, json.dumps({"version": 1, "servers": entries}))


class KeyringStore:
    """The system's keyring, through the package of that name."""

    def __init__(self, ring: Any) -> None:
        self._ring = ring

    def get(self, url: str) -> JSONObject | None:
        """The entry of a server's address."""
        try:
            entry = json.loads(self._ring.get_password(SERVICE, token_key(url)) or "null")
        except ValueError:
            return None
        return entry if isinstance(entry, dict) else None

    def put(self, url: str, entry: JSONObject) -> None:
        """Store an entry."""
        self._ring.set_password(SERVICE, token_key(url), json.dumps(entry))

    def remove(self, url: str) -> bool:
        """Remove an entry."""
        if self.get(url) is None:
            return False
        self._ring.delete_password(SERVICE, token_key(url))
        return True
