"""One web request from our own process: pinned addresses, checked hops, capped size and time."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from msgspec import Struct, field

from toolrest.errors import RespondToModel, Timeout
from toolrest.sandbox.network.url_access import UrlAccess, UrlRefused, parse_web_url
from toolrest.urls import HttpUrl

if TYPE_CHECKING:
    import httpx2

AGENT = "toolrest"
_HOPS = 5
_REDIRECTS = (301, 302, 303, 307, 308)


class Caps(Struct, frozen=True):
    """Limits of a request: bytes and seconds."""

    size: int = 5_000_000
    seconds: float = 30.0


class Page(Struct):
    """The response of a server. `url` is the address after redirects."""

    url: HttpUrl
    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    hops: list[str] = field(default_factory=list)


class WebClient:
    """Asks the web within a session's access; nothing of the environment, no cookies, no keys."""

    def __init__(self, access: UrlAccess, caps: Caps | None = None) -> None:
        self.access = access
        self.caps = caps or Caps()

    async def get(self, url: str, may_go: Callable[[HttpUrl], str | None] | None = None) -> Page:
        """Fetch a page, following redirects; `may_go` may refuse a further host with a reason."""
        return await self._in_time(url, self._follow(url, may_go))

    async def ask(
        self, url: str, *, headers: Mapping[str, str], json: Any = None, method: str = "GET"
    ) -> Page:
        """One request of an API, with its own headers; redirects are not followed."""
        return await self._in_time(url, self._once(parse_web_url(url), method, headers, json))

    async def _in_time(self, url: str, work: Any) -> Page:
        try:
            async with asyncio.timeout(self.caps.seconds):
                page: Page = await work
                return page
        except TimeoutError:
            raise Timeout(
                f"Request timed out after {self.caps.seconds * 1000:.0f}ms: {url}"
            ) from None
        except UrlRefused as error:
            raise RespondToModel(f"Request refused: {error}") from None

    async def _follow(self, url: str, may_go: Callable[[HttpUrl], str | None] | None) -> Page:
        here = parse_web_url(url)
        hops: list[str] = []
        while True:
            page = await self._once(here, "GET", {})
            target = page.headers.get("location")
            if page.status not in _REDIRECTS or not target:
                page.hops = hops
                return page
            if len(hops) >= _HOPS:
                raise RespondToModel(f"Request refused: more than {_HOPS} redirects")
            following = parse_web_url(urljoin(str(here), target).partition("#")[0])
            reason = may_go(following) if may_go is not None else None
            if reason is not None:
                raise RespondToModel(f"Request refused: {here} redirects to {following}: {reason}")
            hops.append(str(following))
            here = following

    async def _once(
        self, url: HttpUrl, method: str, headers: Mapping[str, str], json: Any = None
    ) -> Page:
        import httpx2

        addresses = await self.access.addresses(url)
        problem: Exception | None = None
        for address in addresses[:4]:
            try:
                return await self._at(address, url, method, headers, json)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                problem = error
            except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
                raise RespondToModel(f"Request failed: {_words(error)}") from None
        raise RespondToModel(f"Request failed: {_words(problem)}")

    async def _at(
        self, address: str, url: HttpUrl, method: str, headers: Mapping[str, str], json: Any
    ) -> Page:
        """Connect to this very address; the host name is only for `Host` and the certificate."""
        import httpx2

        literal = f"[{address}]" if ":" in address else address
        verify = httpx2.create_ssl_context() if url.scheme == "https" else False
        sent = {"User-Agent": AGENT, "Accept-Encoding": "gzip, identity", "Accept": _ACCEPT}
        sent |= {**headers, "Host": url.authority}
        async with httpx2.AsyncClient(
            verify=verify, trust_env=False, follow_redirects=False, timeout=self.caps.seconds
        ) as client:
            request = client.build_request(
                method,
                f"{url.scheme}://{literal}:{url.port}{url.path}",
                headers=sent,
                json=json,
                extensions={"sni_hostname": url.host},
            )
            response = await client.send(request, stream=True)
            try:
                return await self._read(response, url)
            finally:
                await response.aclose()

    async def _read(self, response: httpx2.Response, url: HttpUrl) -> Page:
        headers = {name.lower(): value for name, value in response.headers.items()}
        page = Page(url, response.status_code, headers)
        if page.status in _REDIRECTS:
            return page
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self.caps.size:
            raise _too_large(int(declared), self.caps.size)
        pieces: list[bytes] = []
        held = 0
        async for piece in _decoded(response.aiter_raw(), headers.get("content-encoding", "")):
            held += len(piece)
            if held > self.caps.size:
                raise _too_large(held, self.caps.size)
            pieces.append(piece)
        page.body = b"".join(pieces)
        return page


_ACCEPT = "text/html, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5"
_INFLATED = 1 << 18


async def _decoded(raw: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """The body unpacked a little at a time: a bomb is stopped by the size cap, not by memory."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        async for piece in raw:
            yield piece
        return
    if name not in ("gzip", "x-gzip", "deflate"):
        raise RespondToModel(f"Request failed: the content is encoded as {name[:40]}")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | (32 if name == "deflate" else 16))
    try:
        async for piece in raw:
            yield unpacker.decompress(piece, _INFLATED)
            while unpacker.unconsumed_tail:
                yield unpacker.decompress(unpacker.unconsumed_tail, _INFLATED)
        with contextlib.suppress(zlib.error):
            yield unpacker.flush(_INFLATED)
    except zlib.error as error:
        raise RespondToModel(f"Request failed: broken {name} content: {error}") from None


def _too_large(size: int, most: int) -> RespondToModel:
    return RespondToModel(
        f"Request failed: response body too large: {size:,} bytes, and web.max_size is {most:,}"
    )


def _words(error: Exception | None) -> str:
    return str(error) or type(error).__name__
