"""Stores and leases: one holder of a task at a time, whole files or none."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem
from msgspec.structs import asdict, replace
from tests.cli.conftest import Desk

from toolrest.batch.engine import LocalEngine
from toolrest.batch.run_task import RunOptions
from toolrest.batch.stores import totals as totals_module
from toolrest.batch.stores.alone import Alone
from toolrest.batch.stores.lease import Lease, Leases, Runner
from toolrest.batch.stores.store import FolderStore, Store, check_store, open_store
from toolrest.batch.stores.totals import Totals
from toolrest.errors import ConfigError

STORES = ["folder", "memory"]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A folder without fsspec, and a file system of fsspec that needs no server."""
    return open_store(str(tmp_path / "s") if request.param == "folder" else f"memory://{tmp_path}")


def test_files_are_written_read_listed_and_removed(store: Store) -> None:
    assert store.read("a/b.txt") is None
    assert store.files("a") == []
    store.write("a/b.txt", b"one")
    store.write("a/b.txt", b"two")
    assert (store.read("a/b.txt"), store.has("a/b.txt"), store.has("a/c")) == (b"two", True, False)
    store.write("a/x/result.json", b"{}")
    store.write("a/y/other.json", b"{}")
    assert store.files("a") == ["b.txt"]
    assert store.folders("a", "result.json") == {"x"}
    store.delete("a/b.txt")
    store.delete("a/b.txt")
    assert store.files("a") == []


def test_one_of_many_creates_a_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s"))
    won: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: won.append(n) if store.create("x", b"1") else None)
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.files("") == ["x"], "no temporary file is left"


def test_a_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/s")
    store.write("a/b", b"1")
    assert [oct(p.stat().st_mode & 0o777) for p in (tmp_path / "s", tmp_path / "s/a/b")] == [
        "0o700", "0o600",
    ]  # fmt: skip


def other(store: Store, seconds: float = 60) -> Leases:
    return Leases(store, "tasks/t", Runner.here(), seconds)


def test_a_live_lease_is_respected_and_a_released_one_taken(store: Store) -> None:
    mine, theirs = other(store), other(store)
    lease = mine.take()
    assert lease is not None
    assert theirs.take() is None
    lease.attempts.append({"number": 1, "started": 1.0})
    lease.released = True
    assert mine.beat(lease)
    taken = theirs.take()
    assert taken is not None
    assert taken.number == 2
    assert taken.attempts == [
        {"number": 1, "started": 1.0, "ended": lease.beat, "outcome": "killed"}
    ]
    assert not mine.beat(lease), "its holder learns that it has lost the task"
    theirs.clear(taken)
    assert store.files("tasks/t") == []


def test_an_old_heartbeat_of_another_machine_is_a_dead_one(store: Store) -> None:
    far = replace(Runner.here(), machine="another")
    held = Leases(store, "tasks/t", far, 60)
    lease = held.take()
    assert lease is not None
    assert other(store).take() is None, "its clock runs"
    held.put(Lease(1, far, time.time() - 61))
    assert other(store).take() is not None


def test_a_holder_that_slept_through_the_end_of_its_task_has_lost_it(store: Store) -> None:
    """Another runner took it over, finished it and removed the leases."""
    mine, theirs = other(store), other(store)
    lease = mine.take()
    assert lease is not None
    mine.put(replace(lease, beat=time.time() - 61))
    taken = theirs.take()
    assert taken is not None
    store.write("tasks/t/result.json", b"{}")
    theirs.clear(taken)
    assert not mine.beat(lease)
    assert store.files("tasks/t") == ["result.json"], "it wrote nothing"
    store.delete("tasks/t/result.json")
    assert not mine.beat(lease), "the task is to run again"
    again = theirs.take()
    assert again is not None
    assert (again.number, mine.beat(lease), theirs.beat(again)) == (1, False, True)


def test_a_result_ends_the_lease_of_who_still_works_on_it(store: Store) -> None:
    mine = other(store)
    lease = mine.take()
    assert lease is not None
    store.write("tasks/t/result.json", b"{}")
    assert not mine.beat(lease)


def test_a_lease_lasts_as_long_as_its_holder_says(store: Store) -> None:
    far = replace(Runner.here(), machine="another")
    held = Leases(store, "tasks/t", far, 240)
    lease = held.take()
    assert lease is not None
    held.put(replace(lease, beat=time.time() - 200))
    assert other(store, 60).take() is None
    held.put(replace(lease, beat=time.time() - 241))
    assert other(store, 60).take() is not None


def test_a_lease_of_an_earlier_version_is_read(store: Store) -> None:
    far = replace(Runner.here(), machine="another")
    row = {"runner": asdict(far), "beat": time.time() - 30, "attempts": [], "released": False}
    store.write("tasks/t/lease-1.json", json.dumps(row).encode())
    assert other(store, 60).take() is None
    assert other(store, 20).take() is not None


def test_a_dead_process_here_is_known_at_once(store: Store) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    dead = replace(Runner.here(), pid=ended.pid, born="1")
    assert Leases(store, "tasks/t", dead).take() is not None
    assert other(store).take() is not None


def test_two_that_find_a_dead_lease_do_not_both_get_it(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s"))
    Leases(store, "tasks/t", Runner.here()).put(Lease(1, Runner("", "", "", 0, ""), 0.0))
    won: list[int] = []

    def take(number: int) -> None:
        if Leases(store, "tasks/t", replace(Runner.here(), id=str(number))).take():
            won.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_a_store_that_cannot_create_exclusively_serves_one_runner_only(store: Store) -> None:
    class Careless:
        url = "careless://"
        is_exclusive = True

        def create(self, name: str, data: bytes) -> bool:
            return True

        def delete(self, name: str) -> None:
            pass

    careless: Any = Careless()
    assert not check_store(careless, several=False)
    with pytest.raises(ConfigError, match="cannot create a file exclusively"):
        check_store(careless, several=True)
    assert check_store(store, several=True)


class LooksFirst(MemoryFileSystem):  # type: ignore[misc]
    """A file system with what fsspec gives to all, as that of sftp or smb."""

    protocol = "looksfirst"
    pipe_file = AbstractFileSystem.pipe_file


@pytest.fixture
def looks_first(tmp_path: Path) -> Store:
    """A store that looks whether a file is there, and then writes it."""
    fsspec.register_implementation("looksfirst", LooksFirst, clobber=True)
    return open_store(f"looksfirst://{tmp_path}")


def test_a_store_that_looks_and_then_writes_is_not_for_several(looks_first: Store) -> None:
    with pytest.raises(ConfigError, match="cannot create a file exclusively"):
        check_store(looks_first, several=True)
    assert not check_store(looks_first, several=False)


async def test_a_store_that_serves_one_runner_refuses_another(looks_first: Store) -> None:
    alone = Alone(looks_first)
    with pytest.raises(ConfigError, match="another one is at work on"):
        Alone(looks_first)
    runner = Runner.here()
    engine = LocalEngine(looks_first, RunOptions(), Totals(looks_first, runner), runner, print)
    engine.alone = alone
    await engine.run([], 1)
    assert engine.counts.stopped is None
    assert looks_first.files("alone") == [], "it is given back"
    Alone(looks_first).end()


async def test_of_two_that_got_a_store_at_once_one_stops(
    looks_first: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as both:
        both.setattr(looks_first, "files", lambda _: [])
        both.setattr(LooksFirst, "exists", lambda *_: False)
        first, second = Alone(looks_first), Alone(looks_first)
    assert (first.beat(), second.beat()) == (False, True)
    first.end()
    assert second.beat(), "the one that lost it removes nothing"


class Unread(FolderStore):
    """A store whose folders cannot be listed from time to time."""

    fails = 0

    def files(self, name: str) -> list[str]:
        if self.fails:
            self.fails -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().files(name)


async def test_totals_that_cannot_be_read_for_a_moment_end_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals_module, "_SECONDS", 0.0)
    store, runner = Unread(str(tmp_path / "store")), Runner.here()
    engine = LocalEngine(store, RunOptions(), Totals(store, runner, max_tokens=5), runner, print)
    for fails in (2, 2):
        store.fails = fails
        assert [await engine.may_begin() for _ in range(2)] == [True, True], "what is known counts"
    engine.totals.take({"thread_id": "x", "usage": {"total_tokens": 9}})
    store.fails = 1
    assert not await engine.may_begin()
    assert engine.counts.stopped is not None
    assert engine.counts.stopped.startswith("9 tokens were used")


async def test_totals_that_cannot_be_read_stop_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals_module, "_SECONDS", 0.0)
    store, runner = Unread(str(tmp_path / "store")), Runner.here()
    engine = LocalEngine(store, RunOptions(), Totals(store, runner, max_tokens=5), runner, print)
    store.fails = 100
    assert [await engine.may_begin() for _ in range(3)] == [True, True, False]
    assert engine.counts.stopped == "cannot read the store: Input/output error"


def test_an_unknown_kind_of_store_is_named() -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        open_store("nosuch://x")


@pytest.mark.parametrize("line", [b"", b"null", b'{"runner": 1}'])
def test_a_lease_that_nothing_of_ours_wrote_is_taken_over(tmp_path: Path, line: bytes) -> None:
    store = open_store(str(tmp_path / "s"))
    store.write("tasks/t/lease-7.json", line)
    lease = other(store).take()
    assert lease is not None
    assert lease.number == 8
    data: Callable[[], Any] = lambda: json.loads(store.read("tasks/t/lease-8.json") or b"")  # noqa: E731
    assert data()["runner"]["pid"] == os.getpid()


def test_every_error_of_a_file_system_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolrest.batch.stores.fsspec_store import FsspecStore

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("the token has ended")

    store: Any = FsspecStore("memory://errors")
    for method in ("cat_file", "pipe_file", "exists", "find", "ls", "rm_file"):
        monkeypatch.setattr(store._fs, method, fails)
    calls: list[tuple[Callable[..., object], tuple[object, ...]]] = [
        (store.read, ("a",)),
        (store.write, ("a", b"")),
        (store.create, ("a", b"")),
        (store.has, ("a",)),
        (store.folders, ("a", "b")),
        (store.files, ("a",)),
        (store.delete, ("a",)),
    ]
    for call, arguments in calls:
        with pytest.raises(OSError, match="the token has ended"):
            call(*arguments)


@pytest.mark.long
def test_a_finished_batch_of_ten_thousand_starts_within_a_second(desk: Desk) -> None:
    """Seconds of CPU, which a busy machine does not change much."""
    count, store = 10_000, desk.home.parent / "store"
    for at in range(count):
        (store / "tasks" / f"t{at}").mkdir(parents=True)
        (store / "tasks" / f"t{at}" / "result.json").write_text("{}")
    rows = (json.dumps({"id": f"t{at}", "prompt": "go"}) + "\n" for at in range(count))
    (file := desk.home.parent / "tasks.jsonl").write_text("".join(rows))
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = desk.run("batch", str(file), "--store", str(store))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert (ran.code, ran.err) == (0, "10000/10000 tasks\n")
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) <= 1.0, spent


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ('[{"started": 1.5, "ended": null, "outcome": "killed"}]', 1),  # as 0.2.0's first stores
        ('[{"started": 1.5}]', 1),
        ('[{"started": "soon"}]', 0),
        ("[7]", 0),
        ("7", 0),
    ],
)
def test_rows_of_a_dead_runners_lease_are_kept_if_they_can_be_ours(
    tmp_path: Path, rows: str, kept: int
) -> None:
    store = FolderStore(str(tmp_path / "store"))
    runner = '{"id": "1", "host": "far", "machine": "", "pid": 0, "born": ""}'
    data = f'{{"runner": {runner}, "beat": 2.5, "attempts": {rows}, "released": false}}'
    store.write("tasks/t/lease-1.json", data.encode())
    lease = Leases(store, "tasks/t", Runner.here(), 60).take()
    assert lease is not None
    assert lease.number == 2
    assert len(lease.attempts) == kept
