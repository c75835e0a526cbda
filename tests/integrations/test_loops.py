"""Loops of one's own with the openai and anthropic packages: their objects pass the gate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from toolrest import ApprovalRequest, Toolrest


def chat(arguments: dict[str, Any]) -> ChatCompletion:
    function = {"name": "exec_command", "arguments": json.dumps(arguments)}
    calls = [{"id": "c1", "type": "function", "function": function}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message, "logprobs": None}
    common = {"id": "r1", "created": 0, "model": "m", "object": "chat.completion"}
    return ChatCompletion.model_validate({**common, "choices": [choice]})


def responses(arguments: dict[str, Any]) -> Response:
    text = json.dumps(arguments)
    call = {"type": "function_call", "call_id": "c1", "name": "exec_command", "arguments": text}
    common = {"id": "r1", "created_at": 0, "model": "m", "object": "response"}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return Response.model_validate({**common, **more, "output": [call]})


def anthropic(arguments: dict[str, Any]) -> Message:
    call = {"type": "tool_use", "id": "c1", "name": "exec_command", "input": arguments}
    common = {"id": "r1", "model": "m", "role": "assistant", "type": "message"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return Message.model_validate({**common, "usage": usage, "content": [call]})


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("reply", [chat, responses, anthropic])
async def test_what_a_reply_asks_for(
    reply: Callable[[dict[str, Any]], Any], tmp_path: Path
) -> None:
    """Ordinary commands run in the sandbox; one that leaves it is asked about and not run."""
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    asked: list[ApprovalRequest] = []

    def deny(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    async with Toolrest(workspace, tools=["shell"], on_ask=deny) as rest:
        escape = f'python3 -c \'open("{outside}/escaped", "w")\' 2>/dev/null'
        answer = await rest.answer(reply({"cmd": f"echo in > inside; {escape}; echo finished"}))
        assert "finished" in str(answer)
        assert asked == []
        assert (workspace / "inside").read_text() == "in\n"
        leave = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
        answer = await rest.answer(reply({"cmd": f"touch {outside}/touched", **leave}))
        assert "rejected by user" in str(answer)
        assert [request.leaves for request in asked] == [True]
    assert list(outside.iterdir()) == []
