"""A journal that was cut at any byte resumes as a conversation that every wire takes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from toolrest import ConfigError
from toolrest.agent.history.compaction import PREFIX
from toolrest.agent.history.history import History, interrupted_item, message, output_item
from toolrest.agent.history.journal import SessionJournal
from toolrest.agent.history.rollout import read_rollout
from toolrest.secret import SafeUrl
from toolrest.testing.checks import problems
from toolrest.wire.items.pairing import call_id_of, is_call
from toolrest.wire.model import ModelRequest
from toolrest.wire.provider import Provider
from toolrest.wire.providers import client_for

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
SIGNED = {"summary": [{"type": "summary_text", "text": "hm"}], "anthropic": {"signature": "s"}}
PLAIN = {
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "é"}],
    "chat": {"field": "x"},
}


def call(number: int, kind: str = "function_call") -> dict[str, Any]:
    given = {"input": "*** Begin"} if kind == "custom_tool_call" else {"arguments": '{"a":"ü"}'}
    return {"type": kind, "name": "f", "call_id": f"c{number}", **given}


def output(number: int, content: Any = "ok", kind: str = "function_call") -> dict[str, Any]:
    return output_item(call(number, kind), "") | {"output": content}


OPENING = [message("developer", "rules"), message("user", "<environment_context>")]
TURNS: list[dict[str, Any]] = [
    *OPENING,
    message("user", "first", IMAGE),
    {"type": "reasoning", **SIGNED},
    message("assistant", "both"),
    call(1),
    call(2, "custom_tool_call"),
    output(1, [{"type": "input_text", "text": "seen"}, IMAGE]),
    output(2, kind="custom_tool_call"),
    {"type": "reasoning", **PLAIN},
    call(3),
    output(3) | {"failed": True},
    message("assistant", "done"),
    message("user", "second"),
    {"type": "reasoning", **SIGNED},
    call(4),
    message("user", "<turn_aborted>"),
    output(4),
]


def written(folder: Path) -> bytes:
    """A rollout of two turns, a summary, and another turn."""
    journal = SessionJournal()
    journal.create(str(folder), "a-session", lambda now: {"id": "a-session", "timestamp": now})
    for item in TURNS:
        journal.write("response_item", item)
    summary = [*OPENING, message("user", "first"), message("user", f"{PREFIX}\nshort")]
    journal.write("compacted", {"message": "short", "replacement_history": summary})
    for item in (call(5), call(6), output(6), output(5), message("assistant", "end")):
        journal.write("response_item", item)
    journal.close()
    assert journal.path is not None
    return Path(journal.path).read_bytes()


def resumed(path: Path) -> list[dict[str, Any]]:
    """What the next request of a resumed session is made of."""
    rollout = read_rollout(str(path))
    history = History(rollout.items)
    for open_call in history.open_calls():
        history.append(interrupted_item(open_call))
    assert not history.open_calls()
    history.never_again(rollout.call_ids)
    for item in rollout.items:
        assert not is_call(item) or history.unused_id(call_id_of(item)) != call_id_of(item)
    return [*history.items, message("user", "go on")]


def test_every_cut_is_a_conversation(toolrest_home: Path, tmp_path: Path, full: bool) -> None:
    whole = written(toolrest_home)
    models = [
        client_for(Provider("p", SafeUrl("http://127.0.0.1:9/v1"), wire), "m")
        for wire in ("responses", "chat", "anthropic")
    ]
    first = whole.index(b"\n")
    cuts = range(first + 1, len(whole) + 1)
    lines = [at + 1 + offset for at in cuts if whole[at - 1 : at] == b"\n" for offset in (-2, 0, 9)]
    chosen = cuts if full else sorted({*lines, *random.Random(20).sample(cuts, 300)})
    path = tmp_path / "rollout.jsonl"
    for cut in chosen:
        path.write_bytes(whole[:cut])
        items = resumed(path)
        for model in models:
            body = json.loads(model.body(ModelRequest("m", items)))
            assert list(problems(model.wire, body)) == [], (cut, model.wire)


def test_a_cut_in_the_first_line_is_no_session(toolrest_home: Path, tmp_path: Path) -> None:
    whole = written(toolrest_home)
    path = tmp_path / "rollout.jsonl"
    for cut in range(whole.index(b"\n") - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ConfigError, match="not a session"):
            read_rollout(str(path))
