"""The MCP server over HTTP: one path, a bearer token, and only hosts and origins that are ours."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import Response

from toolrest.errors import ConfigError
from toolrest.private_files import make_private
from toolrest.serve.listening import is_wildcard, names_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from toolrest.serve.server import ToolServer

TOKEN_VARIABLE: Final = "TOOLREST_MCP_TOKEN"  # noqa: S105  the variable's name, not a token
PATH: Final = "/mcp"
_SHORTEST: Final = 16
_NAME: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")


def address(text: str) -> tuple[str, int]:
    """HOST:PORT, or a port alone for loopback; `[::1]:8000` for IPv6."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--http takes HOST:PORT or a port, not {text!r}")
    return host, int(port)


def token_from(environ: Any) -> str | None:
    """The token that the user chose, checked; None when they chose none."""
    token: str | None = environ.get(TOKEN_VARIABLE)
    if token is not None and len(token) < _SHORTEST:
        raise ConfigError(f"{TOKEN_VARIABLE} must have at least {_SHORTEST} characters")
    return token


def new_token(path: str) -> str:
    """Make a token and keep it in a file that only the user can read, for clients to pick up."""
    token = secrets.token_urlsafe(32)
    make_private(os.path.dirname(path))
    fresh = f"{path}.{os.getpid()}.tmp"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(token + "\n")
    os.replace(fresh, path)
    return token


class BearerOnly:
    """ASGI middleware that answers 401 to requests without the bearer token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 401."""
        if scope["type"] == "http" and not self._allowed(scope):
            message = "a bearer token is required\n"
            refusal = Response(message, 401, {"WWW-Authenticate": 'Bearer realm="toolrest"'})
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(_normal(given[0]), self._expected)


def _normal(header: bytes) -> bytes:
    scheme, _, token = header.partition(b" ")
    return b"Bearer " + token.strip() if scheme.lower() == b"bearer" else header


def check_names(host: str, allowed: Sequence[str]) -> None:
    """Refuse invalid host names, and a wildcard address without a name for clients."""
    for name in allowed:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"--allow-host takes a host's name, or NAME:PORT, not {name!r}")
    if is_wildcard(host) and not allowed:
        raise ConfigError(
            f"--http {host} listens on every address, and requests are refused unless they name "
            "this server: say by which names clients call it (--allow-host NAME), or listen on one "
            "address"
        )


def application(
    tools: ToolServer, host: str, port: int, token: str, allowed: Sequence[str] = ()
) -> ASGIApp:
    """The ASGI application: token first, then Host and Origin, then the protocol.

    `allowed` are further names that clients may call this server by; those with a port are for
    a proxy or a published port.
    """
    own = names_of("127.0.0.1" if is_wildcard(host) else host)
    hosts = [f"{name}:{port}" for name in own]
    for name in allowed:
        has_port = ":" in name.rpartition("]")[2]
        hosts += [name] if has_port else [f"{name}:{port}", name]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{name}" for scheme in ("http", "https") for name in hosts],
    )
    app = tools.server().streamable_http_app(
        streamable_http_path=PATH, transport_security=security, host=host
    )
    return BearerOnly(app, token)
