"""OpenRouter: the errors of the server behind it, and reasoning in typed parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.agent.conversation.test_retries import Open, opened
from tests.wire.conftest import user
from tests.wire.test_cut_replies import DONE, noting, replies
from tests.wire.test_odd_replies import ask, chunk, chunked, sent
from tests.wire.test_others import refused
from tests.wire.test_wires import PIXEL

from toolrest.wire.model import ModelError

__all__ = ["opened"]


def behind(raw: Any, code: int = 400) -> dict[str, Any]:
    """As OpenRouter passes on what an upstream said."""
    metadata = {"raw": raw, "provider_name": "Anthropic", "is_byok": False}
    error = {"message": "Provider returned error", "code": code, "metadata": metadata}
    return {"error": error, "user_id": "user_x"}


FULL = "prompt is too long: 210000 tokens > 200000 maximum"
BLIND = "This model does not support image input"
THINKING = "messages.1.content.0: Invalid `signature` in `thinking` block"


def as_json(words: str) -> str:
    return json.dumps({"error": {"type": "invalid_request_error", "message": words}})


@pytest.mark.parametrize("raw", [as_json(FULL), FULL, json.loads(as_json(FULL))])
@pytest.mark.parametrize("in_stream", [False, True])
async def test_the_words_of_the_server_behind_it_are_read(raw: Any, in_stream: bool) -> None:
    answer = chunked(sent(chunk({"content": "x"}), behind(raw))) if in_stream else None
    with pytest.raises(ModelError) as caught:
        await ask("chat", answer or refused(400, behind(raw)))
    assert caught.value.kind == "context_window"
    assert f"Anthropic: {FULL}" in caught.value.message
    assert "Provider returned error" not in caught.value.message
    assert caught.value.window == 200_000


async def test_without_words_of_its_own_the_message_stays() -> None:
    nothing: list[Any] = [None, "", {}]
    for raw in nothing:
        with pytest.raises(ModelError, match="Provider returned error"):
            await ask("chat", refused(400, behind(raw)))


async def test_a_full_window_is_summarised(opened: Open) -> None:
    done = chunked(sent(*DONE["chat"]))
    async with replies(done, refused(400, behind(as_json(FULL))), done) as (server, bodies):
        session = opened(server, "chat")
        await session.run("go")
        assert (await session.run("more")).status == "completed"
    assert len(bodies) == 4  # the summary, and the request again


async def test_a_model_without_eyes_is_asked_again_without_images(opened: Open) -> None:
    done = chunked(sent(*DONE["chat"]))
    async with replies(refused(404, behind(BLIND, 404)), done) as (server, bodies):
        session = opened(server, "chat")
        picture = {"type": "input_image", "image_url": PIXEL}
        message = user("look")
        message["content"].append(picture)
        assert (await session.run([message])).text == "done"
    assert [PIXEL in json.dumps(body) for body in bodies] == [True, False]


THOUGHT = [
    {"type": "reasoning.text", "text": "so ", "index": 0, "format": "anthropic-claude-v1"},
    {"type": "reasoning.text", "text": "far", "index": 0, "signature": None},
    {"type": "reasoning.encrypted", "data": "abc", "index": 1, "id": "r1"},
    {"type": "reasoning.text", "index": 0, "signature": "sig", "format": "anthropic-claude-v1"},
]


def thinking() -> bytes:
    function = {"name": "note", "arguments": '{"text":"one"}'}
    call = {"index": 0, "id": "c", "type": "function", "function": function}
    pieces = [chunk({"reasoning_details": [each]}) for each in THOUGHT]
    return chunked(sent(*pieces, chunk({"tool_calls": [call]}, "tool_calls"), b"[DONE]"))


async def test_reasoning_goes_back_in_whole_parts(opened: Open) -> None:
    """They went back as the pieces they came in, and Claude refused its own signature."""
    async with replies(thinking(), chunked(sent(*DONE["chat"]))) as (server, bodies):
        session = opened(server, "chat")
        noting(session)
        assert (await session.run("go")).text == "done"
    (spoken,) = [each for each in bodies[1]["messages"] if each["role"] == "assistant"]
    text = {
        "type": "reasoning.text",
        "text": "so far",
        "index": 0,
        "format": "anthropic-claude-v1",
        "signature": "sig",
    }
    assert spoken["reasoning_details"] == [text, THOUGHT[2]]


async def test_reasoning_that_the_server_behind_it_refuses_is_left_out(opened: Open) -> None:
    no = refused(400, behind(as_json(THINKING)))
    async with replies(thinking(), no, chunked(sent(*DONE["chat"]))) as (server, bodies):
        session = opened(server, "chat")
        noting(session)
        assert (await session.run("go")).text == "done"
    assert ["reasoning_details" in json.dumps(body) for body in bodies] == [False, True, False]
