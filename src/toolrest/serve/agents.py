"""An `Agent` for others: a tool of any MCP client, or the agent of an editor."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from toolrest.agent.rest import Toolrest
from toolrest.config.loader import default_config
from toolrest.serve.stdio import editor_over_stdio, tools_over_stdio

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.front.agent import Agent
    from toolrest.config import Config
    from toolrest.gate.approval.approvals import OnAsk
    from toolrest.serve.acp.agent import EditorAgent, SessionRequest
    from toolrest.serve.server import ToolServer


def serve_mcp(agent: Agent[Any]) -> None:
    """Serve an agent over standard input and output, as one tool of the MCP client.

    What its calls need approved is asked through the client, unless the agent has an `on_ask`.
    """
    asyncio.run(tools_over_stdio(tool_server(agent)))


def serve_acp(agent: Agent[Any]) -> None:
    """Serve an agent to the editor that started this program (Agent Client Protocol).

    The editor's folder is the workspace, and its user answers approvals. With the agent's `home`
    its sessions can be loaded again.
    """
    asyncio.run(editor_over_stdio(editor_agent(agent)))


def tool_server(agent: Agent[Any]) -> ToolServer:
    """The MCP server of an agent, for a transport of one's own."""
    # The SDK takes half a second to load.
    from toolrest.serve.server import ToolServer

    def open_rest(workspace: str, config: Config, on_ask: OnAsk) -> Toolrest:
        return Toolrest(workspace, tools=[agent], on_ask=on_ask)

    workspace = os.path.realpath(agent.workspace)
    return ToolServer(default_config(workspace=workspace), workspace, open_rest)


def editor_agent(agent: Agent[Any]) -> EditorAgent:
    """The editor's side of an agent, for streams of one's own."""
    # As above.
    from toolrest.serve.acp.agent import EditorAgent

    def open_session(request: SessionRequest) -> Conversation[Any]:
        return agent.open_for_person(request.resume, request.on_ask, request.cwd)

    return EditorAgent(open_session, home=agent.home)
