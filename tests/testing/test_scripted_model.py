from __future__ import annotations

import pytest

from toolrest.testing import (
    Call,
    Cut,
    Fail,
    Freeform,
    LocalShell,
    Reply,
    Say,
    ScriptedModel,
    Think,
    context_full,
)
from toolrest.wire.model import (
    Completed,
    ItemDone,
    ItemStarted,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    TextDelta,
    Usage,
    retry_delay,
)


async def play(model: Model, request: ModelRequest | None = None) -> list[ModelEvent]:
    request = request or ModelRequest("m", [])
    return [event async for event in model.stream(request)]


async def test_a_reply_becomes_items_in_order() -> None:
    model = ScriptedModel(
        [
            [
                Think("hmm"),
                Say("hello"),
                Call("read_file", {"path": "a"}),
                Freeform("apply_patch", "*** Begin Patch"),
                LocalShell(["ls", "-l"]),
            ],
            "done",
        ]
    )
    events = await play(model)
    items = [event.item for event in events if isinstance(event, ItemDone)]
    assert [item["type"] for item in items] == [
        "reasoning",
        "message",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
    ]
    assert items[2]["arguments"] == '{"path": "a"}'
    assert len({item["call_id"] for item in items[2:]}) == 3
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "hello"
    assert isinstance(events[-1], Completed)
    assert isinstance((await play(model))[-1], Completed)


async def test_requests_are_kept_as_they_were() -> None:
    model = ScriptedModel(["one", "two"])
    items = [{"type": "message", "role": "user", "content": []}]
    await play(model, ModelRequest("m", items, instructions="be brief"))
    items.append({"type": "other", "role": "user", "content": []})
    assert len(model.requests[0].items) == 1
    assert model.requests[0].instructions == "be brief"


async def test_a_script_can_look_at_the_request() -> None:
    def echo(request: ModelRequest) -> str:
        return f"you asked {request.model}"

    events = await play(ScriptedModel([echo]), ModelRequest("gpt-x", []))
    said = [event.item["content"][0]["text"] for event in events if isinstance(event, ItemDone)]
    assert said == ["you asked gpt-x"]


async def test_usage_and_end_turn_are_the_scripts() -> None:
    usage = Usage(input=5, output=2, total=7)
    events = await play(ScriptedModel([Reply([Say("x")], usage=usage, end_turn=False)]))
    assert events[-1] == Completed("resp_1", usage, end_turn=False)


@pytest.mark.parametrize(
    ("fault", "kind", "retryable"),
    [
        (Cut(), "stream", True),
        (context_full(), "context_window", False),
        (Fail(500), "server", True),
        (Fail(429, "rate_limit_exceeded", retry_after=2), "rate_limit", True),
        (Fail(400, "bad"), "invalid_request", False),
        (Fail(503, "server_is_overloaded"), "overloaded", False),
    ],
)
async def test_faults_are_model_errors(fault: Fail | Cut, kind: str, *, retryable: bool) -> None:
    model = ScriptedModel([[Call("x"), fault], "fine"])
    stream = aiter(model.stream(ModelRequest("m", [])))
    assert isinstance(await anext(stream), ItemStarted)
    assert isinstance(await anext(stream), ItemDone)
    with pytest.raises(ModelError) as caught:
        await anext(stream)
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
    assert isinstance((await play(model))[-1], Completed)


async def test_the_end_of_the_script_is_an_error_that_says_so() -> None:
    model = ScriptedModel(["only"])
    await play(model)
    with pytest.raises(ModelError, match="script is over: it has 1 replies"):
        await play(model)


def test_delays_double_and_the_server_decides() -> None:
    for _ in range(2_000):  # every spread of the 256, also the two that land on a limit
        assert retry_delay(1) == pytest.approx(0.2, rel=0.1 + 1e-9)
        assert retry_delay(3) == pytest.approx(0.8, rel=0.1 + 1e-9)
    assert retry_delay(1, ModelError("rate_limit", "slow", retry_after=7)) == 7
