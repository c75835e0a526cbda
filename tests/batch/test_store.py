"""Stores and leases: one holder of a task at a time, whole files or none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolrest.batch.stores.lease import Lease, Leases, Runner
from toolrest.batch.stores.store import Store, check_store, open_store
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
    assert taken.attempts == [{"number": 1, "started": 1.0, "ended": None, "outcome": "killed"}]
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

        def create(self, name: str, data: bytes) -> bool:
            return True

        def delete(self, name: str) -> None:
            pass

    careless: Any = Careless()
    check_store(careless, several=False)
    with pytest.raises(ConfigError, match="cannot create a file exclusively"):
        check_store(careless, several=True)
    check_store(store, several=True)


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
