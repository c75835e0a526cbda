"""From settings to what `webfetch` and `web_search` need; nothing is loaded before they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolrest.config import Settings
    from toolrest.config.schema.tools import Search
    from toolrest.tools.web.search_services import Backend
    from toolrest.tools.web.web_search import SearchOptions
    from toolrest.tools.web.webfetch import WebOptions


def web_options(settings: Settings) -> WebOptions:
    """How pages are fetched, and from where."""
    from toolrest.sandbox.network.hosts import Allowlist
    from toolrest.sandbox.network.url_access import Reach
    from toolrest.tools.web.client import Caps
    from toolrest.tools.web.webfetch import WebOptions

    listed = Allowlist(settings.tool_security.allowed_network_domains)
    open_network = settings.sandbox_workspace_write.network_access
    everything = settings.sandbox_mode == "danger-full-access"
    return WebOptions(
        Reach(listed),
        Caps(settings.web.max_size, settings.web.timeout_sec),
        settings.web.robots,
        bool(listed.entries) or open_network or everything,
    )


def search_options(settings: Settings, environ: Mapping[str, str]) -> SearchOptions:
    """Who answers searches, and which results are shown."""
    from toolrest.sandbox.network.hosts import Allowlist
    from toolrest.tools.web.web_search import SearchOptions

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


def offers_search(settings: Settings) -> bool:
    """Whether models are told of `web_search` at all."""
    if settings.web_search is not None:
        return settings.web_search != "disabled"
    return settings.tools.tools_web_search_request


def _backend(chosen: Search, environ: Mapping[str, str]) -> tuple[Backend | None, str]:
    from toolrest.sandbox.network.url_access import Unreachable, parse_url
    from toolrest.tools.web.search_services import ADDRESSES, KEY_VARIABLES, Brave, SearXNG, Tavily
    from toolrest.tools.web.web_search import NOT_CONFIGURED

    if chosen.backend is None:
        return None, NOT_CONFIGURED
    url = chosen.url or ADDRESSES.get(chosen.backend)
    if url is None:
        return None, f'web_search: search.backend = "{chosen.backend}" needs search.url'
    try:
        parse_url(url)
    except Unreachable as error:
        return None, f"web_search: search.url: {error}"
    if chosen.backend == "searxng":
        return SearXNG(url), ""
    variable = chosen.key_env or KEY_VARIABLES[chosen.backend]
    key = environ.get(variable, "").strip()
    if not key:
        return None, f"web_search: the variable {variable} holds no key (search.key_env names it)"
    return (Brave(key, url) if chosen.backend == "brave" else Tavily(key, url)), ""
