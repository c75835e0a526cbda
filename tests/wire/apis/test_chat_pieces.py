"""Arguments in many small pieces: when they are whole, and that this is found without delay."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import assert_effort
from tests.wire.apis.test_chat_deltas import END, calls, chunk, piece, run

from toolrest.wire.apis.chat_calls import Slot, is_object
from toolrest.wire.provider import Profile


@given(
    st.text('{}"\\\\a:1,[] \n', max_size=20)
    | st.dictionaries(st.text('{}"\\\\é', max_size=4), st.text('{}"\\\\x', max_size=6)).map(
        json.dumps
    ),
    st.integers(1, 5),
)
def test_arguments_in_pieces_are_whole_when_all_of_them_are(text: str, size: int) -> None:
    slot = Slot()
    for at in range(0, len(text), size):
        slot.add(text[at : at + size])
    last = len(slot.pieces) > 1 and is_object(slot.pieces[-1])
    assert slot.is_whole == (is_object(text) or last)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"name": "f"}, {"new_id": True}])
def test_long_arguments_are_put_together_without_delay(more: dict[str, Any]) -> None:
    """A file in pieces that each had the name or an id of its own took a minute of processor."""
    text = json.dumps({"b": "x = {a}\n" * 25_000})
    chunks = []
    for at in range(0, len(text), 8):
        ids = {"id": f"c{at}"} if "new_id" in more else {}
        name = "f" if at == 0 else more.get("name")
        chunks.append(chunk(piece(text[at : at + 8], name, index=0, **ids)))

    def read() -> None:
        assert calls(run([*chunks, END], Profile(repair=False))) == [("f", json.loads(text))]

    assert_effort(read, below=80)
