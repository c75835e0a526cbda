"""`grep_files` and `glob_files`: the documented output, and nothing that is hidden."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.machine import NOBODY, interpreter, packages

from toolrest import Toolrest
from toolrest.items import FunctionCall, ToolOutput
from toolrest.tools.files.glob_files import GlobFiles
from toolrest.tools.files.grep_files import GrepFiles
from toolrest.tools.files.ripgrep import Ripgrep, find_rg

Call = Callable[..., Awaitable[ToolOutput]]


def lay(work: Path, tree: dict[str, str]) -> None:
    """Write files, each one second newer than the one before."""
    for age, (name, text) in enumerate(tree.items()):
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000 + age, 1_700_000_000 + age))


async def test_files_come_newest_first_as_absolute_paths(work: Path, call: Call) -> None:
    lay(work, {"old.py": "needle\n", "sub/new.py": "a needle\n", "other.txt": "hay\n"})
    output = await call("grep_files", pattern="  needle ")
    assert output.text == f"{work}/sub/new.py\n{work}/old.py"
    assert output.success


async def test_include_path_and_limit(work: Path, call: Call) -> None:
    lay(work, {"a.py": "x", "b.txt": "x", "sub/c.py": "x"})
    assert (await call("grep_files", pattern="x", include=" *.txt ")).text == f"{work}/b.txt"
    assert (await call("grep_files", pattern="x", path="sub")).text == f"{work}/sub/c.py"
    assert (await call("grep_files", pattern="x", path="a.py")).text == f"{work}/a.py"
    limited = await call("grep_files", pattern="x", limit=2)
    assert limited.text.split("\n") == [
        f"{work}/sub/c.py",
        f"{work}/b.txt",
        "[toolrest] more results follow; continue with offset 3",
    ]
    assert (await call("grep_files", pattern="x", offset=3)).text == f"{work}/a.py"
    # A glob with a slash is meant from the working directory, wherever the search starts.
    assert (await call("grep_files", pattern="x", include="sub/*.py")).text == f"{work}/sub/c.py"


async def test_no_match_is_an_answer_and_no_error(work: Path, call: Call) -> None:
    lay(work, {"a.py": "x"})
    output = await call("grep_files", pattern="absent")
    assert output.text == "No matches found."
    assert output.success is False
    assert output.failure is None


async def test_documented_errors(work: Path, call: Call) -> None:
    lay(work, {"a.py": "x"})
    rows: list[tuple[dict[str, Any], str]] = [
        ({"pattern": " \n"}, "pattern must not be empty"),
        ({"pattern": "x", "limit": 0}, "limit must be greater than zero"),
        ({"pattern": "x", "offset": 0}, "offset must be a 1-indexed result number"),
        (
            {"pattern": "x", "path": "gone"},
            f"unable to access `{work}/gone`: No such file or directory (os error 2)",
        ),
        ({"pattern": "x\0y"}, "a search cannot hold a NUL character"),
        ({"pattern": "("}, "rg failed: rg: regex parse error"),
        ({"pattern": "x", "include": "{a"}, "rg failed: rg: error parsing glob"),
    ]
    for arguments, words in rows:
        output = await call("grep_files", **arguments)
        assert output.text.startswith(words), arguments
        assert output.failure is not None


async def test_a_pattern_is_never_an_option(work: Path, call: Call) -> None:
    lay(work, {"a.txt": "--files\n", "-b.txt": "--pre=touch ran\n"})
    assert (await call("grep_files", pattern="--files")).text == f"{work}/a.txt"
    assert (await call("grep_files", pattern="--pre=touch ran")).text == f"{work}/-b.txt"
    assert (await call("grep_files", pattern="--", include="-*")).text == f"{work}/-b.txt"


async def test_git_ignored_and_dotted_files_are_left_out(work: Path, call: Call) -> None:
    lay(work, {".git/HEAD": "x", ".gitignore": "build/\n", "build/a": "x", ".dot": "x", "b": "x"})
    assert (await call("grep_files", pattern="x")).text == f"{work}/b"


async def test_content_shows_lines_and_context(work: Path, call: Call) -> None:
    lay(work, {"a.py": "one\nhit\nthree\nfour\nfive\nhit\n", "b.py": "hit"})
    plain = await call("grep_files", pattern="hit", output_mode="content")
    assert plain.text == f"{work}/b.py\n1:hit\n\n{work}/a.py\n2:hit\n6:hit"
    near = await call("grep_files", pattern="hit", output_mode="content", path="a.py", context=1)
    assert near.text == f"{work}/a.py\n1-one\n2:hit\n3-three\n--\n5-five\n6:hit"
    page = await call("grep_files", pattern="hit", output_mode="content", offset=2, limit=1)
    assert page.text == (
        f"{work}/a.py\n2:hit\n[toolrest] more results follow; continue with offset 3"
    )


async def test_count_counts_matching_lines(work: Path, call: Call) -> None:
    lay(work, {"a.py": "x\ny\nx x\n", "b.py": "x"})
    output = await call("grep_files", pattern="x", output_mode="count")
    assert output.text == f"{work}/b.py:1\n{work}/a.py:2"


async def test_long_lines_and_wide_encodings(work: Path, call: Call) -> None:
    lay(work, {"long.txt": "x" * 5000 + "needle\n"})
    (work / "wide.txt").write_bytes("nö\nneedle ü\n".encode("utf-16"))
    output = await call("grep_files", pattern="needle", output_mode="content")
    assert f"{work}/long.txt\n1:{'x' * 500}\n" in output.text + "\n"
    assert f"{work}/wide.txt\n2:needle ü" in output.text


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(st.text("ab \r", max_size=6), max_size=12), st.sampled_from(["a", "ab", "b b"]))
def test_content_finds_the_lines_that_hold_the_text(lines: list[str], needle: str) -> None:
    async def search() -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(os.path.realpath(folder), "f")
            path.write_bytes("\n".join(lines).encode())
            async with Toolrest(path.parent, tools=["all"]) as rest:
                arguments = {"pattern": re.escape(needle), "output_mode": "content"}
                return (await rest.call("grep_files", arguments)).text

    found = re.findall(r"(?m)^(\d+):", asyncio.run(search()))
    assert [int(number) for number in found] == [
        number for number, line in enumerate(lines, 1) if needle in line
    ]


MODES = ("files", "content", "count")


@pytest.mark.parametrize("mode", MODES)
async def test_hidden_files_are_in_no_result(work: Path, mode: str) -> None:
    lay(
        work, {".env": "needle", "sub/.env.local": "needle", "keys/k.pem": "needle", "ok": "needle"}
    )
    (work / "link").symlink_to(work / ".env")
    (work / "keylink").symlink_to(work / "keys")
    os.link(work / "keys/k.pem", work / "hard")
    async with Toolrest(work, settings={"hidden_paths": ["keys/**"]}, tools=["all"]) as rest:

        async def grep(**arguments: Any) -> ToolOutput:
            return await rest.call("grep_files", {"output_mode": mode, **arguments})

        for include in (None, ".env*", "*.pem", "**/k.pem", "hard", "link"):
            output = await grep(pattern="needle", **({"include": include} if include else {}))
            told = output.text.replace(f"{work}/ok", "")
            assert not re.search(r"\.env|keys|pem|hard|link", told), include
        for path in (".env", "link", "keys/k.pem", "keylink/k.pem", "sub/.env.local", "hard"):
            output = await grep(pattern="needle", path=path)
            assert output.failure is not None, path
            assert output.failure.kind == "policy_denied"
        for folder in ("keys", "keylink"):
            output = await grep(pattern="needle", path=folder)
            assert "k.pem" not in output.text
        assert "k.pem" not in (await rest.call("glob_files", {"pattern": "*.pem"})).text
        assert ".env" not in (await rest.call("glob_files", {"pattern": ".env*"})).text


@pytest.mark.slow
async def test_no_swap_shows_what_is_hidden(work: Path, full: bool) -> None:
    lay(work, {"open/f": "needle PUBLIC", "keys/f": "needle SECRET"})
    spot, aside = work / "spot", work / "aside"
    (work / "open").rename(spot)
    (work / "lure").symlink_to(work / "keys")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for old, new in ((spot, aside), (work / "lure", spot), (spot, work / "lure"),
                             (aside, spot)):  # fmt: skip
                os.rename(old, new)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        async with Toolrest(work, settings={"hidden_paths": ["keys/**"]}, tools=["all"]) as rest:
            for number in range(2000 if full else 60):
                arguments = {"pattern": "needle", "output_mode": "content", "number": number}
                text = (await rest.call("grep_files", arguments)).text
                seen.add("PUBLIC" in text)
                assert "SECRET" not in text
    finally:
        over.set()
        swapper.join()
    assert True in seen


async def test_read_roots_narrow_the_results(work: Path) -> None:
    lay(work, {"in/a": "needle", "out/b": "needle"})
    async with Toolrest(
        work / "in", settings={"read_roots": [str(work / "in")]}, tools=["all"]
    ) as rest:
        assert (await rest.call("grep_files", {"pattern": "needle"})).text == f"{work}/in/a"
        outside = await rest.call("grep_files", {"pattern": "needle", "path": str(work)})
        assert outside.failure is not None
        assert outside.failure.kind == "policy_denied"


async def test_files_over_the_size_limit_are_not_searched(work: Path) -> None:
    lay(work, {"small": "needle", "large": "needle" * 100})
    limits = {"tool_security.max_file_access_size": 100}
    async with Toolrest(work, settings=limits, tools=["all"]) as rest:
        found = await rest.call("grep_files", {"pattern": "needle"})
        assert found.text.splitlines()[0] == f"{work}/small"
        assert found.text.endswith("(100 bytes): large")


async def test_names_cannot_forge_results(work: Path, call: Call) -> None:
    (work / "a\n").mkdir()
    lay(work, {"a\n/real": "needle", "real": "hay"})
    output = await call("grep_files", pattern="needle")
    assert output.text == f"{work}/a\\x0a/real"
    for mode in ("content", "count"):
        output = await call("grep_files", pattern="needle", output_mode=mode)
        assert "hay" not in output.text


SEARCH = """
import asyncio, sys
from toolrest import Toolrest

async def main():
    async with Toolrest(sys.argv[1], tools=["all"]) as rest:
        print((await rest.call("grep_files", {"pattern": "needle"})).text)

asyncio.run(main())
"""


def test_an_unreadable_folder_does_not_spoil_the_search(work: Path) -> None:
    """As an ordinary user, whose search is confined as well."""
    lay(work, {"project/a": "needle", "project/shut/b": "needle", "project/.env": "needle"})
    (work / "home").mkdir()
    root = os.geteuid() == 0
    for path in (work / "home", *(work / "project").rglob("*"), work / "project"):
        os.chown(path, NOBODY if root else -1, -1)
    (work / "project" / "shut").chmod(0)
    ran = subprocess.run(
        [interpreter(ordinary=True), "-c", SEARCH, str(work / "project")],
        user=NOBODY if root else None,
        group=NOBODY if root else None,
        extra_groups=[] if root else None,
        cwd="/",
        env={**os.environ, "PYTHONPATH": packages(), "TOOLREST_HOME": str(work / "home")},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.splitlines() == [
        f"{work}/project/a",
        "[toolrest] some files or folders could not be read and were not searched",
    ], ran.stderr


# The program itself


def program(folder: Path, body: str) -> str:
    path = folder / "rg"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


async def test_no_ripgrep_at_all(work: Path) -> None:
    gone = GrepFiles(Ripgrep("/nonexistent/rg"))
    async with Toolrest(work, tools=[gone], override=True) as rest:
        output = await rest.call("grep_files", {"pattern": "x"})
    assert output.text == (
        "failed to launch rg: No such file or directory (os error 2). "
        "Ensure ripgrep is installed and on PATH."
    )


def endless(folder: Path) -> str:
    """A program that says nothing; it can write nothing either."""
    return program(folder, f"exec sleep {900 + folder.stat().st_ino}")


def runs(folder: Path) -> bool:
    """Whether that program is there, wherever it is confined."""
    words = ["sleep", str(900 + folder.stat().st_ino), ""]
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if place.read_text().split("\0") == words:
                return True
    return False


async def test_a_search_that_takes_too_long_is_ended(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def clock() -> float:
        """The time is over at the first look after the program has started."""
        nonlocal looks
        looks += 1
        return 300.5 if looks > 1 and runs(tmp_path) else 0.0

    monkeypatch.setattr("toolrest.tools.files.ripgrep.monotonic", clock)
    tool = GrepFiles(Ripgrep(endless(tmp_path), seconds=300.5))
    async with Toolrest(work, tools=[tool], override=True) as rest:
        output = await rest.call("grep_files", {"pattern": "x"})
    assert output.text == "rg timed out after 300.5 seconds"
    assert output.failure is not None
    assert output.failure.kind == "timed_out"
    assert not runs(tmp_path)


async def test_cancelling_ends_the_program(work: Path, tmp_path: Path) -> None:
    tool = GlobFiles(Ripgrep(endless(tmp_path)))
    async with Toolrest(work, tools=[tool], override=True) as rest, rest.turn() as turn:
        running = turn.start(FunctionCall("c", "glob_files", {"pattern": "*"}))
        async with asyncio.timeout(60):
            while not runs(tmp_path):
                await asyncio.sleep(0.01)
        output = await rest.cancel("c")
        assert output.failure is not None
        assert output.failure.kind == "aborted"
        assert not runs(tmp_path)
        await running.output()


async def test_a_planted_ripgrep_and_its_settings_are_not_used(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(work, {"a": "needle"})
    (work / "bin").mkdir()
    planted = program(work / "bin", f"touch {tmp_path}/ran")
    (work / "rc").write_text("--pre\n/bin/false\n--invert-match\n")
    monkeypatch.setenv("PATH", f"{work / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(work / "rc"))
    assert find_rg([str(work)]) != planted
    async with Toolrest(work, tools=["all"]) as rest:
        assert (await rest.call("grep_files", {"pattern": "needle"})).text == f"{work}/a"
    assert not (tmp_path / "ran").exists()


async def test_the_program_gets_no_secrets(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shows = program(tmp_path, "env >&2; exit 2")
    monkeypatch.setenv("SOME_VARIABLE", "abcdefghijklmnop")
    async with Toolrest(work, tools=[GrepFiles(Ripgrep(shows))], override=True) as rest:
        text = (await rest.call("grep_files", {"pattern": "x"})).text
    assert "PATH=" in text
    assert "SOME_VARIABLE" not in text


# glob_files


async def test_globs(work: Path, call: Call) -> None:
    lay(work, {"a.py": "", "src/b.py": "", "src/deep/c.py": "", ".github/w.yml": "", "d.txt": ""})

    async def found(**arguments: Any) -> list[str]:
        text = (await call("glob_files", **arguments)).text
        return [line.removeprefix(f"{work}/") for line in text.split("\n")]

    assert await found(pattern="*.py") == ["src/deep/c.py", "src/b.py", "a.py"]
    assert await found(pattern="src/*.py") == ["src/b.py"]
    assert await found(pattern="**/*.py", path="src") == ["src/deep/c.py", "src/b.py"]
    assert await found(pattern="deep/*", path="src") == ["src/deep/c.py"]
    assert await found(pattern=".github/*.yml") == [".github/w.yml"]
    assert await found(pattern="*.{txt,yml}") == ["d.txt"]
    assert await found(pattern=f"{work}/src/*.py") == ["src/b.py"]
    assert await found(pattern="*.rs") == ["No files found."]
    assert await found(pattern="*.py", limit=1) == [
        "src/deep/c.py",
        "[toolrest] more than 1 files match; narrow the pattern",
    ]


async def test_glob_errors(work: Path, call: Call) -> None:
    lay(work, {"a.py": ""})
    rows: list[tuple[dict[str, Any], str]] = [
        ({"pattern": " "}, "pattern must name the files to find"),
        ({"pattern": "!*.py"}, "pattern must name the files to find"),
        ({"pattern": "*", "limit": 0}, "limit must be greater than zero"),
        ({"pattern": "*", "path": "a.py"}, f"`{work}/a.py` is not a directory"),
        ({"pattern": "/etc/*"}, "an absolute pattern must begin with the directory"),
        ({"pattern": "[", "path": "."}, "rg failed: "),
    ]
    for arguments, words in rows:
        output = await call("glob_files", **arguments)
        assert output.text.startswith(words), arguments
        assert output.failure is not None
