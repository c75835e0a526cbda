"""Files are swapped while the policy looks: what was judged is what is opened."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from toolrest.errors import Rejected

pytestmark = pytest.mark.slow

# Runs in a process of its own, so that it swaps while our side is between two system calls.
SWAPPER = """
import os, sys
path, *targets = sys.argv[1:]
print("up", flush=True)
while True:
    for number, target in enumerate(targets):
        temporary = f"{path}.{number}"
        try:
            os.symlink(target, temporary)
            os.rename(temporary, path)
        except OSError:
            pass
"""

DIRECTORY_SWAPPER = """
import os, sys
path, outside = sys.argv[1:]
print("up", flush=True)
while True:
    os.rename(path, path + ".real")
    os.symlink(outside, path)
    os.unlink(path)
    os.rename(path + ".real", path)
"""


@contextmanager
def running(script: str, *arguments: str) -> Iterator[None]:
    child = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        yield
        assert child.poll() is None, "the swapper stopped early"
    finally:
        child.kill()
        child.communicate()


def rounds(full: bool, enough: Callable[[int], object]) -> Iterator[int]:
    """For a while, and on until there is enough: how soon that is depends on the machine."""
    began, number = time.monotonic(), 0
    end = began + (60 if full else 2)
    while (time.monotonic() < end and number < 10_000) or not enough(number):
        assert time.monotonic() < began + 100
        yield number
        number += 1


@pytest.mark.full
@pytest.mark.usefixtures("both_ways")
def test_a_link_swapped_between_check_and_open_never_shows_the_secret(
    places: Any, full: bool
) -> None:
    link = places.workspace / "link"
    link.symlink_to("a.txt")
    files = places.policy()
    seen = {"plain": 0, "refused": 0}
    targets = (str(places.workspace / "a.txt"), str(places.home / ".ssh" / "id"))
    with running(SWAPPER, str(link), *targets):
        for _ in rounds(full, lambda _: all(seen.values())):
            try:
                assert files.read_bytes("link") == b"plain"
                seen["plain"] += 1
            except (Rejected, OSError):
                seen["refused"] += 1
    assert seen["plain"]
    assert seen["refused"]


@pytest.mark.full
@pytest.mark.usefixtures("both_ways")
def test_a_folder_swapped_for_a_link_never_lets_a_write_out(places: Any, full: bool) -> None:
    folder = places.workspace / "dir"
    folder.mkdir()
    (places.outside / "x").write_text("old")
    files = places.policy()
    written: list[int] = []
    with running(DIRECTORY_SWAPPER, str(folder), str(places.outside)):
        for number in rounds(full, lambda _: written):
            try:
                files.write_bytes("dir/x", b"new")
                written.append(number)
            except (Rejected, OSError):
                pass
            assert (places.outside / "x").read_text() == "old"
    assert written
    assert sorted(os.listdir(places.outside)) == ["o.txt", "x"]


@pytest.mark.full
def test_reading_a_file_that_is_replaced_all_the_time_works(places: Any, full: bool) -> None:
    script = """
import os, sys
path = sys.argv[1]
print("up", flush=True)
while True:
    with open(path + ".new", "w") as file:
        file.write("plain")
    os.rename(path + ".new", path)
"""
    files = places.policy()
    failures = 0
    count = 0
    with running(script, str(places.workspace / "a.txt")):
        for _ in rounds(full, lambda number: number >= 1000):
            count += 1
            try:
                assert files.read_bytes("a.txt") == b"plain"
            except Rejected:
                failures += 1
    assert failures <= count // 100
