"""Artifacts of tasks that go on elsewhere or run again: none is lost, none is of another result."""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from toolrest.batch import attempt as attempt_module
from toolrest.batch.child import ChildEnd
from toolrest.batch.reports.retry import retry_tasks
from toolrest.batch.run_task import RunOptions, run_task
from toolrest.batch.stores.store import FolderStore
from toolrest.batch.tasks import nested as nested_module
from toolrest.batch.tasks.nested import pack, unpack
from toolrest.batch.tasks.setup import TaskSetup
from toolrest.batch.tasks.task import BatchTask

SESSION = "sessions/2026/01/01/rollout-2026-01-01T00-00-00-x.jsonl"
LINE = b'{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"x"}}\n'
ALONE = BatchTask("t", "p", None)
"""A task without a folder of the user and without a repository: one with an image."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ChildEnd, set[str]]]:
    """Sessions that write one more file each: the end of the next one, the files that it found."""
    found: list[tuple[ChildEnd, set[str]]] = []
    started: list[int] = []

    async def run_child(arguments: list[str], **_: Any) -> ChildEnd:
        end, files = found[len(started)]
        started.append(1)
        folder = Path(arguments[arguments.index("--cd") + 1])
        files.update(str(path.relative_to(folder)) for path in folder.rglob("*"))
        (folder / "deep").mkdir(exist_ok=True)
        (folder / "deep" / f"{len(started)}.txt").write_text("x\n")
        await asyncio.sleep(0)
        return end

    monkeypatch.setattr(attempt_module, "run_child", run_child)
    return found


def machine(base: Path, monkeypatch: pytest.MonkeyPatch) -> RunOptions:
    """Be another machine: a home and a scratch folder of its own."""
    base.mkdir(exist_ok=True)
    monkeypatch.setenv("TOOLREST_HOME", str(base))
    return RunOptions(scratch=str(base / "scratch"))


FAILED = ChildEnd(1, {"status": "failed", "reason": "budget", "text": "so far"}, "out of turns")
DONE = ChildEnd(0, {"status": "completed", "reason": "done"})


async def test_files_of_a_folder_without_a_repository_are_kept_and_come_back(
    ends: list[tuple[ChildEnd, set[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(str(tmp_path / "store"))
    ends += [(FAILED, set()), (DONE, set()), (DONE, set())]
    for name in ("a", "b"):
        options = machine(tmp_path / name, monkeypatch)
        assert (await run_task(ALONE, store, options)).outcome == "done"
        assert list((tmp_path / name / "scratch" / "workspaces").iterdir()) == []
        retry_tasks(store, ["t"])
    assert ends[1][1] == {"deep", "deep/1.txt"}, "it goes on with the files of the other machine"
    with tarfile.open(tmp_path / "store" / "tasks" / "t" / "workspace-2.tar.gz") as tar:
        assert {one.name for one in tar} == {"deep/1.txt", "deep/2.txt"}
    assert (await run_task(ALONE, store, options)).outcome == "done"
    assert ends[2][1] == set(), "one that had succeeded starts over"


async def test_a_workspace_whose_files_do_not_fit_is_kept(
    ends: list[tuple[ChildEnd, set[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested_module, "_MOST_FILES", 0)
    ends.append((DONE, set()))
    options = machine(tmp_path / "a", monkeypatch)
    end = await run_task(ALONE, FolderStore(str(tmp_path / "store")), options)
    assert end.result is not None
    assert "more than 64 MB or 0 files" in end.result["workspace_error"]
    (kept,) = (tmp_path / "a" / "scratch" / "workspaces").iterdir()
    assert (kept / "deep" / "1.txt").exists()


async def test_a_retry_keeps_what_was_stored_and_leaves_nothing_of_another_result(
    ends: list[tuple[ChildEnd, set[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = FolderStore(str(tmp_path / "store")), tmp_path / "store" / "tasks" / "t"
    ends += [(FAILED, set()), (DONE, set())]
    options = machine(tmp_path / "a", monkeypatch)
    await run_task(ALONE, store, options)
    for name in ("events.jsonl", "audit.jsonl", "nested.tar.gz", "check.txt"):
        store.write(f"tasks/t/{name}", b"first\n")
    assert retry_tasks(store, ["t"]) == 1
    names = {path.name for path in folder.iterdir()}
    ended = {"answer-1.md", "stderr-1.txt", "nested-1.tar.gz", "check-1.txt", "result-1.json"}
    assert names == ended | {
        "events.jsonl", "audit.jsonl", "workspace.tar.gz", "workspace-1.tar.gz", "lease-0.json",
    }  # fmt: skip
    store.write("tasks/t/answer.md", b"of a runner that died before its result")
    await run_task(ALONE, store, options)
    names = {path.name for path in folder.iterdir()} - ended
    assert names == {
        "events.jsonl", "audit.jsonl", "workspace.tar.gz", "workspace-1.tar.gz", "result.json",
    }  # fmt: skip
    assert (folder / "events.jsonl").read_bytes() == b"first\n"
    assert (folder / "audit.jsonl").read_bytes() == b"first\n"
    retry_tasks(store, ["t"], fresh=True)
    left = {path.name for path in folder.iterdir() if "-" not in path.name}
    assert left == set(), "nothing of it is taken for a new run's"


async def work(base: Path, store: FolderStore, rows: list[Any], word: str) -> None:
    """An attempt on a machine that dies after it has stored its events and its audit log."""
    with pytest.MonkeyPatch.context() as patch:
        options = machine(base, patch)
        setup = TaskSetup(ALONE, store, "tasks/t", (), options.scratch)
    await setup.prepare(rows)
    rows.append({"journal": SESSION, "place": setup.place})
    with open(setup.events, "a", encoding="ascii") as events:
        events.write(f"{word}\n")
    audit, journal = Path(setup.home, "audit"), Path(setup.home, SESSION)
    for folder in (audit, journal.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with (audit / "x.jsonl").open("a", encoding="ascii") as log:
        log.write(f"{word}\n")
    with journal.open("ab") as file:
        file.write(LINE)
    setup.journal = str(journal)
    await setup.sync()


async def test_a_task_that_changes_machines_keeps_its_events_and_its_audit(tmp_path: Path) -> None:
    store, rows = FolderStore(str(tmp_path / "store")), list[Any]()
    for place, word in (("a", "one"), ("b", "two"), ("b", "three"), ("a", "four")):
        await work(tmp_path / place, store, rows, word)
    expected = b"one\ntwo\nthree\nfour\n"
    assert store.read("tasks/t/events.jsonl") == expected
    assert store.read("tasks/t/audit.jsonl") == expected


def test_an_archive_is_unpacked_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    target.mkdir()
    (source / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (source / "deep" / "run.sh").chmod(0o755)
    (source / "link").symlink_to("deep/run.sh")
    unpack(pack(str(source), ["."]), str(target))
    assert (target / "link").read_text() == "#!/bin/sh\n"
    assert (target / "deep" / "run.sh").stat().st_mode & 0o777 == 0o755


def archive(*members: tuple[str, str]) -> bytes:
    """An archive of files, and of links where there is a target."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = (b"2", target) if target else (b"0", "")
            tar.addfile(info, io.BytesIO())
    return out.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive",
        archive(("a", ""), ("b", ""))[:-20],
        archive(("../out", "")),
        archive(("/tmp/out", "")),
        archive(("a/../../out", "")),
        archive(("a", ".."), ("a/out", "")),
        archive(("a", ".."), ("a/out", "x")),
        archive(("a/out", "x"), ("a", "..")),
    ],
    ids=range(9),
)
def test_nothing_in_an_archive_of_a_store_gets_out_of_the_folder(
    data: bytes, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    with pytest.raises(OSError, match=r"unpacked|File exists"):
        unpack(data, str(tmp_path / "work"))
    assert [path.name for path in tmp_path.iterdir()] == ["work"]
