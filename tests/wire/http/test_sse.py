from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from toolrest.wire.http.sse import Events


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(at)]


def read(chunks: list[bytes]) -> list[bytes]:
    events = Events()
    done = [event for chunk in chunks for event in events.feed(chunk)]
    return done + events.flush()


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), min_size=1), max_size=6
    ),
    st.lists(st.integers(0, 5000)),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_events_survive_any_chunking(texts: list[str], cuts: list[int], end: str) -> None:
    stream = "".join(f"event: x{end}data: {text}{end}{end}" for text in texts).encode()
    assert read(pieces(stream, cuts)) == [text.encode() for text in texts]


@given(st.binary(max_size=300), st.lists(st.integers(0, 300)))
def test_any_bytes_are_read_without_a_fault(data: bytes, cuts: list[int]) -> None:
    assert read(pieces(data, cuts)) == read([data])


def test_what_servers_really_send() -> None:
    stream = (
        b": ping\n\ndata:{}\n\nevent: message\nid: 3\nretry: 5\n"
        b"data: one\ndata: two\n\ndata: [DONE]"
    )
    assert read([stream]) == [b"{}", b"one\ntwo", b"[DONE]"]


def test_a_byte_order_mark_is_one_only_at_the_start() -> None:
    mark = "\ufeff".encode()
    stream = mark + b"data: a\n\n" + mark + b"data: b\n\ndata: c\n\n"
    assert (
        read([stream]) == read([stream[at : at + 1] for at in range(len(stream))]) == [b"a", b"c"]
    )
