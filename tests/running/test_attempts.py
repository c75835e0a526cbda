"""A command starts although files and mounts of the machine come and go at that very moment."""

from __future__ import annotations

import os
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.machine import solid_ground

from toolrest import Toolrest
from toolrest.running.attempts import HeldReports
from toolrest.sandbox.backends.bubblewrap import BubblewrapEngine
from toolrest.sandbox.backends.launcher import ATTEMPTS

pytestmark = pytest.mark.needs("namespaces")


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=solid_ground()) as folder:
        Path(folder, "work").mkdir()
        yield Path(folder)


Changes = list[Callable[[], object]]


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Changes:
    """Changes of the machine, each made once: after a look at it, before bubblewrap's."""
    made: Changes = []
    join = BubblewrapEngine._join

    def looked(self: BubblewrapEngine, variables: bytes) -> Any:
        joined = join(self, variables)
        if made:
            made.pop(0)()
        return joined

    monkeypatch.setattr(BubblewrapEngine, "_join", looked)
    return made


def make(place: Path, names: Sequence[str]) -> list[Path]:
    """Empty folders in the workspace, and for searches, files."""
    made = [place / "work" / name for name in names]
    for path in made:
        path.write_text("SECRET") if path.name.startswith(".env") else path.mkdir()
    return made


PROTECTED = (".vscode", ".agents", ".codex", ".toolrest", ".mcp.json")
assert len(PROTECTED) == ATTEMPTS
SETTINGS = {"approval_policy": "never"}
RUNS: dict[str, dict[str, Any]] = {
    "exec_command": {"cmd": "echo one >> ran; cat ran"},
    "shell": {"command": ["/bin/sh", "-c", "echo one >> ran; cat ran"]},
}


@pytest.mark.parametrize("tool", RUNS)
async def test_a_command_is_started_again_when_its_sandbox_could_not_be_made(
    place: Path, changes: Changes, tool: str
) -> None:
    files = make(place, PROTECTED[:2])
    async with Toolrest(place / "work", settings=SETTINGS, tools=["all"]) as rest:
        await rest.call(tool, RUNS[tool])
        (place / "work/ran").unlink()
        events: list[Any] = []
        rest.subscribe(events.append)
        changes.extend(path.rmdir for path in files)
        done = await rest.call(tool, RUNS[tool])
        assert done.failure is None, done.text
        assert changes == []
    assert (place / "work/ran").read_text() == "one\n"
    assert "bwrap" not in done.text + repr(events)
    kinds = Counter(type(event).__name__ for event in events)
    assert (kinds["ExecCommandBegin"], kinds["ExecCommandEnd"]) == (1, 1)
    ids = {event.process_id for event in events if hasattr(event, "process_id")}
    assert len(ids) == 1


@pytest.mark.parametrize("tool", RUNS)
async def test_a_machine_that_changes_again_and_again_is_told(
    place: Path, changes: Changes, tool: str
) -> None:
    files = make(place, PROTECTED)
    async with Toolrest(place / "work", settings=SETTINGS, tools=["all"]) as rest:
        await rest.call(tool, RUNS[tool])
        (place / "work/ran").unlink()
        changes.extend(path.rmdir for path in files)
        done = await rest.call(tool, RUNS[tool])
        assert done.failure is not None
        assert "nothing was run: files or mounts of this machine changed" in done.text
        assert "blocked writing" not in done.text
        assert not (place / "work/ran").exists()
        assert "one" in (await rest.call(tool, RUNS[tool])).text


async def test_a_search_is_started_again(place: Path, changes: Changes) -> None:
    (place / "work/file").write_text("needle\n")
    files = make(place, [f".env.{number}" for number in range(2)])
    async with Toolrest(place / "work", settings=SETTINGS, tools=["all"]) as rest:
        await rest.call("grep_files", {"pattern": "needle"})
        changes.extend(path.unlink for path in files)
        assert f"{place}/work/file" in (await rest.call("grep_files", {"pattern": "needle"})).text
        assert changes == []


async def test_a_session_begins_while_the_machine_changes(place: Path, changes: Changes) -> None:
    files = make(place, PROTECTED[:2])
    changes.extend(path.rmdir for path in files)
    async with Toolrest(place / "work", settings=SETTINGS) as rest:
        assert "one" in (await rest.call("exec_command", RUNS["exec_command"])).text
        assert changes == []


@pytest.mark.parametrize("tool", RUNS)
async def test_a_command_that_speaks_like_the_launcher_runs_once(place: Path, tool: str) -> None:
    line = 'echo one >> ran; echo "bwrap: Can\'t find source path /x: gone" >&2; exit 1'
    call = {"cmd": line} if tool == "exec_command" else {"command": ["/bin/sh", "-c", line]}
    events: list[Any] = []
    async with Toolrest(place / "work", settings=SETTINGS, tools=["all"]) as rest:
        rest.subscribe(events.append)
        done = await rest.call(tool, call)
    assert (place / "work/ran").read_text() == "one\n"
    assert "Can't find source path" in done.text
    assert "nothing was run" not in done.text
    shown = [event for event in events if type(event).__name__ == "ExecCommandOutputDelta"]
    assert "Can't find source path" in repr(shown)


# While another command runs


@pytest.fixture
async def busy(place: Path) -> Any:
    """A session in which a command runs until the end; it began with these names there."""
    work = place / "work"
    listening = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for number, server in enumerate(listening):
        server.bind(str(work / f"{number}.sock"))
        server.listen()
    (work / ".env").write_text("SECRET")
    for number in range(2):
        (work / f"app{number}").mkdir()
        (work / f"app{number}/.env").write_text("SECRET")
    (work / ".vscode").mkdir()
    (work / ".vscode/tasks.json").write_text("{}")
    os.mkfifo(work / "go")
    async with Toolrest(work, settings={"approval_policy": "never"}) as rest:
        waits = {"cmd": "echo waits; head -n 1 go", "yield_time_ms": 250}
        assert "running with session ID" in (await rest.call("exec_command", waits)).text
        yield rest
    for server in listening:
        server.close()


async def test_what_was_masked_and_went_does_not_come_back_as_an_empty_file(
    busy: Toolrest, place: Path
) -> None:
    work = place / "work"
    (work / "0.sock").unlink()
    (work / ".env").unlink()
    (work / "app0/.env").unlink()
    (work / "app0").rmdir()
    left = sorted(path.name for path in work.iterdir() if path.name not in (".git", ".agents"))
    done = await busy.call("exec_command", {"cmd": "echo ran; ls; cat app1/.e*; touch new"})
    assert "ran\n" in done.text
    assert "SECRET" not in done.text
    now = {path.name for path in work.iterdir()}
    assert now >= {*left, "new"}
    assert not now & {"0.sock", ".env", "app0"}
    (work / ".env").write_text("SECRET")
    done = await busy.call("exec_command", {"cmd": "cat .e*; echo ran"})
    assert f"{work}/.env is hidden from commands and came back" in done.text
    (work / ".env").unlink()
    assert "ran\n" in (await busy.call("exec_command", {"cmd": "echo ran"})).text
    (work / "go").write_text("\n")
    (work / ".env").write_text("SECRET")


async def test_a_protected_folder_that_went_cannot_be_made(busy: Toolrest, place: Path) -> None:
    (place / "work/.vscode/tasks.json").unlink()
    (place / "work/.vscode").rmdir()
    done = await busy.call("exec_command", {"cmd": "echo > .vscode/tasks.json; echo ran"})
    assert f"{place}/work/.vscode was replaced while a command was running" in done.text
    assert not (place / "work/.vscode/tasks.json").exists()


async def test_a_start_that_is_refused_after_another_has_one_end(
    place: Path, changes: Changes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt is disturbed, the second finds a secret that just came."""
    work = place / "work"
    os.mkfifo(work / "go")
    make(place, PROTECTED[:1])
    async with Toolrest(work, settings=SETTINGS) as rest:
        await rest.call("exec_command", {"cmd": "head -n 1 go", "yield_time_ms": 250})
        events: list[Any] = []
        rest.subscribe(events.append)

        def change() -> None:
            (work / PROTECTED[0]).rmdir()
            (work / ".env").write_text("SECRET")

        changes.append(change)
        done = await rest.call("exec_command", {"cmd": "cat .e*"})
        assert "came while one was running" in done.text
    kinds = Counter(type(event).__name__ for event in events)
    assert kinds["ExecCommandBegin"] == 1
    assert len([e for e in events if type(e).__name__ == "ExecCommandEnd"]) >= 1
    ends = [e for e in events if type(e).__name__ == "ExecCommandEnd" and "cat" in repr(e.command)]
    assert len(ends) == 1


def test_reports_are_held_up_to_the_length_of_a_message() -> None:
    got: list[bytes] = []
    reports = HeldReports()
    report = reports.hold(got.append)
    assert report is not None
    report(b"bwrap: Can't find source path /x\n")
    assert got == []
    for _ in range(100):
        report(b"x" * 1000)
    assert len(b"".join(got)) == 33 + 100_000
