"""URLs of HTTP servers: one parser for model endpoints, web pages and MCP servers."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from toolrest.secret import Secret

_PORTS = {"http": 80, "https": 443}
_SAFE = "/?:@!$&'()*+,;=%-._~[]"


class UnsupportedScheme(ValueError):
    """The text is no http:// or https:// address; `scheme` is what it begins with, if anything."""

    def __init__(self, scheme: str) -> None:
        super().__init__("not an http:// or https:// address")
        self.scheme = scheme


class HttpUrl(Struct, frozen=True):
    """An http or https URL in parts. `path` includes the query; `user` is "name:password"."""

    scheme: str
    host: str
    port: int
    path: str
    user: Secret | None = None

    @property
    def authority(self) -> str:
        """Host and port as the Host header holds them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if not host.isascii():
            host = host.encode("idna").decode("ascii")
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.authority}"

    @property
    def target(self) -> str:
        """The path as a request line holds it, in ASCII."""
        return quote(self.path, safe=_SAFE)

    @property
    def without_query(self) -> str:
        """The URL without its query and credentials, which may be secret."""
        return self.origin + self.path.partition("?")[0]

    def __str__(self) -> str:
        return self.origin + self.path


def parse_url(text: str) -> HttpUrl:
    """The parts of an http or https URL; ValueError for anything else."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # its message would repeat a part of the text, which may be a password
        raise ValueError("its host or port is not valid") from None
    if parts.scheme not in _PORTS:
        raise UnsupportedScheme(parts.scheme)
    if not parts.hostname:
        raise ValueError("it names no host")
    if port == 0:
        raise ValueError("there is no port 0")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    user = None
    if parts.username is not None:
        user = Secret(f"{unquote(parts.username)}:{unquote(parts.password or '')}")
    return HttpUrl(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], path, user)
