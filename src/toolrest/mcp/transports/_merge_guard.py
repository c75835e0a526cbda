"""Where may a connection to a server over HTTP go, and what may come back?

The server itself says where its logins are handled. That is an address from a stranger: it is
held against the user's list of hosts, and must not lead from the open internet to this machine
or its network. Answers are asked for unpacked, so that a few bytes cannot become very many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolrest.records import replace
from toolrest.sandbox.network.url_access import Reach, Unreachable, parse_url

if TYPE_CHECKING:
    from toolrest.mcp.servers import Server

MayConnect = Callable[["Server"], "str | None"]
PLAIN = {"Accept-Encoding": "identity"}
_PLAIN_NAMES = ("", "identity")


def guards(server: Server, may_connect: MayConnect) -> dict[str, list[Any]]:
    """Hooks for an HTTP client; a refusal is an error of the connection."""

    async def leaving(request: Any) -> None:
        from httpx2 import ConnectError

        reason = await _refusal(server, str(request.url), may_connect)
        if reason is not None:
            raise ConnectError(reason, request=request)

    async def coming(response: Any) -> None:
        from httpx2 import DecodingError

        name = response.headers.get("content-encoding", "").strip().lower()
        if name not in _PLAIN_NAMES:
            words = f"the answer is packed as {name[:40]}, which was not asked for"
            raise DecodingError(words, request=response.request)

    return {"request": [leaving], "response": [coming]}


async def _refusal(server: Server, url: str, may_connect: MayConnect) -> str | None:
    there = replace(server, url=url)
    if (there.host, there.port) == (server.host, server.port):
        return None
    reason = may_connect(there)
    if reason is not None:
        return f"it asks for {url[:200]}, but {reason}"
    if await _is_public(server.url or "") and not await _is_public(url):
        return f"it asks for {url[:200]}, which is on this machine or its own network"
    return None


async def _is_public(url: str) -> bool:
    try:
        await Reach().addresses(parse_url(url))
    except Unreachable:
        return False
    return True
