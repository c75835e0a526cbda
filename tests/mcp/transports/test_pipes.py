"""Lines over a pipe, however they are cut into pieces."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.mcp.transports import stdio as pipes
from toolrest.mcp.transports.stdio import Closed, LineReader, LineWriter

LINES = st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b" ")), max_size=8)


@given(LINES, st.lists(st.integers(1, 20), min_size=1, max_size=20))
def test_lines_survive_any_cutting(lines: list[bytes], sizes: list[int]) -> None:
    async def work() -> list[bytes]:
        reading, writing = os.pipe()
        reader = LineReader(reading)
        data = b"".join(line + b"\n" for line in lines)
        found: list[bytes] = []
        for size in sizes:
            os.write(writing, data[:size])
            data = data[size:]
            await asyncio.sleep(0)
        os.write(writing, data)
        os.close(writing)
        try:
            while True:
                found.append(await reader.line())
        except Closed:
            return found

    assert asyncio.run(work()) == lines


async def test_a_full_pipe_waits_for_its_reader() -> None:
    reading, writing = os.pipe()
    reader, writer = LineReader(reading), LineWriter(writing)
    line = b"x" * 1_000_000 + b"\n"
    sent = asyncio.gather(*(writer.write(line) for _ in range(3)))
    for _ in range(3):
        assert await reader.line() == line[:-1]
    await sent
    reader.close()
    with pytest.raises(Closed):
        await writer.write(line)
    writer.close()


async def test_closing_wakes_whoever_waits() -> None:
    reading, writing = os.pipe()
    reader = LineReader(reading)
    waiting = asyncio.ensure_future(reader.line())
    await asyncio.sleep(0.01)
    reader.close()
    with pytest.raises(Closed):
        await waiting
    os.close(writing)


async def test_a_line_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "LONGEST_LINE", 100_000)
    reading, writing = os.pipe()
    reader, writer = LineReader(reading), LineWriter(writing)
    endless = asyncio.ensure_future(writer.write(b"x" * 10_000_000))
    with pytest.raises(Closed):
        await reader.line()
    with pytest.raises(Closed):
        await endless
