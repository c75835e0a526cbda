"""Options of `webfetch` and `web_search`, from the settings; loaded with the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolrest.sandbox.network.hosts import Allowlist
from toolrest.sandbox.network.url_access import UrlAccess, UrlRefused, parse_web_url
from toolrest.tools.web.client import Caps
from toolrest.tools.web.search_services import (
    ADDRESSES,
    KEY_VARIABLES,
    Backend,
    Brave,
    SearXNG,
    Tavily,
)
from toolrest.tools.web.web_search import NOT_CONFIGURED, SearchOptions
from toolrest.tools.web.webfetch import WebOptions

if TYPE_CHECKING:
    from toolrest.config import Settings
    from toolrest.config.schema.tools import SearchSettings


def web_options(settings: Settings) -> WebOptions:
    """The options of `webfetch`: reachable hosts and limits."""
    listed = Allowlist(settings.tool_security.allowed_network_domains)
    open_network = settings.sandbox_workspace_write.network_access
    everything = settings.sandbox_mode == "danger-full-access"
    return WebOptions(
        UrlAccess(listed),
        Caps(settings.web.max_size, settings.web.timeout_sec),
        settings.web.robots,
        bool(listed.entries) or open_network or everything,
    )


def search_options(settings: Settings, environ: Mapping[str, str]) -> SearchOptions:
    """The options of `web_search`: the search service, and which results are shown."""
    chosen = settings.search
    backend, problem = _backend(chosen, environ)
    return SearchOptions(
        web_options(settings),
        backend,
        problem,
        Allowlist(chosen.allowed_domains, "search.allowed_domains"),
        Allowlist(chosen.blocked_domains, "search.blocked_domains"),
        chosen.max_results,
        live=settings.web_search != "cached",
    )


def _backend(chosen: SearchSettings, environ: Mapping[str, str]) -> tuple[Backend | None, str]:
    if chosen.backend is None:
        return None, NOT_CONFIGURED
    url = chosen.url or ADDRESSES.get(chosen.backend)
    if url is None:
        return None, f'web_search: search.backend = "{chosen.backend}" needs search.url'
    try:
        parse_web_url(url)
    except UrlRefused as error:
        return None, f"web_search: search.url: {error}"
    if chosen.backend == "searxng":
        return SearXNG(url), ""
    variable = chosen.key_env or KEY_VARIABLES[chosen.backend]
    key = environ.get(variable, "").strip()
    if not key:
        return None, f"web_search: the variable {variable} holds no key (search.key_env names it)"
    return (Brave(key, url) if chosen.backend == "brave" else Tavily(key, url)), ""
