"""`undo`: what a turn changed comes back, what others did stays, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest import Toolrest, events
from toolrest.agent.undo.checkpoints import Checkpoints
from toolrest.agent.undo.records import CheckpointError, UndoError
from toolrest.agent.undo.scan import KeepLimits
from toolrest.items import FunctionCall
from toolrest.testing import Call


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def saved(work: Path, toolrest_home: Path) -> Checkpoints:
    return Checkpoints(str(toolrest_home), str(work))


def tree(folder: Path) -> dict[str, tuple[int, str | bytes]]:
    """Every path with its mode and its content or target."""
    found: dict[str, tuple[int, str | bytes]] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content: str | bytes = ""
        if stat.S_ISLNK(mode):
            content = os.readlink(path)
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = (mode, content)
    return found


@pytest.mark.usefixtures("any_sandbox")
async def test_deleted_files_come_back_and_a_persons_new_one_stays(work: Path) -> None:
    for name in ("a", "b", "c"):
        (work / name).write_text(name)
    async with Toolrest(work, tools=["all"]) as rest:
        await rest.call("exec_command", {"cmd": "rm a b c"})
        assert not any(work.iterdir())
        (work / "mine").write_text("by hand")
        first = await rest.undo()
        assert {path.name for path in work.iterdir()} == {"a", "b", "c", "mine"}
        await rest.undo(first.number)
        assert [path.name for path in work.iterdir()] == ["mine"]


@pytest.mark.usefixtures("any_sandbox")
async def test_a_patch_and_a_command_of_one_turn_go_back_together(work: Path) -> None:
    (work / "a.txt").write_text("one\n")
    before = tree(work)
    async with Toolrest(work, tools=["all"]) as rest:
        async with rest.turn() as turn:
            patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch"
            calls = [
                {"type": "function_call", "call_id": "1", "name": "apply_patch"}
                | {"arguments": f'{{"input": {patch!r}}}'.replace("'", '"')},
                {"type": "function_call", "call_id": "2", "name": "exec_command"}
                | {"arguments": '{"cmd": "mkdir d && echo x > d/new && chmod 600 a.txt"}'},
            ]
            await turn.answer(calls)
        assert (work / "a.txt").read_text() == "two\n"
        assert (work / "d" / "new").exists()
        await rest.undo()
    assert tree(work) == before


async def test_a_reading_turn_saves_nothing(work: Path, toolrest_home: Path) -> None:
    (work / "a").write_text("x")
    async with Toolrest(work, tools=["all"], home=toolrest_home) as rest:
        await rest.call("read_file", {"file_path": str(work / "a")})
    assert not (toolrest_home / "checkpoints").exists()


@pytest.mark.usefixtures("any_sandbox")
async def test_a_command_that_only_looks_saves_nothing(work: Path, toolrest_home: Path) -> None:
    (work / "a").write_text("x")
    async with Toolrest(work, tools=["all"], home=toolrest_home) as rest:
        assert "x" in (await rest.call("exec_command", {"cmd": "cat a | head -n 1"})).text
        assert not (toolrest_home / "checkpoints").exists()
        async with rest.turn() as turn:
            for number, line in enumerate(("cat a", "cat a > b", "cat b", "rm a")):
                turn.start(FunctionCall(str(number), "exec_command", {"cmd": line}))
        assert set(tree(work)) == {"b"}
        await rest.undo()
    assert set(tree(work)) == {"a"}


@pytest.mark.usefixtures("any_sandbox")
async def test_what_a_command_changed_is_in_the_audit(work: Path, toolrest_home: Path) -> None:
    (work / "a").write_text("x")
    async with Toolrest(work, tools=["all"], home=toolrest_home) as rest:
        await rest.call("exec_command", {"cmd": "echo y > a"})
    [log] = (toolrest_home / "audit").glob("*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    [line] = [line for line in lines if line.get("type") == "files"]
    assert line["files"] == [
        {
            "path": str(work / "a"),
            "before": hashlib.sha256(b"x").hexdigest(),
            "after": hashlib.sha256(b"y\n").hexdigest(),
        }
    ]


@pytest.mark.usefixtures("any_sandbox")
async def test_without_room_for_the_checkpoint_nothing_runs(
    work: Path, toolrest_home: Path
) -> None:
    (work / "a").write_text("x")
    (toolrest_home / "checkpoints").write_text("in the way")
    async with Toolrest(work, tools=["all"], home=toolrest_home) as rest:
        output = await rest.call("exec_command", {"cmd": "rm a"})
        assert output.failure is not None
        assert "could not be saved" in output.text
        assert "checkpoints.enabled = false" in output.text
        assert (work / "a").exists()
    async with Toolrest(
        work, tools=["all"], settings={"checkpoints.enabled": False}, home=toolrest_home
    ) as rest:
        assert (await rest.call("exec_command", {"cmd": "rm a"})).success
        with pytest.raises(UndoError, match="enabled is false"):
            await rest.undo()


def test_modes_links_and_folders_come_back(work: Path, saved: Checkpoints) -> None:
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    (work / "link").symlink_to("run.sh")
    (work / "empty").mkdir(0o750)
    (work / "deep" / "er").mkdir(parents=True)
    (work / "deep" / "er" / "f").write_text("f")
    (work / "becomes_dir").write_text("file")
    before = tree(work)
    turn = saved.begin()
    (work / "run.sh").chmod(0o600)
    (work / "link").unlink()
    (work / "link").symlink_to("/etc/passwd")
    (work / "empty").rmdir()
    (work / "deep" / "er" / "f").unlink()
    (work / "deep" / "er").rmdir()
    (work / "deep").rmdir()
    (work / "deep").symlink_to("/tmp")
    (work / "becomes_dir").unlink()
    (work / "becomes_dir").mkdir()
    (work / "becomes_dir" / "x").write_text("x")
    saved.end(turn)
    after = tree(work)
    undone = saved.undo()
    assert not undone.failed
    assert tree(work) == before
    assert undone.number is not None
    assert not saved.undo(undone.number).failed
    assert tree(work) == after


def test_undo_goes_back_turn_by_turn_and_to_any_turn(work: Path, saved: Checkpoints) -> None:
    numbers = []
    for text in ("one", "two", "three"):
        number = saved.begin(label=text)
        (work / "f").write_text(text)
        saved.end(number)
        numbers.append(number)
    saved.undo()
    assert (work / "f").read_text() == "two"
    saved.undo()
    assert (work / "f").read_text() == "one"
    again = saved.undo()
    assert not (work / "f").exists()
    assert again.number is not None
    with pytest.raises(UndoError, match="nothing to undo"):
        saved.undo()
    saved.undo(again.number)
    assert (work / "f").read_text() == "one"
    assert [turn.undone for turn in saved.turns()[:3]] == [False, True, True]
    with pytest.raises(UndoError, match="no turn 99"):
        saved.undo(99)


def test_what_somebody_changed_since_is_kept_unless_forced(work: Path, saved: Checkpoints) -> None:
    (work / "both").write_text("before")
    (work / "agent").write_text("before")
    turn = saved.begin()
    (work / "both").write_text("agent's")
    (work / "agent").write_text("agent's")
    saved.end(turn)
    (work / "both").write_text("person's")
    plan = saved.preview()
    assert [kept.path for kept in plan.kept] == ["both"]
    saved.undo()
    assert (work / "agent").read_text() == "before"
    assert (work / "both").read_text() == "person's"
    saved.undo(turn, force=True)
    assert (work / "both").read_text() == "before"


def test_a_folder_that_holds_somebody_elses_file_stays(work: Path, saved: Checkpoints) -> None:
    turn = saved.begin()
    (work / "new").mkdir()
    (work / "new" / "agents").write_text("x")
    saved.end(turn)
    (work / "new" / "mine").write_text("y")
    undone = saved.undo()
    assert [kept.path for kept in undone.failed] == ["new"]
    assert tree(work).keys() == {"new", "new/mine"}


def test_ignored_and_large_files_are_left_out_and_said(work: Path, toolrest_home: Path) -> None:
    subprocess.run(["git", "init", "-q", work], check=True)
    (work / ".gitignore").write_text("*.bin\nbuild/\n")
    (work / "build").mkdir()
    (work / "build" / "small").write_bytes(b"s")
    (work / "big.bin").write_bytes(b"b" * 5000)
    (work / "tracked.bin").write_bytes(b"t" * 5000)
    (work / "plain").write_bytes(b"p" * 50_000)
    subprocess.run(["git", "-C", work, "add", "-f", "tracked.bin"], check=True)
    limits = KeepLimits(ignored_file=1000, file=10_000)
    saved = Checkpoints(str(toolrest_home), str(work), limits)
    turn = saved.begin()
    left = {kept.path: kept.why for kept in saved.left_out()}
    assert left == {
        "big.bin": "ignored and over 1,000 bytes",
        "plain": "over 10,000 bytes",
    }
    for name in ("build/small", "big.bin", "tracked.bin", "plain"):
        (work / name).unlink()
    saved.end(turn)
    told: list[str] = []
    saved.undo(tell=lambda plan: told.extend(kept.path for kept in plan.lost))
    assert told == ["big.bin", "plain"]
    assert (work / "build" / "small").read_bytes() == b"s"
    assert (work / "tracked.bin").read_bytes() == b"t" * 5000


@pytest.mark.parametrize(
    ("rules", "inner"), [(".venv/\nnode_modules/\n", None), ("node_modules/\n", "*\n")]
)
def test_packages_that_git_ignores_are_not_copied(
    work: Path, toolrest_home: Path, saved: Checkpoints, rules: str, inner: str | None
) -> None:
    subprocess.run(["git", "init", "-q", work], check=True)
    (work / ".gitignore").write_text(rules)
    lib = work / ".venv" / "lib"
    lib.mkdir(parents=True)
    (work / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    if inner is not None:  # as `python -m venv` writes it
        (work / ".venv" / ".gitignore").write_text(inner)
    (work / "node_modules" / "left").mkdir(parents=True)
    for folder in (lib, work / "node_modules" / "left"):
        for n in range(20):
            (folder / f"m{n}").write_bytes(os.urandom(50_000))
    (work / "a").write_text("before")
    turn = saved.begin()
    packs = sum(file.stat().st_size for file in toolrest_home.rglob("*") if file.is_file())
    assert packs < 100_000
    assert [kept.path for kept in saved.left_out()] == [".venv", "node_modules"]
    (work / "a").write_text("after")
    (lib / "new").write_text("installed")
    (work / ".gitignore").write_text("")
    saved.end(turn)
    assert not saved.undo().failed
    assert (work / "a").read_text() == "before"
    assert len(list(lib.iterdir())) == 21, "nothing in it passes for the turn's"
    turn = saved.begin()
    shutil.rmtree(work / ".venv")
    saved.end(turn)
    assert [kept.path for kept in saved.preview().lost] == [".venv"]


def test_packages_that_git_tracks_are_kept(work: Path, saved: Checkpoints) -> None:
    subprocess.run(["git", "init", "-q", work], check=True)
    (work / ".gitignore").write_text("node_modules/\n")
    (work / "node_modules").mkdir()
    (work / "node_modules" / "ours.js").write_text("before")
    subprocess.run(["git", "-C", work, "add", "-f", "node_modules/ours.js"], check=True)
    turn = saved.begin()
    (work / "node_modules" / "ours.js").write_text("after")
    saved.end(turn)
    saved.undo()
    assert (work / "node_modules" / "ours.js").read_text() == "before"


def test_files_of_one_ignored_folder_are_left_out_in_one_line(
    work: Path, toolrest_home: Path
) -> None:
    subprocess.run(["git", "init", "-q", work], check=True)
    (work / ".gitignore").write_text("target/\n")
    (work / "target" / "debug").mkdir(parents=True)
    for n in range(16):
        (work / "target" / "debug" / f"lib{n}").write_bytes(b"x" * 2000)
    saved = Checkpoints(str(toolrest_home), str(work), KeepLimits(ignored_file=1000))
    saved.end(saved.begin())
    assert [tuple(kept) for kept in saved.left_out()] == [
        ("target/debug", "16 files: ignored and over 1,000 bytes")
    ]


def test_caches_are_neither_listed_nor_put_back(work: Path, saved: Checkpoints) -> None:
    cache = work / "pkg" / "__pycache__"
    cache.mkdir(parents=True)
    (cache / "a.pyc").write_text("old")
    (cache / "b.pyc").write_text("old")
    (work / "pkg" / "a.py").write_text("before")
    turn = saved.begin()
    (work / "pkg" / "a.py").write_text("after")
    (cache / "a.pyc").write_text("new")
    (work / "new" / "__pycache__").mkdir(parents=True)
    (work / "new" / "__pycache__" / "c.pyc").write_text("new")
    saved.end(turn)
    tests = saved.begin()
    (work / ".pytest_cache" / "v").mkdir(parents=True)
    (work / ".pytest_cache" / "v" / "lastfailed").write_text("{}")
    (cache / "b.pyc").write_text("newer")
    saved.end(tests)
    plan = saved.preview()
    assert plan.undoes == (turn,), "the other one changed only caches"
    assert [item.path for item in plan.items] == ["new", "pkg/a.py"]
    undone = saved.undo()
    assert (len(undone.done), undone.failed) == (2, [])
    assert tree(work).keys() == {"pkg", "pkg/a.py", "pkg/__pycache__"}
    assert (work / "pkg" / "a.py").read_text() == "before"


def test_a_file_that_a_call_names_is_kept_whatever_its_size_and_place(
    work: Path, tmp_path: Path, toolrest_home: Path
) -> None:
    large = work / "large"
    large.write_bytes(b"l" * 5000)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    saved = Checkpoints(str(toolrest_home), str(work), KeepLimits(file=1000))
    turn = saved.begin()
    paths = [str(large), str(elsewhere), str(tmp_path / "made")]
    assert not saved.covers(paths)
    saved.keep(paths)
    assert saved.covers(paths)
    large.write_bytes(b"x")
    elsewhere.write_text("changed")
    (tmp_path / "made").write_text("new")
    changed = saved.end(turn)
    assert changed.keys() == {"large", str(elsewhere), str(tmp_path / "made")}
    assert not saved.undo().failed
    assert large.read_bytes() == b"l" * 5000
    assert elsewhere.read_text() == "kept"
    assert not (tmp_path / "made").exists()


def test_a_named_file_in_a_folder_that_is_left_out_comes_back(
    work: Path, toolrest_home: Path
) -> None:
    for folder in ("a", "b", "c"):
        (work / folder).mkdir()
        for number in range(10):
            (work / folder / f"f{number}").write_text("before")
    saved = Checkpoints(str(toolrest_home), str(work), KeepLimits(entries=15))
    turn = saved.begin()
    left = [kept.path for kept in saved.left_out()]
    assert left
    named = work / left[0] / "f3"
    saved.keep([str(named)])
    named.write_text("after")
    assert saved.end(turn).keys() == {f"{left[0]}/f3"}
    saved.undo()
    assert named.read_text() == "before"


def test_unchanged_files_are_not_read_again(work: Path, saved: Checkpoints) -> None:
    for number in range(20):
        path = work / f"f{number}"
        path.write_text("x")
        os.utime(path, (1, 1))
    old = work / "f0"
    saved.end(saved.begin())
    os.chmod(work, 0o700)
    # Files just written are looked at once more; after that their stat is enough.
    time.sleep(0.05)
    saved.end(saved.begin())
    read: list[str] = []
    real = os.open

    def watching(path: object, *args: object, **kwargs: object) -> int:
        read.append(str(path))
        return real(path, *args, **kwargs)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", watching)
        saved.end(saved.begin())
    assert old.name not in read
    assert not [path for path in read if path.startswith("f")]


def test_a_change_with_the_same_size_and_time_is_seen(work: Path, saved: Checkpoints) -> None:
    path = work / "f"
    path.write_text("aaaa")
    os.utime(path, ns=(10**18, 10**18))
    turn = saved.begin()
    path.write_text("bbbb")
    os.utime(path, ns=(10**18, 10**18))
    assert saved.end(turn).keys() == {"f"}
    saved.undo()
    assert path.read_text() == "aaaa"


def test_contents_are_private(work: Path, saved: Checkpoints, toolrest_home: Path) -> None:
    (work / ".env").write_text("SECRET=1")
    saved.begin()
    folder = toolrest_home / "checkpoints"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.needs("sandbox")
async def test_no_tool_reaches_the_saved_contents(work: Path, toolrest_home: Path) -> None:
    (work / "a").write_text("needle-7311")
    async with Toolrest(work, tools=["all"], home=toolrest_home) as rest:
        await rest.call("exec_command", {"cmd": "echo > b"})
        [pack] = (toolrest_home / "checkpoints").glob("*/packs/*")
        read = await rest.call("read_file", {"file_path": str(pack)})
        assert "needle" not in read.text
        shown = await rest.call("exec_command", {"cmd": f"cat {pack} 2>&1"})
        assert "needle" not in shown.text


def test_a_damaged_content_is_said_and_does_no_harm(
    work: Path, saved: Checkpoints, toolrest_home: Path
) -> None:
    (work / "a").write_text("before")
    turn = saved.begin()
    (work / "a").write_text("after!")
    saved.end(turn)
    [pack] = (toolrest_home / "checkpoints").glob("*/packs/*")
    pack.write_bytes(b"damage" * 10)
    undone = saved.undo()
    assert "damaged" in undone.failed[0].why
    assert (work / "a").read_text() == "after!"
    assert [path.name for path in work.iterdir()] == ["a"]


def test_a_damaged_journal_is_an_error_that_names_it(
    work: Path, saved: Checkpoints, toolrest_home: Path
) -> None:
    saved.end(saved.begin())
    [journal] = (toolrest_home / "checkpoints").glob("*/journal.jsonl")
    journal.write_text("not json\n" * 50)
    fresh = Checkpoints(str(toolrest_home), str(work))
    with pytest.raises(CheckpointError, match=r"journal.jsonl is damaged"):
        fresh.begin()


NAMES = st.sampled_from(["a", "b", "d/x", "d/y", "d/e/z", "d", "d/e"])
KINDS = st.sampled_from(["file", "exec", "link", "dir", "gone"])
STEPS = st.lists(st.tuples(NAMES, KINDS, st.integers(0, 3)), max_size=8)


def _do(work: Path, name: str, kind: str, salt: int) -> None:
    path = work / name
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir() and kind != "dir":
        shutil.rmtree(path)
    if kind == "gone":
        return
    for parent in reversed(path.relative_to(work).parents[:-1]):
        place = work / parent
        if place.is_symlink() or place.is_file():
            place.unlink()
        place.mkdir(exist_ok=True)
    if kind == "link":
        path.symlink_to(f"target{salt}")
    elif kind == "dir":
        path.mkdir(exist_ok=True)
    else:
        path.write_text("same" if salt == 3 else str(salt))
        path.chmod(0o755 if kind == "exec" else 0o644)


@pytest.mark.slow
@given(st.lists(STEPS, min_size=1, max_size=4), st.data())
def test_any_turn_can_be_gone_back_to_and_forth(turns: list[object], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        work = Path(place, "work")
        work.mkdir()
        saved = Checkpoints(os.path.join(place, "home"), str(work))
        before = []
        for steps in turns:
            before.append(tree(work))
            haste = data.draw(st.booleans())
            number = (saved.at_once(saved.begin) if haste else None) or saved.begin()
            for name, kind, salt in steps:  # type: ignore[attr-defined]
                _do(work, name, kind, salt)
            if not haste or saved.at_once(partial(saved.end, number)) is None:
                saved.end(number)
        end = tree(work)
        chosen = data.draw(st.integers(1, len(turns)))
        undone = saved.undo(chosen)
        assert not undone.failed
        assert tree(work) == before[chosen - 1]
        if undone.number is not None:
            assert not saved.undo(undone.number).failed
        assert tree(work) == end


@pytest.mark.usefixtures("any_sandbox")
async def test_cancelling_a_call_does_not_wait_for_a_slow_checkpoint(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolrest.agent.undo.scan import Scan

    started = threading.Event()
    real = Scan.run

    def slow(self: Scan) -> None:
        started.set()
        while not self.cancelled():
            time.sleep(0.005)
        real(self)

    monkeypatch.setattr(Scan, "run", slow)
    async with Toolrest(work, tools=["all"]) as rest:
        async with rest.turn() as turn:
            running = turn.start(FunctionCall("1", "exec_command", {"cmd": "echo > made"}))
            assert await asyncio.to_thread(started.wait, 60)
            [answered] = await turn.cancel()
        assert answered.output.failure is not None
        assert answered.output.failure.kind == "aborted"
        assert running.done
        monkeypatch.setattr(Scan, "run", real)
        assert not (work / "made").exists()
        assert (await rest.call("exec_command", {"cmd": "echo > made"})).success
        await rest.undo()
    assert not (work / "made").exists()


async def test_a_whole_home_is_not_saved_and_the_warning_comes_once(
    work: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took half a minute and gigabytes."""
    monkeypatch.setenv("HOME", str(work))
    seen: list[events.Event] = []
    async with Toolrest(work, home=toolrest_home, on_ask=lambda _: True) as rest:
        rest.subscribe(seen.append)
        for name in ("a", "b"):
            output = await rest.call("write_file", {"file_path": name, "content": "x"})
            assert output.success
    warned = [
        e.message for e in seen if isinstance(e, events.Warning) and "checkpoints" in e.message
    ]
    assert len(warned) == 1
    assert not Checkpoints(str(toolrest_home), str(work)).turns()


async def test_the_list_has_the_prompt(agent: Any, workspace: Path, toolrest_home: Path) -> None:
    call = Call("write_file", {"file_path": "a", "content": "x"})
    session = agent([call, "done"], on_ask=lambda _: True)
    assert (await session.run("put an x into a\nand nothing else")).status == "completed"
    labels = [turn.label for turn in Checkpoints(str(toolrest_home), str(workspace)).turns()]
    assert labels[0].startswith("put an x into a | write_file")
