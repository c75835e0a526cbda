"""OAuth login to a server over HTTP: PKCE through the SDK, tokens stored for later.

Sessions use and refresh the tokens that a login has stored; they never open a browser.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.utils import is_valid_client_metadata_url
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from toolrest.mcp.connection import error_message, silence_sdk
from toolrest.mcp.errors import McpError, McpLoginNeeded
from toolrest.mcp.login.callback import Callback
from toolrest.mcp.transports.http import PLAIN, guards

if TYPE_CHECKING:
    from toolrest.mcp.login.tokens import TokenStore
    from toolrest.mcp.servers import Server

PATIENCE = 300.0
_BASIC = "client_secret_basic"
_LOCAL = ("127.0.0.1", "localhost", "::1")


def stored_auth(server: Server, store: TokenStore) -> Any:
    """The SDK's provider that adds a stored token and refreshes it; None without a login."""
    if server.url is None or _has_header(server) or store.get(server.url) is None:
        return None

    async def no_browser(url: str = "") -> None:
        raise McpLoginNeeded(
            f"its login has ended; log in again with: toolrest mcp login {server.name}",
            parse_qs(urlsplit(url).query).get("scope", [""])[0],
        )

    return _provider(server, store, "http://127.0.0.1/callback", no_browser, no_browser)


async def login(
    server: Server,
    store: TokenStore,
    *,
    show: Callable[[str], Awaitable[None]],
    port: int | None = None,
    scopes: tuple[str, ...] = (),
    patience: float = PATIENCE,
) -> None:
    """Log in: `show` gets the address to open in a browser. McpError carries the reason."""
    if server.url is None:
        raise McpError(f"{server.name} is a program, not an address: there is nothing to log in to")
    if _has_header(server):
        raise McpError(f"{server.name} already sends an Authorization header; remove that first")
    named = server.row.oauth_client_secret_env_var
    if named is not None and not server.oauth_secret:
        raise McpError(
            f"mcp_servers.{server.name}.oauth_client_secret_env_var names {named}, which is not set"
        )
    silence_sdk()
    wanted = scopes or server.row.scopes
    async with Callback(port) as callback:

        async def redirect(url: str) -> None:
            _choose_method(auth.context)
            url = _with_scopes(_checked(url), wanted)
            callback.expect(parse_qs(urlsplit(url).query)["state"][0])
            await show(url)

        # The tokens of an earlier login would be used silently, but this is a new one.
        store.remove(server.url)
        auth = _provider(server, store, callback.uri, redirect, callback.answer)
        try:
            async with asyncio.timeout(patience):
                await _provoke(server, auth)
        except TimeoutError:
            raise McpError(f"the login was not finished within {patience:g} s") from None
    if store.get(server.url) is None:
        raise McpError(f"{server.target} does not ask for a login")


def _choose_method(context: Any) -> None:
    """Give a registered client's secret in the way that the login server takes."""
    client, offered = context.client_info, context.oauth_metadata
    methods = getattr(offered, "token_endpoint_auth_methods_supported", None) or [_BASIC]
    if client.token_endpoint_auth_method == _BASIC and _BASIC not in methods:
        client.token_endpoint_auth_method = "client_secret_post"  # noqa: S105  no secret


async def _provoke(server: Server, auth: Any) -> None:
    """Send a request that the server answers with 401, which starts the login."""
    opening = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
    headers = {**server.headers, **PLAIN, "accept": "application/json, text/event-stream"}
    # The user is there and sees the address; the list of hosts is for sessions.
    hooks = guards(server, lambda _there: None)
    try:
        async with (
            httpx2.AsyncClient(auth=auth, timeout=PATIENCE, event_hooks=hooks) as client,
            client.stream("POST", server.url or "", json=opening, headers=headers) as answer,
        ):
            if answer.status_code in (401, 403):
                raise McpError(f"{server.target} refused the new token (HTTP {answer.status_code})")
    except McpError:
        raise
    except Exception as error:
        raise McpError(f"the login failed: {error_message(error)}") from None


def _has_header(server: Server) -> bool:
    return "authorization" in {name.lower() for name in server.headers}


def _checked(url: str) -> str:
    """An address that may be shown to a browser: https, or this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL):
        return url
    raise McpError("the server's login page is not at an https address, so it is not opened")


def _with_scopes(url: str, scopes: tuple[str, ...]) -> str:
    if not scopes:
        return url
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return urlunsplit(parts._replace(query=urlencode({**query, "scope": " ".join(scopes)})))


def _provider(
    server: Server,
    store: TokenStore,
    redirect_uri: str,
    redirect: Callable[[str], Awaitable[None]],
    answer: Callable[[], Awaitable[Any]],
) -> Any:
    kept = _Kept(server, store, redirect_uri)
    metadata = OAuthClientMetadata(
        client_name="Toolrest",
        redirect_uris=[AnyUrl(redirect_uri)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",  # noqa: S106  a public client has no secret
    )
    provider = OAuthClientProvider(
        server.url or "", metadata, kept, redirect, answer, client_metadata_url=_document(server)
    )
    entry = store.get(server.url or "") or {}
    # The SDK keeps neither of these over a restart, and without them it cannot refresh.
    provider.context.token_expiry_time = entry.get("expires_at")
    if isinstance(entry.get("metadata"), dict):
        provider.context.oauth_metadata = OAuthMetadata.model_validate(entry["metadata"])
    kept.context = provider.context
    return provider


def _document(server: Server) -> str | None:
    """The address of the client's own description, which some login servers read (CIMD)."""
    named = server.row.oauth_client_id
    return named if is_valid_client_metadata_url(named) else None


class _Kept:
    """The SDK's token storage over our store."""

    def __init__(self, server: Server, store: TokenStore, redirect_uri: str) -> None:
        self._server = server
        self._url = server.url or ""
        self._store = store
        self._redirect_uri = redirect_uri
        self._client: Any = None
        self.context: Any = None

    async def get_tokens(self) -> Any:
        """The stored tokens."""
        tokens = (self._store.get(self._url) or {}).get("tokens")
        return OAuthToken.model_validate(tokens) if isinstance(tokens, dict) else None

    async def set_tokens(self, tokens: Any) -> None:
        """Keep tokens with all that is needed to refresh them after a restart."""
        entry = self._store.get(self._url) or {}
        entry["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        entry["expires_at"] = None if tokens.expires_in is None else time.time() + tokens.expires_in
        client = self._client or getattr(self.context, "client_info", None)
        if client is not None:
            # A secret of the settings stays where it is.
            own = {"client_secret"} if self._server.oauth_secret else set()
            entry["client"] = client.model_dump(mode="json", exclude_none=True, exclude=own)
        metadata = getattr(self.context, "oauth_metadata", None)
        if metadata is not None:
            entry["metadata"] = metadata.model_dump(mode="json", exclude_none=True)
        self._store.put(self._url, entry)

    async def get_client_info(self) -> Any:
        """The client that registered, or the one that the settings name."""
        client = (self._store.get(self._url) or {}).get("client")
        secret = self._server.oauth_secret
        if isinstance(client, dict):
            given = {"client_secret": secret} if secret else {}
            return OAuthClientInformationFull.model_validate({**client, **given})
        named = self._server.row.oauth_client_id
        if named is None or _document(self._server) is not None:
            return self._client
        return OAuthClientInformationFull(
            client_id=named,
            client_secret=secret,
            redirect_uris=[AnyUrl(self._redirect_uri)],
            token_endpoint_auth_method=_BASIC if secret else "none",
        )

    async def set_client_info(self, client_info: Any) -> None:
        """Keep the client in memory until there are tokens: a failed login stores nothing."""
        self._client = client_info
