"""What a server may ask of us: roots, a question to the user, a completion."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from toolrest.mcp.errors import McpError

if TYPE_CHECKING:
    from toolrest.mcp.servers import Server
    from toolrest.mcp.transports.host import Host


class Answers:
    """Callbacks for the SDK's session of one server."""

    def __init__(self, server: Server, host: Host) -> None:
        self._server = server
        self._host = host
        self.pause: Callable[[], AbstractContextManager[None]] = nullcontext

    async def roots(self, context: Any) -> Any:
        """The session's workspace, as the only root."""
        from urllib.parse import quote

        from mcp_types import ListRootsResult, Root

        return ListRootsResult(roots=[Root(uri=f"file://{quote(p)}") for p in self._host.roots])

    async def elicit(self, context: Any, params: Any) -> Any:
        """Hand the question to whoever answers for the user; nobody there means no."""
        from mcp_types import ElicitResult

        if self._host.ask is None:
            return _refusal("nobody can be asked here")
        asked = params.model_dump(by_alias=True, exclude_none=True)
        schema = asked.get("requestedSchema")
        if not isinstance(schema, dict):
            # A page to be opened in a browser: only its address can be shown.
            schema = {"url": asked.get("url")}
        with self.pause():
            answer = await self._host.ask(self._server, str(asked.get("message", "")), schema)
        return ElicitResult.model_validate(answer)

    async def sample(self, context: Any, params: Any) -> Any:
        """Hand the wish for a completion to the agent, which asks the user first."""
        from mcp_types import CreateMessageResult

        if self._host.sample is None:
            return _refusal("no model is available to servers here")
        asked = params.model_dump(by_alias=True, exclude_none=True, mode="json")
        try:
            with self.pause():
                made = await self._host.sample(self._server, asked)
        except McpError as error:
            return _refusal(str(error))
        return CreateMessageResult.model_validate(made)


def _refusal(message: str) -> Any:
    from mcp_types import INVALID_REQUEST, ErrorData

    return ErrorData(code=INVALID_REQUEST, message=message)
