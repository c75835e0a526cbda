"""Web search services: SearXNG, Brave, Tavily, or a function of the user's own."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias
from urllib.parse import urlencode

from msgspec import Struct

from toolrest.errors import RespondToModel
from toolrest.sandbox.network.url_access import parse_web_url
from toolrest.tools.web.client import Page, WebClient
from toolrest.urls import HttpUrl

Found: TypeAlias = Sequence[Mapping[str, Any]]
SearchFunction: TypeAlias = Callable[[str, int], "Found | Awaitable[Found]"]

ADDRESSES: dict[str, str] = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "tavily": "https://api.tavily.com/search",
}
KEY_VARIABLES = {"brave": "BRAVE_API_KEY", "tavily": "TAVILY_API_KEY"}


class Backend(Protocol):
    """Answers a query with rows of title, url and snippet."""

    @property
    def endpoint(self) -> HttpUrl | None:
        """The address it connects to; None when that is not known."""

    async def find(self, query: str, limit: int, client: WebClient) -> Found:
        """The rows, best first."""


class Own(Struct, frozen=True):
    """The user's own function, sync or async: `(query, limit)` to rows."""

    function: SearchFunction

    @property
    def endpoint(self) -> HttpUrl | None:
        """Unknown: only the author of the function knows."""
        return None

    async def find(self, query: str, limit: int, client: WebClient) -> Found:
        """Call it."""
        found = self.function(query, limit)
        return await found if inspect.isawaitable(found) else found


class SearXNG(Struct, frozen=True):
    """A SearXNG instance with the JSON format switched on."""

    url: str

    @property
    def endpoint(self) -> HttpUrl:
        """The instance."""
        return parse_web_url(self.url)

    async def find(self, query: str, limit: int, client: WebClient) -> Found:
        """Ask its search page for JSON."""
        base = self.url.rstrip("/")
        base = base if base.endswith("/search") else f"{base}/search"
        query_string = urlencode({"q": query, "format": "json"})
        page = await client.ask(f"{base}?{query_string}", headers={"Accept": "application/json"})
        return _rows(page, ("results",), snippet="content")


class Brave(Struct, frozen=True):
    """Brave's search API."""

    key: str
    url: str = ADDRESSES["brave"]

    @property
    def endpoint(self) -> HttpUrl:
        """The API."""
        return parse_web_url(self.url)

    async def find(self, query: str, limit: int, client: WebClient) -> Found:
        """Ask for web results."""
        query_string = urlencode({"q": query, "count": min(limit, 20)})
        headers = {"Accept": "application/json", "X-Subscription-Token": self.key}
        page = await client.ask(f"{self.url}?{query_string}", headers=headers)
        return _rows(page, ("web", "results"), snippet="description")


class Tavily(Struct, frozen=True):
    """Tavily's search API."""

    key: str
    url: str = ADDRESSES["tavily"]

    @property
    def endpoint(self) -> HttpUrl:
        """The API."""
        return parse_web_url(self.url)

    async def find(self, query: str, limit: int, client: WebClient) -> Found:
        """Ask for results."""
        headers = {"Accept": "application/json", "Authorization": f"Bearer {self.key}"}
        body = {"query": query, "max_results": min(limit, 20)}
        page = await client.ask(self.url, headers=headers, json=body, method="POST")
        return _rows(page, ("results",), snippet="content")


def _rows(page: Page, path: tuple[str, ...], *, snippet: str) -> list[dict[str, Any]]:
    if page.status != 200:
        hint = " (is its key right?)" if page.status in (401, 403) else ""
        raise RespondToModel(f"web_search: {page.url.host} answered {page.status}{hint}")
    try:
        value: Any = json.loads(page.body)
        for name in path:
            value = value.get(name, {}) if isinstance(value, dict) else {}
    except ValueError:
        raise RespondToModel(f"web_search: {page.url.host} did not answer in JSON") from None
    rows = value if isinstance(value, list) else []
    return [
        {"title": row.get("title"), "url": row.get("url"), "snippet": row.get(snippet)}
        for row in rows
        if isinstance(row, dict)
    ]
