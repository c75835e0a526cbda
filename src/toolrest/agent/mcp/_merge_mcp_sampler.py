"""A completion for an MCP server, by the session's own model: no tools, no history of ours."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from toolrest.agent.history.history import message, message_text
from toolrest.items import JSONObject
from toolrest.mcp.errors import McpError
from toolrest.wire.model import Completed, ItemDone, ModelError, ModelRequest

if TYPE_CHECKING:
    from toolrest.agent.mcp.server_requests import Sampler
    from toolrest.agent.conversation.session import AgentSession

MOST_TOKENS = 4096


def sampler(session: AgentSession) -> Sampler:
    """What `Toolrest.sample_with` takes; its tokens are counted with the session's."""

    async def sample(server: str, params: JSONObject) -> JSONObject:
        wanted = params.get("maxTokens")
        most = min(wanted, MOST_TOKENS) if isinstance(wanted, int) else MOST_TOKENS
        request = ModelRequest(
            model=session.model.name,
            items=_items(params.get("messages")),
            instructions=str(params.get("systemPrompt") or ""),
            session_id=session.thread_id,
            max_output_tokens=max(most, 1),
        )
        text = await _text(session, request)
        content = {"type": "text", "text": text}
        return {"role": "assistant", "content": content, "model": session.model.name}

    return sample


async def _text(session: AgentSession, request: ModelRequest) -> str:
    texts: list[str] = []
    try:
        async with aclosing(cast(Any, session.model.stream(request))) as stream:
            async for event in stream:
                if isinstance(event, ItemDone) and event.item.get("type") == "message":
                    texts.append(message_text(event.item))
                elif isinstance(event, Completed):
                    session.count(event.usage)
    except ModelError as error:
        raise McpError(f"the model gave no answer: {error.message}") from None
    return "".join(texts)


def _items(messages: Any) -> list[JSONObject]:
    """The server's messages; only words are passed on."""
    found: list[JSONObject] = []
    for each in messages if isinstance(messages, list) else []:
        content = each.get("content") if isinstance(each, dict) else None
        blocks = content if isinstance(content, list) else [content]
        words = [
            b["text"] for b in blocks if isinstance(b, dict) and isinstance(b.get("text"), str)
        ]
        role = "assistant" if isinstance(each, dict) and each.get("role") == "assistant" else "user"
        if words:
            found.append(message(role, *words))
    if not found:
        raise McpError("there are no words in what the server wants completed")
    return found
