"""Who runs the sandbox in a test, and where."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from tests.conftest import FULL
from tests.machine import NOBODY, interpreter, packages, remove, require, script, solid_ground
from tests.sandbox.host import GIT as GIT

from toolrest.process.owner import Owner
from toolrest.sandbox.backends.launcher import disturbed

HERE = Path(__file__).parent
NEEDS = {
    **dict.fromkeys(("bubblewrap", "chroot", "docker", "gvisor"), "namespaces"),
    "landlock": "landlock",
    "none": "mounts",
}
"""What each backend needs; without one, root's probes run where they may mount something."""

World = Callable[..., dict[str, Any]]


def users() -> list[str]:
    """As root there are two of them; an ordinary user has only itself."""
    return ["root", "user"] if os.geteuid() == 0 else ["user"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The short run takes one user for each test of guard and backends, the full run both.

    The escape and everyday probes have both in every run.
    """
    if FULL or len(users()) == 1:
        return
    others = [item for item in items if _is_other_users(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        left = set(others)
        items[:] = [item for item in items if item not in left]


def _is_other_users(item: pytest.Item) -> bool:
    params: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    if "user" not in params or item.path.parent.name not in ("guard", "backends"):
        return False
    name, _, ids = item.name.partition("[")
    case = name + ids.replace(str(params["user"]), "", 1)
    return params["user"] != users()[crc32(case.encode()) % 2]


@pytest.fixture(scope="session", params=users())
def user(request: pytest.FixtureRequest) -> str:
    """Whose processes Toolrest and the command are."""
    return str(request.param)


@pytest.fixture(scope="session", params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest) -> str:
    """What confines."""
    require(NEEDS[request.param])
    return str(request.param)


@pytest.fixture(scope="session")
def python(user: str) -> str:
    """A Python that the user of this test can start."""
    return interpreter(ordinary=user == "user")


@pytest.fixture(scope="session")
def ground() -> Iterator[Path]:
    """A place that a sandbox shows as it is, unlike /tmp, and that every user can get to."""
    made = Path(tempfile.mkdtemp(prefix="toolrest-test-", dir=solid_ground()))
    made.chmod(0o755)
    yield made
    remove(str(made))


@pytest.fixture
def place(ground: Path, user: str) -> Path:
    """A fresh folder that belongs to the user of this test."""
    made = Path(tempfile.mkdtemp(dir=ground))
    made.chmod(0o755)
    if user == "user" and os.geteuid() == 0:
        os.chown(made, NOBODY, NOBODY)
    return made


def suid_program(folder: Path, user: str) -> None:
    """A copy of `id` that would change its user, if the sandbox let it."""
    if os.geteuid() != 0:
        return
    folder.mkdir(exist_ok=True)
    target = folder / "suid"
    shutil.copy("/usr/bin/id", target)
    os.chown(target, NOBODY if user == "root" else 0, 0)
    target.chmod(0o4755)
    if user == "user":
        os.chown(folder, NOBODY, NOBODY)


@pytest.fixture(scope="session")
def world(ground: Path) -> World:
    """Run the host script as a user, in a world of its own; the same wish is run only once.

    Where another test mounted something while the sandbox was being made, nothing was run, and it
    is tried again, as the message tells the caller of the tool.
    """
    kept: dict[str, dict[str, Any]] = {}

    def run(user: str, **wish: Any) -> dict[str, Any]:
        require(NEEDS[wish["backend"]])
        key = json.dumps([user, wish], sort_keys=True)
        tries = 0
        while key not in kept and (tries := tries + 1) < 5:
            answer = run_host(ground, user, wish)
            if tries == 4 or not disturbed(answer.get("text", ""), 1):
                kept[key] = answer
        return kept[key]

    return run


def as_user(user: str) -> dict[str, Any]:
    """Arguments for subprocess that drop to this user."""
    if user == "root" or os.geteuid() != 0:
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def environment(home: Path) -> dict[str, str]:
    """What a child needs to import Toolrest with another Python."""
    return {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(home),
        "PYTHONPATH": packages(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOOLREST_HOME": str(home / ".toolrest"),
    }


@pytest.fixture
def run_as(place: Path, user: str) -> Callable[..., str]:
    """Run a program as the user of this test, in its folder `work`; what it printed."""
    home, workspace = place / "home", place / "work"
    for folder in (home, workspace):
        folder.mkdir()
        os.chown(folder, place.stat().st_uid, place.stat().st_gid)

    def run(*argv: str, **env: str) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            argv, env=environment(home) | env, cwd=workspace,
            capture_output=True, text=True, timeout=120, **as_user(user),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def run_host(
    ground: Path,
    user: str,
    wish: dict[str, Any],
    prepare: Callable[[Path], None] = lambda base: None,
    seconds: float = 110,
) -> dict[str, Any]:
    """Run the host script in a new folder, which is prepared first; what it found out."""
    base = Path(tempfile.mkdtemp(dir=ground))
    base.chmod(0o755)
    prepare(base)
    if user == "user" and os.geteuid() == 0:
        os.chown(base, NOBODY, NOBODY)
    suid_program(base / "outside", user)
    settings = {"base": str(base), **wish}
    done = subprocess.run(
        [interpreter(ordinary=user == "user"), script(HERE / "host.py"), json.dumps(settings)],
        cwd="/",
        env=environment(base / "home"),
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=seconds,
        **as_user(user),
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    lines = answer.get("text", "").splitlines()
    answer["rows"] = dict(line.split("\t") for line in lines if "\t" in line)
    return answer


@dataclass
class Result:
    """How one confined command went."""

    text: str = ""
    code: int | None = None
    refused: str = ""
    backend: str = ""


class Person:
    """The user of a test, with a folder of its own: does things outside, or confined."""

    def __init__(self, name: str, place: Path) -> None:
        self.name = name
        self.place = place
        self.home = place / "home"
        self.workspace = place / "ws"
        self.env: dict[str, str] = {}
        self.do(f"mkdir -p {self.home} {self.workspace}")

    def do(self, line: str, cwd: Path | None = None) -> str:
        """A shell line outside the sandbox, as this user."""
        done = subprocess.run(
            ["sh", "-ec", line],
            cwd=cwd or self.place,
            env=environment(self.home) | GIT,
            capture_output=True,
            text=True,
            timeout=60,
            **as_user(self.name),
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def confined(
        self, *lines: str, backend: str | None = "bubblewrap", **wish: Any
    ) -> list[Result]:
        """Shell lines in one sandboxed session, one command each."""
        require(NEEDS.get(backend or "", "sandbox"))
        settings = {
            "workspace": str(self.workspace),
            "session_dir": str(self.place / "session"),
            "registry": str(self.place / "registry"),
            "backend": backend,
            "commands": [["sh", "-c", line] for line in lines],
            "env": {"PATH": "/usr/bin:/bin", "HOME": str(self.home), **GIT, **wish.pop("env", {})},
        }
        done = subprocess.run(
            [
                interpreter(ordinary=self.name == "user"),
                script(HERE / "session.py"),
                json.dumps(settings | wish),
            ],
            cwd="/",
            env=environment(self.home) | self.env,
            capture_output=True,
            text=True,
            timeout=110,
            **as_user(self.name),
        )
        assert done.returncode == 0, done.stderr
        return [Result(**entry) for entry in json.loads(done.stdout)]


@pytest.fixture
def person(user: str, place: Path) -> Person:
    """The user of this test."""
    return Person(user, place)


@pytest.fixture
def listen() -> Iterator[Callable[[str], list[bytes]]]:
    """Listen on a unix socket and remember who came."""
    servers: list[socket.socket] = []

    def start(path: str) -> list[bytes]:
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen()
        servers.append(server)
        seen: list[bytes] = []

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                    seen.append(client.recv(1))
                    client.close()
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        return seen

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    """Ends what a failed test leaves running."""
    made = Owner()
    yield made
    await made.aclose()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A port of this machine that answers each request with `hello`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline():
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
