"""ms for grep_files, glob_files and list_dir on 50,000 files, beside bare `rg` and `os.walk`.

The tools' rg runs confined, the other one does not.

In one run, in turns, on the same tree, with the page cache warm: each tool through the whole gate
(as a model's call, audit on), `rg` with the very flags that the tool gives it, reading all that it
prints, and `os.walk` over the whole tree. The limits are 1.3x rg and 2.5x os.walk; on a small tree
15 ms more than rg. The median is of the differences in each round, since a busy machine is busy
with both.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from toolrest import Toolrest
from toolrest.tools.files.ripgrep import find_rg

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
FOLDERS, FILES = 500, 100
MORE = 15.0
"""ms that a search of a small tree may take longer than bare rg."""


def build(root: Path) -> None:
    """500 folders in two levels, 100 files in each; one in fifty holds the needle."""
    for number in range(FOLDERS):
        folder = root / f"pkg{number // 25:02}" / f"mod{number:03}"
        folder.mkdir(parents=True)
        for at in range(FILES):
            hit = "needle = 1\n" if (number * FILES + at) % 50 == 0 else ""
            body = f"def f{at}(x):\n    return x + {at}\n\n\n" * 8
            (folder / f"file{at:02}.py").write_text(body + hit)


def rg(root: Path, *flags: str) -> Callable[[], Awaitable[None]]:
    program = find_rg()
    assert program is not None
    same = ["--no-config", "--max-filesize=100000000", "--null", "--color=never"]
    argv = [program, *same, "--sortr=modified", "--no-messages", *flags]

    async def run() -> None:
        done = subprocess.run([*argv, "--", str(root)], capture_output=True, check=False)
        assert done.returncode in (0, 1)

    return run


def tool(rest: Toolrest, name: str, **arguments: object) -> Callable[[], Awaitable[None]]:
    number = 0

    async def run() -> None:
        nonlocal number
        number += 1  # an unknown field, so that no two calls are the same and a loop
        output = await rest.call(name, {**arguments, "round": number})
        assert output.failure is None, output.text

    return run


def walk(root: Path) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        assert sum(len(files) for _, _, files in os.walk(root)) == FOLDERS * FILES

    return run


async def timed(work: Callable[[], Awaitable[None]]) -> float:
    start = time.perf_counter()
    await work()
    return (time.perf_counter() - start) * 1000


async def measure(ways: dict[str, Callable[[], Awaitable[None]]]) -> dict[str, float]:
    seen: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(ROUNDS + 2):
        for way, work in ways.items():
            took = await timed(work)
            if number >= 2:
                seen[way].append(took)
    # The machine may be busy with other things, and those only ever add.
    return {way: min(times) for way, times in seen.items()}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        os.environ["TOOLREST_HOME"] = home
        root = Path(os.path.realpath(folder))
        build(root)
        async with Toolrest(root, home=os.environ["TOOLREST_HOME"]) as rest:
            files = {"output_mode": "files", "limit": 2000}
            pairs = {
                "grep_files, 1,000 of 50,000 match": (
                    tool(rest, "grep_files", pattern="needle", **files),
                    rg(root, "--files-with-matches", "--regexp=needle"),
                    1.3,
                ),
                "grep_files, none matches": (
                    tool(rest, "grep_files", pattern="nowhere"),
                    rg(root, "--files-with-matches", "--regexp=nowhere"),
                    1.3,
                ),
                "grep_files, the lines": (
                    tool(rest, "grep_files", pattern="needle", limit=2000, output_mode="content"),
                    rg(root, "--line-number", "--with-filename", "--regexp=needle"),
                    1.3,
                ),
                "glob_files, all match": (
                    tool(rest, "glob_files", pattern="*.py"),
                    rg(root, "--files", "--glob=*.py"),
                    1.3,
                ),
                "list_dir, all walked, the last page": (
                    tool(rest, "list_dir", dir_path=".", depth=9, offset=FOLDERS * FILES),
                    walk(root),
                    2.5,
                ),
                "list_dir, all 50,000 in one output": (
                    tool(rest, "list_dir", dir_path=".", depth=9, limit=100_000),
                    walk(root),
                    2.5,
                ),
                "list_dir, the first page": (
                    tool(rest, "list_dir", dir_path=".", depth=9),
                    walk(root),
                    2.5,
                ),
            }
            print(f"{'':<36} {'ours':>8} {'theirs':>8}   ratio  limit   (ms, best of {ROUNDS})")
            for name, (ours, theirs, limit) in pairs.items():
                got = await measure({"ours": ours, "theirs": theirs})
                ratio = got["ours"] / got["theirs"]
                verdict = "ok" if ratio <= limit else "OVER"
                times = f"{got['ours']:8.1f} {got['theirs']:8.1f}"
                print(f"{name:<36} {times} {ratio:6.2f}x  {limit}x  {verdict}")
        await small_tree(root / "pkg00" / "mod000")


async def small_tree(root: Path) -> None:
    async with Toolrest(root, home=os.environ["TOOLREST_HOME"]) as rest:
        ours = tool(rest, "grep_files", pattern="needle")
        theirs = rg(root, "--files-with-matches", "--regexp=needle")
        await measure({"ours": ours})
        more = []
        for _ in range(ROUNDS * 3):
            got = [await timed(way) for way in (ours, theirs)]
            more.append(got[0] - got[1])
        low, median = min(more), statistics.median(more)
        verdict = "ok" if median <= MORE else "OVER"
        print(f"grep_files, {FILES} files: {median:+.1f} ms over rg, best {low:+.1f}", end="")
        print(f"   limit {MORE:+.0f}  {verdict}")


if __name__ == "__main__":
    asyncio.run(main())
