"""What the Context and the return value give to those who write tools (M-15)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolrest import Context, ToolOutput, Toolrest, tool
from toolrest.errors import RespondToModel


async def test_paths_are_resolved_and_refused_in_words(tmp_path: Path) -> None:
    @tool(mutating=False)
    def where(path: str, ctx: Context) -> dict[str, Any]:
        """Where a path is, and whether it may be written."""
        return {"path": ctx.resolve(path), "denied": ctx.write_denied(path)}

    async with Toolrest(tmp_path, tools=[where]) as rest:
        inside = (await rest.call("where", {"path": "sub/../a"})).text
        outside = (await rest.call("where", {"path": "/etc/passwd"})).text
    assert inside == f'{{"path":"{tmp_path}/a","denied":null}}'
    assert '"path":"/etc/passwd"' in outside
    assert "outside" in outside


async def test_a_servers_own_kind_of_result_may_be_returned(tmp_path: Path) -> None:
    from mcp_types import CallToolResult, ImageContent, TextContent

    results = {
        "text": CallToolResult(content=[TextContent(type="text", text="hello")]),
        "image": CallToolResult(
            content=[ImageContent(type="image", data="AAAA", mime_type="image/png")]
        ),
        "error": CallToolResult(content=[TextContent(type="text", text="no")], is_error=True),
    }

    @tool(mutating=False)
    def give(what: str) -> Any:
        """One of them."""
        return results[what]

    async with Toolrest(tmp_path, tools=[give]) as rest:
        text = await rest.call("give", {"what": "text"})
        image = await rest.call("give", {"what": "image"})
        error = await rest.call("give", {"what": "error"})
    assert (text.text, text.success) == ("hello", True)
    assert [part.url for part in image.content] == ["data:image/png;base64,AAAA"]  # type: ignore[union-attr]
    assert error.failure is not None
    assert (error.text, error.failure.kind) == ("no", "execution_failed")


async def test_the_pool_is_the_sessions(tmp_path: Path) -> None:
    pools: list[Any] = []

    @tool(mutating=False)
    def look(ctx: Context) -> ToolOutput:
        """Take the pool."""
        pools.append(ctx.mcp)
        return ToolOutput.error("an error of the tool's own")

    servers = {"mcp_servers.fs.command": "never-started"}
    for _ in range(2):
        async with Toolrest(tmp_path, tools=[look], settings=servers) as rest:
            output = await rest.call("look")
            again = await rest.call("look", {"x": 1})
            assert output.failure is not None
            assert again.text == "an error of the tool's own"
    assert pools[0] is pools[1] is not None
    assert pools[2] is pools[3]
    assert pools[0] is not pools[2]


async def test_without_a_pool_it_says_so(tmp_path: Path) -> None:
    @tool(mutating=False)
    def look(ctx: Context) -> str:
        """Take the pool."""
        try:
            return str(ctx.mcp)
        except RespondToModel as error:
            return f"refused: {error.message}"

    async with Toolrest(tmp_path, tools=[look]) as rest:
        assert (await rest.call("look")).text == "refused: MCP pool is not initialized"
