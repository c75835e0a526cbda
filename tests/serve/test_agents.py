"""An agent of one's own, served by a script: a tool for an MCP client, the agent of an editor."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from acp import spawn_agent_process
from acp.helpers import text_block
from acp.schema import AllowedOutcome, RequestPermissionResponse
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from toolrest import Agent, tool
from toolrest.serve import serve_acp, serve_mcp
from toolrest.testing import Call, ScriptedModel

@tool(mutating=True)
def pay(amount: int) -> str:
    "Pay an invoice."
    open("paid", "w").write(str(amount))
    return f"paid {amount}"

agent = Agent(
    ScriptedModel([Call("pay", {"amount": 7}), "It is paid."]),
    tools=[pay], name="clerk", description="Pays invoices.",
)
{"mcp": serve_mcp, "acp": serve_acp}[sys.argv[1]](agent)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "served.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("approves", [True, False])
async def test_an_agent_is_a_tool_of_an_mcp_client(program: Path, approves: bool) -> None:
    import mcp_types as types

    asked: list[str] = []

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        if not approves:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    server = StdioServerParameters(
        command=sys.executable,
        args=[str(program), "mcp"],
        env=dict(os.environ),
        cwd=program.parent,
    )
    async with Client(stdio_client(server), elicitation_callback=answer) as client:
        listed = await client.list_tools()
        assert [(found.name, found.description) for found in listed.tools] == [
            ("clerk", "Pays invoices.")
        ]
        result = await client.call_tool("clerk", {"prompt": "Pay 7."})
    assert result.content[0].text == "It is paid."  # type: ignore[union-attr]
    assert len(asked) == 1
    assert "pay" in asked[0]
    assert (program.parent / "paid").exists() is approves


class Editor:
    """Keeps the text that it is shown, and approves."""

    def __init__(self) -> None:
        self.text = ""
        self.asked: list[str] = []

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if update.session_update == "agent_message_chunk":
            self.text += update.content.text

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call.title)
        chosen = AllowedOutcome(outcome="selected", option_id="approved")
        return RequestPermissionResponse(outcome=chosen)

    def on_connect(self, conn: Any) -> None:
        pass


async def test_an_agent_is_the_agent_of_an_editor(program: Path) -> None:
    editor = Editor()
    async with spawn_agent_process(
        editor,  # type: ignore[arg-type]
        sys.executable,
        str(program),
        "acp",
        env=dict(os.environ),
        cwd=program.parent,
    ) as (editors_side, _):
        await editors_side.initialize(protocol_version=1)
        session = await editors_side.new_session(cwd=str(program.parent), mcp_servers=[])
        done = await editors_side.prompt(
            session_id=session.session_id, prompt=[text_block("Pay 7.")]
        )
    assert done.stop_reason == "end_turn"
    assert editor.text == "It is paid."
    assert len(editor.asked) == 1
    assert (program.parent / "paid").read_text() == "7"
