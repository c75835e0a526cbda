"""Files of very many short lines: no call takes many times the memory of the file."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.tools.files.test_edit_file import Call

LINES = 500_000
PATCH = "*** Begin Patch\n*** Update File: t.txt\n@@\n{}*** End Patch"
CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "edit": (
        "edit_file",
        {"path": "t.txt", "old_string": "NEEDLE", "new_string": "found"},
        "@@ -500000,3 +500000,3 @@\n a\n-NEEDLE\n+found\n a\n```",
    ),
    "an edit that is not there": (
        "edit_file",
        {"path": "t.txt", "old_string": "NEEDLE\nzzz", "new_string": "found"},
        "the file has more than 200,000 lines",
    ),
    "patch": ("apply_patch", {"input": PATCH.format("-NEEDLE\n+found\n")}, "M t.txt\n"),
    "a patch that does not fit": (
        "apply_patch",
        {"input": PATCH.format("-NEEDLE\n-zzz\n+found\n")},
        "the file has more than 200,000 lines",
    ),
    "diff": (
        "apply_patch",
        {"patch": "--- a/t.txt\n+++ b/t.txt\n@@ -500001 +500001 @@\n-NEEDLE\n+found\n"},
        "M t.txt\n",
    ),
    "every one": (
        "edit_file",
        {"path": "t.txt", "old_string": "E", "new_string": "e", "replace_all": True},
        "-NEEDLE\n+NeeDLe\n",
    ),
    "every line": (
        "edit_file",
        {"path": "t.txt", "old_string": "\n", "new_string": ";", "replace_all": True},
        "occurs more than 1,000,000 times",
    ),
    "write": ("write_file", {"path": "t.txt", "content": "b\n" * LINES}, "Replaced"),
    "delete": (
        "apply_patch",
        {"input": "*** Begin Patch\n*** Delete File: t.txt\n*** End Patch"},
        "D t.txt\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CALLS)
async def test_memory_is_a_few_times_the_file(work: Path, call: Call, case: str) -> None:
    name, arguments, expected = CALLS[case]
    path = work / "t.txt"
    path.write_text("a\nNEEDLE\na\n")
    await call(name, **arguments)  # loads what is loaded with the first call
    path.write_text("a\n" * LINES + "NEEDLE\n" + "a\n" * LINES)
    gc.collect()
    tracemalloc.start()
    try:
        output = await call(name, **arguments)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert expected in output.text
    # The arguments themselves, as JSON and read again, are a few megabytes for a write.
    assert most <= 6 * (4 * LINES + 7) + (4 << 20) * (1 + (case == "write")), f"{most:,}"


async def test_a_change_of_very_many_lines_is_counted(work: Path, call: Call) -> None:
    (work / "t.txt").write_text("a\n" * 300_000)
    output = await call(
        "edit_file", path="t.txt", old_string="a\n", new_string="b\n", replace_all=True
    )
    assert "\\ Too many lines to list: 300,000 before, 300,000 after\n" in output.text


@pytest.mark.slow
async def test_the_event_loop_goes_on_while_a_large_file_is_written(work: Path, call: Call) -> None:
    """Failed before: its arguments were redacted in one search, on the loop."""
    content = "a line of a log, with = signs and 12345\n" * 400_000
    await call("write_file", path="t.txt", content="x")
    shares: list[float] = []
    while len(shares) < 3:  # a shared machine may stand still, but not each time
        writing = asyncio.ensure_future(call("write_file", path="t.txt", content=content))
        began = last = time.monotonic()
        longest = 0.0
        while not writing.done():
            await asyncio.sleep(0)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        assert "Replaced" in (await writing).text
        shares.append(longest / (last - began))
        if shares[-1] < 0.2:
            return
    raise AssertionError(f"the longest piece took {shares} of the whole")
