"""Servers: Toolrest's tools over MCP, its agent over the Agent Client Protocol."""

from __future__ import annotations

from toolrest.lazy_names import LazyNames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolrest.serve.agents import serve_acp as serve_acp
    from toolrest.serve.agents import serve_mcp as serve_mcp

_NAMES = LazyNames(__name__, {"toolrest.serve.agents": "serve_acp serve_mcp"})
__all__ = _NAMES.names()
__getattr__ = _NAMES.get


def __dir__() -> list[str]:
    return __all__
