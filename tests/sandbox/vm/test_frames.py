"""The language of host and machine: whatever comes, and in whatever pieces."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.sandbox.vm.programs import frames
from toolrest.sandbox.vm.programs.frames import BadFrame, Frame, Reader, pack

LENGTHS = {frames.EXIT: 1, frames.OPEN: 0, frames.CLOSED: 0, frames.CREDIT: 4}
STREAMS = st.integers(0, 2**32 - 1)


@st.composite
def sent(draw: st.DrawFn) -> Frame:
    kind = draw(st.sampled_from(sorted(frames.FROM_MACHINE)))
    length = LENGTHS.get(kind)
    least, most = (0, 300) if length is None else (length, length)
    return kind, draw(STREAMS), draw(st.binary(min_size=least, max_size=most))


@pytest.mark.slow
@given(st.lists(sent(), max_size=8), st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_frames_come_out_as_they_went_in(wanted: list[Frame], cuts: list[int]) -> None:
    data = b"".join(pack(*frame) for frame in wanted)
    reader = Reader(frames.FROM_MACHINE)
    found: list[Frame] = []
    at = 0
    while at < len(data):
        length = cuts[at % len(cuts)]
        found += reader.feed(data[at : at + length])
        at += length
    assert found == wanted


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_bytes_of_a_broken_machine_are_frames_or_an_error(pieces: list[bytes]) -> None:
    reader = Reader(frames.FROM_MACHINE)
    with contextlib.suppress(BadFrame):
        for piece in pieces:
            for kind, _, payload in reader.feed(piece):
                assert kind in frames.FROM_MACHINE
                assert len(payload) <= frames.MOST


@pytest.mark.parametrize(
    "head",
    [
        struct.pack("<IBI", frames.MOST + 1, frames.OUT, 1),
        struct.pack("<IBI", 2**32 - 1, frames.ERR, 1),
        struct.pack("<IBI", 2, frames.EXIT, 1),
        struct.pack("<IBI", 3, frames.CREDIT, 1),
        struct.pack("<IBI", 0, frames.START, 1),
        struct.pack("<IBI", 0, 99, 1),
    ],
    ids=["longer", "longest", "exit", "credit", "of the host", "unknown"],
)
def test_a_head_that_is_not_allowed_is_refused_before_its_payload(head: bytes) -> None:
    with pytest.raises(BadFrame):
        list(Reader(frames.FROM_MACHINE).feed(head))
