"""Requests of MCP servers to the user, through the approver: elicitation and sampling.

A completion for a server is made by the session's own model, without tools and history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from toolrest.agent.history.history import message, message_text
from toolrest.errors import ToolCallError
from toolrest.gate.approval.request import ApprovalRequest, Review
from toolrest.items import JSONObject
from toolrest.mcp.errors import McpError
from toolrest.policy.effects import Effects, Risk
from toolrest.policy.terminal_safe import display_safe
from toolrest.wire.model import Completed, ItemDone, ModelError, ModelRequest

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.gate.session import Ground, Sampler
    from toolrest.mcp.servers import Server

_LONGEST = 100_000
"""A longer request is denied without asking: the approver could not read it."""


class ServerQuestions:
    """Elicitation and sampling; both are denied without an approver and in the mode `never`."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    async def elicit(self, server: Server, message: str, schema: JSONObject) -> JSONObject:
        """Accept with the values that an approval implies; decline where it implies none."""
        title = f"Say yes to the MCP server {server.name}?"
        review = await self._ask("mcp_elicitation", server, title, f"asks: {message}", schema)
        if review is None:
            return {"action": "decline"}
        if "url" in schema and "properties" not in schema:
            return {"action": "accept"}
        content = filled(schema, review.note)
        return {"action": "decline"} if content is None else _accepted(content)

    async def sample(self, server: Server, params: JSONObject) -> JSONObject:
        """A completion for a server, if the user approves and there is a model."""
        sampler = self._ground.sampler.value
        if sampler is None:
            raise McpError("no model is available to servers in this session")
        wish = "wants a completion of the model"
        title = f"Let the MCP server {server.name} use the model?"
        if await self._ask("mcp_sampling", server, title, wish, params) is None:
            raise McpError("the user did not approve the server's use of the model")
        return await sampler(server.name, params)

    async def _ask(
        self, what: str, server: Server, title: str, wish: str, more: Any
    ) -> Review | None:
        ground = self._ground
        if ground.approval_policy == "never":
            return None
        text = json.dumps(more, ensure_ascii=False)
        if len(text) + len(wish) > _LONGEST:
            return None
        request = ApprovalRequest(
            f"mcp-{server.name}",
            what,
            ground.redactor.redact(text),
            display_safe(f"the MCP server {server.name} {wish}", keep_newlines=True),
            Risk.EXECUTE,
            Effects(calls=(f"mcp__{server.name}",)),
            title=title,
        )
        try:
            return await ground.approvals.ask(request, "")
        except ToolCallError:
            return None


def _accepted(content: JSONObject) -> JSONObject:
    return {"action": "accept", "content": content}


def filled(schema: Mapping[str, Any], note: str = "") -> JSONObject | None:
    """The values that an approval implies: defaults, true, the only choice; None if some lack."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    content: JSONObject = {}
    for name, wanted in properties.items():
        value = _by_approval(wanted if isinstance(wanted, Mapping) else {}, note)
        if value is not None:
            content[name] = value
        elif name in needed:
            return None
    return content


def _by_approval(wanted: Mapping[str, Any], note: str) -> Any:
    if wanted.get("default") is not None:
        return wanted["default"]
    if wanted.get("type") == "boolean":
        return True
    choices = wanted.get("enum")
    if isinstance(choices, list) and len(choices) == 1:
        return choices[0]
    if wanted.get("type") == "string" and note and not choices:
        return note
    return None


MOST_TOKENS = 4096


def sampler(conversation: Conversation) -> Sampler:
    """The sampler for `Toolrest.sample_with`; its tokens are counted with the session's."""

    async def sample(server: str, params: JSONObject) -> JSONObject:
        wanted = params.get("maxTokens")
        most = min(wanted, MOST_TOKENS) if isinstance(wanted, int) else MOST_TOKENS
        request = ModelRequest(
            model=conversation.model.name,
            items=_items(params.get("messages")),
            instructions=str(params.get("systemPrompt") or ""),
            session_id=conversation.id,
            max_output_tokens=max(most, 1),
        )
        text = await _text(conversation, request)
        content = {"type": "text", "text": text}
        return {"role": "assistant", "content": content, "model": conversation.model.name}

    return sample


async def _text(conversation: Conversation, request: ModelRequest) -> str:
    texts: list[str] = []
    try:
        async with aclosing(cast(Any, conversation.model.stream(request))) as stream:
            async for event in stream:
                if isinstance(event, ItemDone) and event.item.get("type") == "message":
                    texts.append(message_text(event.item))
                elif isinstance(event, Completed):
                    conversation.count(event.usage)
    except ModelError as error:
        raise McpError(f"the model gave no answer: {error.message}") from None
    return "".join(texts)


def _items(messages: Any) -> list[JSONObject]:
    """The server's messages; only their text is passed on."""
    found: list[JSONObject] = []
    for each in messages if isinstance(messages, list) else []:
        content = each.get("content") if isinstance(each, dict) else None
        blocks = content if isinstance(content, list) else [content]
        texts = [
            b["text"] for b in blocks if isinstance(b, dict) and isinstance(b.get("text"), str)
        ]
        role = "assistant" if isinstance(each, dict) and each.get("role") == "assistant" else "user"
        if texts:
            found.append(message(role, *texts))
    if not found:
        raise McpError("the server's request holds no text")
    return found
