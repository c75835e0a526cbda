"""Head and tail: whatever the chunks, the same bytes are kept and all are counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolrest.process.output.head_tail import LIMIT, HeadTail, Piece
from toolrest.process.run import aggregate


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 64))
def test_any_chunking_keeps_the_same(chunks: list[bytes], limit: int) -> None:
    buffer = HeadTail(limit)
    for chunk in chunks:
        buffer.add(chunk)
        assert buffer.piece().kept <= limit
    whole = b"".join(chunks)
    at_once = HeadTail(limit)
    at_once.add(whole)
    piece = buffer.piece()
    assert piece == at_once.piece()
    assert piece.total == len(whole) == buffer.total
    assert whole.startswith(piece.head)
    assert whole.endswith(piece.tail)
    assert piece.omitted == max(0, len(whole) - limit)
    if not piece.omitted:
        assert piece.head + piece.tail == whole


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_draining_starts_anew(first: bytes, second: bytes) -> None:
    buffer = HeadTail(20)
    buffer.add(first)
    assert buffer.drain().total == len(first)
    assert (buffer.total, buffer.omitted, buffer.piece()) == (0, 0, Piece())
    buffer.add(second)
    fresh = HeadTail(20)
    fresh.add(second)
    assert buffer.piece() == fresh.piece()


@given(st.binary(max_size=80), st.integers(0, 40), st.integers(0, 50))
def test_shrinking_counts_what_goes(data: bytes, limit: int, smaller: int) -> None:
    buffer = HeadTail(limit)
    buffer.add(data)
    piece = buffer.piece().shrunk(smaller)
    assert piece.kept == min(smaller, limit, len(data))
    assert piece.total == len(data)
    assert data.startswith(piece.head)
    assert data.endswith(piece.tail)


def test_the_documented_vectors() -> None:
    buffer = HeadTail(10)
    buffer.add(b"0123456789")
    assert buffer.omitted == 0
    buffer.add(b"ab")
    assert buffer.piece() == Piece(b"01234", b"789ab", 2)


def test_one_mebibyte_half_and_half() -> None:
    buffer = HeadTail()
    for _ in range(40):
        buffer.add(b"x" * 65_536)
    piece = buffer.piece()
    assert (len(piece.head), len(piece.tail)) == (LIMIT // 2, LIMIT // 2)
    assert piece.omitted == 40 * 65_536 - LIMIT


def filled(size: int, byte: bytes) -> Piece:
    buffer = HeadTail()
    buffer.add(byte * size)
    return buffer.piece()


def test_two_streams_share_one_limit() -> None:
    third = LIMIT // 3
    small = aggregate(filled(10, b"o"), filled(20, b"e"))
    assert [piece.kept for piece in small] == [10, 20]
    both = aggregate(filled(LIMIT, b"o"), filled(LIMIT, b"e"))
    assert [piece.kept for piece in both] == [third, LIMIT - third]
    assert [piece.omitted for piece in both] == [LIMIT - third, third]
    little_error = aggregate(filled(LIMIT, b"o"), filled(1000, b"e"))
    assert [piece.kept for piece in little_error] == [LIMIT - 1000, 1000]
    little_output = aggregate(filled(1000, b"o"), filled(LIMIT, b"e"))
    assert [piece.kept for piece in little_output] == [1000, LIMIT - 1000]
