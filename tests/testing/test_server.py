from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from toolrest.testing import Call, Fail, Say, ScriptedServer, Think
from toolrest.testing.script import Part, Step

PARTS: list[Part] = [Think("hm"), Say("hello"), Call("f", {"a": 1})]
USER = {"role": "user", "content": "hi"}
ASK: dict[str, dict[str, Any]] = {
    "responses": {"model": "m", "input": []},
    "chat/completions": {"model": "m", "messages": [USER]},
    "messages": {"model": "m", "max_tokens": 9, "messages": [USER]},
}


def post(server: ScriptedServer, path: str, body: Any) -> tuple[int, str]:
    headers = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request(f"{server.url}/{path}", data=data, headers=headers)
    try:
        with urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("path", ASK)
def test_one_document_for_clients_that_do_not_stream(path: str) -> None:
    with ScriptedServer([PARTS]) as server:
        status, text = post(server, path, ASK[path])
    document = json.loads(text)
    assert status == 200
    assert "hello" in text
    wanted = {"responses": "output", "chat/completions": "choices", "messages": "content"}[path]
    assert document[wanted]


@pytest.mark.parametrize("path", ASK)
def test_events_for_clients_that_do(path: str) -> None:
    with ScriptedServer([PARTS]) as server:
        status, text = post(server, path, {**ASK[path], "stream": True})
    assert status == 200
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert all(json.loads(event) for event in events if event != "[DONE]")
    assert len(events) > 5


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
BLOCK = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
USING = {"role": "assistant", "content": [BLOCK]}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
ITEM = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}
OUT = {"type": "function_call_output", "call_id": "c", "output": "x"}
TOOL = {"role": "tool", "tool_call_id": "c", "content": "x"}


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("responses", {"input": [ITEM]}),
        ("responses", {"input": [OUT]}),
        ("responses", {"input": [ITEM, OUT, OUT]}),
        ("responses", {"input": [ITEM, {"type": "message", "role": "user"}, OUT]}),
        ("responses", {"input": [ITEM, ITEM, OUT, OUT]}),
        ("chat/completions", {"messages": [USER, CALLING]}),
        ("chat/completions", {"messages": [USER, CALLING, USER, TOOL]}),
        ("chat/completions", {"messages": [USER, TOOL]}),
        ("chat/completions", {"messages": [USER, CALLING, TOOL, TOOL]}),
        ("chat/completions", {"messages": [{"role": "assistant", "content": None}]}),
        ("messages", {"messages": [USER, USING]}),
        ("messages", {"messages": [USER, USING, USER]}),
        ("messages", {"messages": [USER, {"role": "user", "content": [RESULT]}]}),
        ("messages", {"messages": [USER, USING, {"role": "user", "content": [RESULT, RESULT]}]}),
        ("messages", {"messages": [{"role": "user", "content": " "}]}),
        ("messages", {"messages": [USING]}),
        ("messages", {"max_tokens": None}),
    ],
)
def test_what_the_apis_refuse_is_refused(path: str, change: dict[str, Any]) -> None:
    with ScriptedServer(["not used up"]) as server:
        status, text = post(server, path, {**ASK[path], **change})
        assert (status, len(server.refused) > 0) == (400, True)
        assert json.loads(text)["error"]["message"] == server.refused[0]
        assert post(server, path, ASK[path])[0] == 200


def test_faults_keys_and_the_end() -> None:
    script: list[Step] = [Fail(503, "busy", "wait", retry_after=1), "ok"]
    with ScriptedServer(script) as server:
        path = "responses"
        assert post(server, path, ASK[path])[0] == 503
        assert post(server, path, ASK[path])[0] == 200
        status, text = post(server, path, ASK[path])
        assert (status, "script is over: it has 2 replies" in text) == (400, True)
        assert post(server, path, b"{")[0] == 400
        assert post(server, "nowhere", {})[0] == 404
    with ScriptedServer([], key="k") as locked:
        assert post(locked, "responses", ASK["responses"])[0] == 401


def test_a_function_of_the_script_that_fails_is_answered_with_its_words() -> None:
    def broken(request: Any) -> str:
        return str(request["nothing"])

    with ScriptedServer([broken, "ok"]) as server:
        status, text = post(server, "responses", ASK["responses"])
        assert (status, "the script's function failed: KeyError" in text) == (400, True)
        assert server.refused == ["the script's function failed: KeyError: 'nothing'"]
        assert post(server, "responses", ASK["responses"])[0] == 200


async def test_chunks_of_chat_completions_have_all_that_strict_clients_look_for() -> None:
    async with ScriptedServer(["hi"]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "x"}]}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        raw = await reader.readuntil(b"[DONE]")
        writer.close()
    chunks = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
    assert chunks
    for each in chunks:
        assert {"id", "object", "created", "model", "choices"} <= each.keys()
        assert isinstance(each["created"], int)
