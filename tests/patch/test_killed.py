"""A patch that is cut off by SIGKILL is taken back by whatever opens the folder next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.patch.test_all_or_nothing import AFTER, PATCH, TREE, Tree

from toolrest.patch.record import lock
from toolrest.patch.recovery import take_back

KILLED = """
import os, signal, sys
from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.record import PatchRecord
from toolrest.patch import record, recovery
from toolrest.patch.run import carry_out
from toolrest.patch import codex_grammar as grammar
from toolrest.patch.plan import plan

WRITES = ("create", "overwrite", "rename", "link", "unlink", "mkdir", "chmod", "sync", "rmdir")
records, cwd, patch, links, fails = sys.argv[1:]
count = at = 0

def step(half=None):
    '''One more thing that is done to the disk: the process dies before it, or in its middle.'''
    global count
    count += 1
    if count == at:
        if half is not None:
            half()
        os.kill(os.getpid(), signal.SIGKILL)

class Killed(OsFiles):
    fails = fails

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name not in WRITES:
            return value
        def counted(*arguments):
            step()
            if name == "overwrite":
                path, data = arguments
                with open(path, "rb") as file:
                    old = file.read()
                middle = len(data) // 2
                step(lambda: write(path, data[:middle] + old[middle:]))
                step(lambda: write(path, data + old[len(data):]))
            if name == "create":
                step(lambda: write(arguments[0], arguments[1][:1]))
            if name == "link" and links == "no":
                raise PermissionError(1, "no hard links here")
            if name == "rename" and self.fails != "-" and arguments[1].endswith(self.fails):
                self.fails = "-"
                raise OSError(5, "a disk that fails")
            return value(*arguments)
        return counted

def write(path, data):
    with open(path, "r+b" if os.path.exists(path) else "wb") as file:
        file.write(data)

def note(fd, facts, *contents):
    step()
    step(lambda: os.write(fd, b'{"change": "/half'))
    append(fd, facts, *contents)

append, record.append = record.append, note
recovery.OsFiles = Killed
for line in sys.stdin:
    what, number = line.split()
    at = int(number)
    child = os.fork()
    if child == 0:
        if what == "recovery":
            recovery.take_back(records, cwd)
            os._exit(0)
        with Killed() as files:
            planned = plan(grammar.parse(patch), files, cwd)
            carry_out(planned, files, PatchRecord(records, cwd))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""For each line that it reads: a process that applies the patch, or takes it back, and that is
killed at the nth thing which it does to the disk or to its record."""


class Killer:
    """Kills a process that applies a patch, at one step of it."""

    def __init__(self, records: Path, cwd: Path, patch: str, links: str, fails: str) -> None:
        argv = [sys.executable, "-c", KILLED, str(records), str(cwd), patch, links, fails]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, at: int, what: str = "patch") -> bool:
        """Whether there were so many steps."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what} {at}\n".encode())
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        assert code in (0, -9)
        return code == -9

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture
def killer(tree: Path, records: Path) -> Iterator[Callable[..., Killer]]:
    made: list[Killer] = []

    def make(patch: str = PATCH, links: str = "yes", fails: str = "-") -> Killer:
        made.append(Killer(records, tree, patch, links, fails))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def tree(folder: Path, build: Callable[[Path, Tree], None]) -> Path:
    work = folder / "work"
    build(work, TREE)
    return work


@pytest.fixture
def records(folder: Path) -> Path:
    return folder / "home" / "run" / "patches"


def whole(work: Path, snapshot: Callable[[Path], Tree]) -> Tree:
    """The tree, and that the names of a file are still those of one."""
    assert (work / "d/e.txt").samefile(work / "d/twin.txt")
    return snapshot(work)


def rebuilt(work: Path, build: Callable[[Path, Tree], None]) -> None:
    subprocess.run(["rm", "-rf", "--", str(work)], check=True)
    build(work, TREE)


@pytest.mark.parametrize(
    ("links", "fails"), [("yes", "-"), ("no", "-"), ("yes", "a.txt"), ("yes", "latin.bin")]
)
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((9, 30, 47, 60), id="some"),
        pytest.param(range(1, 400), id="every", marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_step_it_is_all_or_nothing(
    tree: Path,
    records: Path,
    killer: Callable[..., Killer],
    steps: Any,
    links: str,
    fails: str,
    build: Callable[[Path, Tree], None],
    snapshot: Callable[[Path], Tree],
) -> None:
    before, seen, at = snapshot(tree), [], 0
    kill = killer(links=links, fails=fails)
    for at in steps:
        if not kill(at):
            break
        said = take_back(str(records), str(tree))
        seen.append(whole(tree, snapshot))
        assert seen[-1] in (before, AFTER), (at, said)
        assert not any("stays" in text for text in said), (at, said)
        assert list(records.iterdir()) == [], at
        rebuilt(tree, build)
    assert at >= 60
    done = seen.index(AFTER) if AFTER in seen else len(seen)
    assert seen == [before] * done + [AFTER] * (len(seen) - done)
    if at > 60:
        assert (done == len(seen)) == (fails != "-")


@pytest.mark.slow
@pytest.mark.parametrize("at", [33, 41, 52, 58, 66])
def test_what_takes_it_back_may_be_killed_too(
    tree: Path,
    records: Path,
    killer: Callable[..., Killer],
    at: int,
    build: Callable[[Path, Tree], None],
    snapshot: Callable[[Path], Tree],
) -> None:
    before, kill = snapshot(tree), killer()
    for step in range(1, 100):
        assert kill(at)
        was_killed = kill(step, "recovery")
        said = take_back(str(records), str(tree))
        assert whole(tree, snapshot) == before, (step, said)
        assert not any("stays" in text for text in said), (step, said)
        rebuilt(tree, build)
        if not was_killed:
            break
    assert step > 5


MANY = "".join(f"*** Update File: {n:02}.txt\n@@\n-{n}\n+new\n" for n in range(20))
TWENTY = f"*** Begin Patch\n{MANY}*** End Patch"


@pytest.fixture
def half_written(
    tree: Path, killer: Callable[..., Killer], build: Callable[[Path, Tree], None]
) -> Path:
    """A folder with a patch of 20 files of which some are written."""
    names = {f"{n:02}.txt": f"{n}\n" for n in range(20)}
    build(tree, names)
    kill = killer(TWENTY)
    at = 110
    assert kill(at)
    written = [name for name in names if (tree / name).read_text() == "new\n"]
    assert 5 < len(written) < 20
    return tree


def test_what_was_changed_since_stays_and_is_named(half_written: Path, records: Path) -> None:
    def write(name: str, text: str) -> None:
        (half_written / name).write_text(text)

    write("00.txt", "by hand\n")
    (half_written / "01.txt").unlink()
    (half_written / "02.txt").unlink()  # another file with the same content
    write("02.txt", "new\n")
    write("19.txt", "by hand, too\n")
    (half_written / ".toolrest-0123456789abcdef.tmp").write_text("not in the record")
    said = take_back(str(records), str(half_written))
    assert "took back" in said[0]
    assert sorted(text.split("/")[-1] for text in said[1:]) == [
        f"{name}.txt stays as it is: it was changed since" for name in ("00", "01", "02")
    ]
    assert (half_written / "00.txt").read_text() == "by hand\n"
    assert not (half_written / "01.txt").exists()
    assert (half_written / "02.txt").read_text() == "new\n"
    assert (half_written / "19.txt").read_text() == "by hand, too\n"
    for n in range(3, 19):
        assert (half_written / f"{n:02}.txt").read_text() == f"{n}\n"
    assert [path.name for path in half_written.glob(".toolrest-*")] == [
        ".toolrest-0123456789abcdef.tmp"
    ]
    assert take_back(str(records), str(half_written)) == []


def test_without_the_copies_the_bytes_of_the_record_are_used(
    half_written: Path, records: Path
) -> None:
    (half_written / "00.txt").chmod(0o640)
    for path in half_written.glob(".toolrest-*"):
        path.unlink()
    said = take_back(str(records), str(half_written))
    assert len(said) == 1
    for n in range(20):
        assert (half_written / f"{n:02}.txt").read_text() == f"{n}\n"
    assert not list(half_written.glob(".toolrest-*"))


def test_a_folder_that_became_a_link_is_not_followed(
    tree: Path, folder: Path, records: Path, killer: Callable[..., Killer]
) -> None:
    (tree / "sub").mkdir()
    (tree / "sub/s.txt").write_text("s\n")
    kill = killer("*** Begin Patch\n*** Update File: sub/s.txt\n@@\n-s\n+S\n*** End Patch")
    for at in range(1, 50):
        assert kill(at)
        if (tree / "sub/s.txt").read_text() == "S\n":
            break
        take_back(str(records), str(tree))
    (tree / "sub").rename(folder / "elsewhere")
    (tree / "sub").symlink_to(folder / "elsewhere")
    said = take_back(str(records), str(tree))
    assert "sub/s.txt stays as it is" in said[0] + said[1]
    assert (folder / "elsewhere/s.txt").read_text() == "S\n"


def test_one_that_is_under_way_or_elsewhere_is_left_alone(
    half_written: Path, records: Path, folder: Path
) -> None:
    (name,) = records.iterdir()
    with name.open("r+b") as held:
        assert lock(held.fileno())
        assert take_back(str(records), str(half_written)) == []
    (folder / "other").mkdir()
    assert take_back(str(records), str(folder / "other")) == []
    assert name.exists()
    assert "took back" in take_back(str(records), str(half_written / "d"))[0]


def test_what_is_no_record_is_not_read(half_written: Path, records: Path) -> None:
    (record,) = records.iterdir()
    os.mkfifo(records / "pipe.patch")
    (records / "odd.patch").write_bytes(b"[1]\n")
    (records / "odd.patch").chmod(0o600)
    record.chmod(0o666)  # by which others may have written it
    said = take_back(str(records), str(half_written))
    assert len(said) == 3
    assert all("cannot read" in text for text in said)
    assert list(half_written.glob(".toolrest-*"))
