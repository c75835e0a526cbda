"""Folders that a server needs beyond the session's own: asked about, for exactly that folder."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import machine
from tests.mcp.conftest import FAKE

from toolrest import ApprovalRequest, Toolrest
from toolrest.agent.mcp.folders import MOST_ASKED, folder_for, installed_in
from toolrest.config.schema.mcp import McpServer
from toolrest.mcp.pins import Pins, launch_record
from toolrest.mcp.servers import Server

Open = Callable[..., Toolrest]
Fake = Callable[..., dict[str, Any]]


REFUSALS = (
    "EROFS: read-only file system, open '{}'",
    "[Errno 13] Permission denied: '{}'",
    "ENOENT: no such file or directory, mkdir '{}'",
)


class Approver:
    """Answers requests about folders, and remembers which; approves everything else."""

    def __init__(self, answer: bool = True) -> None:
        self.answer = answer
        self.folders: list[str] = []
        self.starts: list[str] = []

    def __call__(self, request: ApprovalRequest) -> bool:
        if request.tool != "mcp_server_folder":
            self.starts.append(request.diff)
            return True
        self.folders.append(request.diff)
        return self.answer


@pytest.fixture
def program() -> Iterator[Path]:
    """A server's folder that a session may only read."""
    folder = Path(tempfile.mkdtemp(prefix="server-", dir=machine.solid_ground()))
    shutil.copy(FAKE, folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def in_tmp() -> Iterator[Path]:
    """A server's folder in the host's /tmp, which a sandbox does not show."""
    base = Path(tempfile.mkdtemp(prefix="toolrest-test-", dir="/tmp"))
    (base / "app").mkdir()
    shutil.copy(FAKE, base / "app")
    yield base / "app"
    shutil.rmtree(base)


def server_in(folder: Path) -> dict[str, dict[str, Any]]:
    args = ["-S", "-E", str(folder / "fake_server.py"), "plain"]
    return {"fs": {"command": sys.executable, "args": args, "startup_timeout_sec": 60.0}}


async def write(rest: Toolrest, path: Path) -> str:
    await rest.wait_for_mcp()
    return (await rest.call("fs/files", {"text": str(path)})).text


@pytest.mark.slow
@pytest.mark.needs("sandbox")
async def test_a_server_that_writes_beside_its_program(open_rest: Open, program: Path) -> None:
    approver = Approver()
    async with open_rest(server_in(program), on_ask=approver) as rest:
        refused = await write(rest, program / "notes.txt")
        assert "repeat the call" in refused
        assert approver.folders == [f"+ write: {program}"]
        assert await write(rest, program / "notes.txt") == "written"
        # That folder, not the one around it; and only by this server.
        assert "written" not in await write(rest, program.parent / "notes.txt")
    assert (program / "notes.txt").read_text() == "written"
    assert not (program.parent / "notes.txt").exists()
    nobody = Approver(False)
    async with open_rest(server_in(program), on_ask=nobody) as rest:
        assert await write(rest, program / "more.txt") == "written"
    assert nobody.folders == []


@pytest.mark.slow
@pytest.mark.needs("sandbox")
async def test_a_program_that_its_server_has_changed_is_asked_about(
    open_rest: Open, program: Path
) -> None:
    async with open_rest(server_in(program), on_ask=Approver()) as rest:
        await write(rest, program / "notes.txt")
        assert await write(rest, program / "fake_server.py") == "written"
    async with open_rest(server_in(program), on_ask="deny") as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        assert "changed since it was approved" in rest.mcp.status()[0].reason


@pytest.mark.needs("sandbox")
async def test_an_approved_folder_outlives_the_approval_of_a_changed_program(
    open_rest: Open, program: Path
) -> None:
    async with open_rest(server_in(program), on_ask=Approver()) as rest:
        await write(rest, program / "notes.txt")
    source = program / "fake_server.py"
    source.write_text(source.read_text() + "# changed\n")
    approver = Approver()
    async with open_rest(server_in(program), on_ask=approver) as rest:
        assert await write(rest, program / "notes.txt") == "written"
    assert approver.folders == []
    assert f"\n  write: {program} (approved before)" in approver.starts[0]
    async with open_rest(server_in(program), on_ask="deny") as rest:  # nor is the start asked about
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        assert rest.mcp.status()[0].reason == ""


def test_folders_that_go_with_a_new_launch(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    row = McpServer(command="server", args=("a",))
    server = Server("s", row, "user", "config.toml")
    pins = Pins(str(tmp_path / "pins.json"))
    pins.put_launch(server, launch_record(server, "/bin/server"))
    pins.put_folder(server, str(here), "write", None)
    pins.put_folder(server, str(there), "read", None)
    there.rmdir()
    there.symlink_to(here)
    pins.put_launch(server, launch_record(server, "/bin/server", {"x": "1"}))
    assert Pins(pins.path).folders(server) == {str(here): "write"}
    moved = McpServer(command="server", args=("a",), cwd=str(tmp_path))
    assert pins.folders(Server("s", moved, "user", "config.toml")) == {}
    other = Server("s", McpServer(command="server", args=("b",)), "user", "config.toml")
    assert pins.folders(other) == {}
    pins.put_launch(other, launch_record(other, "/bin/server"))
    assert Pins(pins.path).folders(other) == Pins(pins.path).folders(server) == {}


@pytest.mark.needs("sandbox")
async def test_a_file_is_no_folder_to_approve(
    open_rest: Open, fake_server: Fake, program: Path, toolrest_home: Path
) -> None:
    file = program / "data"
    file.touch()
    approver = Approver()
    async with open_rest({"fs": fake_server()}, on_ask=approver) as rest:
        await rest.wait_for_mcp()
        error = f"EEXIST: read-only file system, mkdir '{file}'"
        answer = await rest.call("fs/fail", {"text": error})
        assert approver.folders == [f"+ write: {file}"]
        assert f"{file} is not approved" in answer.text
    assert str(file) not in (toolrest_home / "mcp" / "pins.json").read_text()


class ChangesCode(Approver):
    """Changes a server's source while a folder is asked about; denies its start then."""

    def __init__(self, source: Path) -> None:
        super().__init__()
        self.source = source

    def __call__(self, request: ApprovalRequest) -> bool:
        if request.tool == "mcp_server_folder":
            self.source.write_text(self.source.read_text() + "# changed")
        return super().__call__(request) and request.tool != "mcp_server_start"


@pytest.mark.slow
@pytest.mark.needs("sandbox")
async def test_a_folder_is_no_approval_of_changed_code(
    open_rest: Open, fake_server: Fake, program: Path, tmp_path: Path
) -> None:
    approver = ChangesCode(tmp_path / "workspace" / "fake_server.py")
    async with open_rest({"fs": fake_server()}, on_ask=approver) as rest:
        assert "repeat the call" in await write(rest, program / "notes.txt")
        assert approver.folders == [f"+ write: {program}"]
        await write(rest, program / "notes.txt")
        assert rest.mcp is not None
        assert "changed since it was approved" in rest.mcp.status()[0].reason
    assert not (program / "notes.txt").exists()


@pytest.mark.needs("namespaces")
async def test_a_folder_in_tmp_is_no_approval_of_changed_code(
    open_rest: Open, in_tmp: Path, tmp_path: Path
) -> None:
    source = tmp_path / "workspace" / "fake_server.py"
    row = server_in(in_tmp)
    row["fs"]["args"].append(str(source))
    approver = ChangesCode(source)
    async with open_rest(row, on_ask=approver) as rest:
        await rest.wait_for_mcp()
        assert approver.folders == [f"+ read: {in_tmp}"]
        assert rest.mcp is not None
        assert "changed since it was approved" in rest.mcp.status()[0].reason


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("on_ask", ["deny", "allow", "user"])
async def test_a_folder_that_no_person_approves_stays_closed(
    open_rest: Open, program: Path, on_ask: str
) -> None:
    approver = Approver(False)
    asked = approver if on_ask == "user" else on_ask
    row = server_in(program)
    row["fs"]["default_tools_approval_mode"] = "approve"
    async with open_rest(row, on_ask=asked) as rest:
        for _ in range(2):
            refused = await write(rest, program / "notes.txt")
            assert f"{program} is not approved" in refused
            assert "mcp_servers.fs.writable_roots" in refused
    assert not (program / "notes.txt").exists()
    assert len(approver.folders) == (on_ask == "user")  # once a session


def made_code_folders(other: Path, home: Path) -> list[Path]:
    """Folders from which programs on the host run code."""
    names = (".git", ".git/hooks", ".vscode", "bin", "bare.git/hooks", "lib/site-packages")
    in_home = (
        *(".config/systemd/user", ".config/autostart", ".oh-my-zsh/custom", ".bashrc.d", "go/bin"),
        *(".vscode/extensions", ".local/share/applications", ".cargo/registry", ".local/lib/x"),
    )
    made = [*(other / name for name in names), *(home / name for name in in_home)]
    for folder in made:
        folder.mkdir(parents=True, exist_ok=True)
    return made


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.needs("namespaces")
async def test_an_error_cannot_ask_for_just_any_folder(
    open_rest: Open, fake_server: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, tools = tmp_path / "home", tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    never = [
        *("/x", "/etc/cron.d/x", "/usr/lib/x", "/proc/x", f"{home}/.bashrc"),
        *(f"{home}/.ssh/x", f"{home}/.config/autostart/x", f"{home}/.cache", f"{tools}/x"),
        *(f"{tmp_path}", f"{os.environ['TOOLREST_HOME']}/x", f"{sys.prefix}/bin/x"),
        *(f"{made}/x" for made in made_code_folders(tmp_path / "other", home)),
    ]
    approver = Approver()
    async with open_rest({"fs": fake_server()}, on_ask=approver) as rest:
        await rest.wait_for_mcp()
        for path in never:
            for error in REFUSALS:
                await rest.call("fs/fail", {"text": error.format(path)})
        assert approver.folders == []
        approver.answer = False
        for number in range(2 * MOST_ASKED):
            folder = tmp_path / f"data{number}"
            folder.mkdir()
            for error in REFUSALS:
                await rest.call("fs/fail", {"text": error.format(f"{folder}/x")})
    assert len(approver.folders) == MOST_ASKED


@pytest.mark.needs("namespaces")
async def test_a_server_that_is_installed_in_tmp(open_rest: Open, in_tmp: Path) -> None:
    denied = Approver(False)
    async with open_rest(server_in(in_tmp), on_ask=denied) as rest:
        await rest.wait_for_mcp()
        assert rest.mcp is not None
        assert f"its program lies in {in_tmp}" in rest.mcp.status()[0].reason
        assert "toolrest mcp approve fs" in rest.mcp.status()[0].reason
    approver = Approver()
    async with open_rest(server_in(in_tmp), on_ask=approver) as rest:
        await rest.wait_for_mcp()
        assert approver.folders == denied.folders == [f"+ read: {in_tmp}"]
        assert (await rest.call("fs/echo", {"text": "here"})).text == "here"
        assert "Read-only" in (await rest.call("fs/files", {"text": str(in_tmp / "x")})).text
        # What lies beside it is still not there.
        (in_tmp.parent / "other").mkdir()
        other = await rest.call("fs/files", {"text": str(in_tmp.parent / "other" / "x")})
        assert other.failed
    async with open_rest(server_in(in_tmp), on_ask=denied) as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("fs/echo", {"text": "again"})).text == "again"
    assert len(denied.folders) == 1


def test_the_folder_of_a_program_in_tmp(in_tmp: Path) -> None:
    base = in_tmp.parent
    package = base / "node_modules" / "@scope" / "server" / "dist"
    environment = base / "env" / "bin"
    for folder in (package, environment, base / "src" / "deep"):
        folder.mkdir(parents=True)
    (environment.parent / "pyvenv.cfg").touch()
    (base / "src" / "package.json").touch()
    assert installed_in(str(package / "index.js")) == str(base)
    assert installed_in(str(environment / "server")) == str(environment.parent)
    assert installed_in(str(base / "src" / "deep" / "x.js")) == str(base / "src")
    assert installed_in(str(in_tmp / "fake_server.py")) == str(in_tmp)
    assert installed_in("/tmp/server.py") == "/tmp/server.py"
    assert installed_in("/tmp/node_modules/x/x.js") == "/tmp/node_modules"


def test_the_folder_to_approve_is_the_smallest_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path.resolve() / "home"
    (home / ".cache" / "tool").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    cache = home / ".cache"
    assert folder_for(f"{cache}/tool/db.sqlite", "") == f"{cache}/tool"
    assert folder_for(f"{cache}/new", "") == f"{cache}/new"
    assert folder_for(f"{cache}/new/deep/db.sqlite", "") == f"{cache}/new"
    assert folder_for(f"{cache}/tool/profile", f"mkdir '{cache}/tool/profile'") == (
        f"{cache}/tool/profile"
    )
    assert folder_for(f"{cache}/db.sqlite", "") == str(cache)
    assert folder_for(f"{home}/data", "") == str(home)
    assert folder_for(f"{home}/data", f"mkdir '{home}/data'") == f"{home}/data"
    shutil.rmtree(cache)
    assert folder_for(f"{cache}/new/deep", "") == f"{cache}/new"
