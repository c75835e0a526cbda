"""What runs beside a session and may write in its folders cannot bend what its commands see."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from toolrest.process.command import Command
from toolrest.process.helper import wire
from toolrest.process.owner import Owner
from toolrest.sandbox.backends.launcher import disturbed
from toolrest.sandbox.confine import Backend, Confined, SessionSandbox
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.guard.neighbours import Neighbours
from toolrest.sandbox.policy import SandboxPolicy

Sandbox = Callable[..., SessionSandbox]


@pytest.fixture
def base(ground: Path) -> Path:
    """A workspace with a folder in it that has a secret, and a folder outside with another one."""
    made = Path(tempfile.mkdtemp(dir=ground))
    for folder in ("ws/sub/deep", "ws/.git/hooks", "target"):
        (made / folder).mkdir(parents=True)
    (made / "ws/.git/HEAD").write_text("ref: refs/heads/main\n")
    (made / "ws/.git/config").write_text("[core]\n")
    (made / "ws/sub/.env").write_text("SECRET\n")
    (made / "target/.env").write_text("TARGET\n")
    return made


@pytest.fixture
def sandbox(base: Path) -> Sandbox:
    """Another session's sandbox, of the same user."""

    def make(folder: str, backend: Backend | None = "bubblewrap", **more: object) -> SessionSandbox:
        session = tempfile.mkdtemp(dir=base)
        policy = SandboxPolicy.build(str(base / folder), session, **more)  # type: ignore[arg-type]
        return SessionSandbox(policy, backend=backend, registry=str(base / "records"))

    return make


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    made = Owner()
    yield made
    await made.aclose()


def confined(sandbox: SessionSandbox, line: str, cwd: str = "/") -> Confined:
    command = Command(("/bin/sh", "-c", line), cwd, {"PATH": "/usr/bin:/bin"})
    return sandbox.confine(command, late=True)


async def ran(owner: Owner, sandbox: SessionSandbox, line: str, cwd: Path) -> str:
    """What a line prints; repeated where mounts of other tests were in the way of bubblewrap."""
    text = ""
    for _ in range(5):
        text = await said(owner, confined(sandbox, line, str(cwd)))
        if not disturbed(text, 1) and not text.encode().startswith(wire.CHANGED):
            break
    return text


async def said(owner: Owner, started: Confined) -> str:
    try:
        child = await owner.start(started.command, merge=True)
        with os.fdopen(child.outputs[0], "rb") as stream:
            text = await asyncio.to_thread(stream.read)
        await child.wait()
        await child.kill()
    finally:
        started.release()
    return text.decode(errors="replace")


def bend(folder: Path, target: str) -> None:
    """What a command of another session can do to a folder that its own sandbox does not guard."""
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(target)


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("guards", ["a root of its own", "a hidden file", "a folder to read"])
async def test_a_folder_that_becomes_a_link_while_a_command_starts(
    base: Path, sandbox: Sandbox, owner: Owner, guards: str
) -> None:
    if guards == "a root of its own":
        one = sandbox("ws/sub")
    elif guards == "a hidden file":
        one = sandbox("ws", hidden=[str(base / "ws/sub/.env")])
    else:
        one = sandbox("ws/sub", mode="read-only", hidden=[str(base / "target")])
    one.choose()
    beside = confined(sandbox("ws"), "sleep 100")
    target = base / "target"
    starting = confined(one, f"touch {target}/new; cat {target}/.env {base}/ws/sub/.env")
    bend(base / "ws/sub", "../target")
    text = await said(owner, starting)
    beside.release()
    assert not (target / "new").exists()
    assert "nothing was run" in text or "bwrap: " in text
    assert not {"SECRET", "TARGET"} & set(text.split())


@pytest.mark.needs("namespaces")
async def test_commands_beside_those_of_another_session_see_what_they_should(
    base: Path, sandbox: Sandbox, owner: Owner
) -> None:
    ws = base / "ws"
    hidden = [str(ws / "sub/.env"), str(base / "target")]
    one = sandbox("ws", hidden=hidden, writable_roots=[str(ws / "sub/deep")])
    line = "cat sub/.env; touch .git/hooks/x .codex/x sub/deep/made; ls -A ../target; echo end"
    alone = await ran(owner, one, line, ws)
    beside = confined(sandbox("ws/sub"), "sleep 100")
    with_another = confined(one, line, str(ws))
    assert with_another.command.check is not None
    with_another.release()
    assert await ran(owner, one, line, ws) == alone
    assert alone.endswith("end\n")
    beside.release()
    without = confined(one, line, str(ws))
    assert without.command.check is None
    without.release()


@pytest.mark.needs("namespaces")
async def test_many_hidden_files_beside_another_session(
    base: Path, sandbox: Sandbox, owner: Owner
) -> None:
    files = [base / f"ws/sub/deep/{number}.pem" for number in range(40)]
    for file in files:
        file.write_text("SECRET\n")
    one = sandbox("ws", hidden=[str(file) for file in files])
    beside = confined(sandbox("ws"), "sleep 100")
    text = await ran(owner, one, "cat sub/deep/*.pem; echo end", base / "ws")
    beside.release()
    assert "SECRET" not in text
    assert text.endswith("end\n")


@pytest.mark.parametrize("mode", ["workspace-write", "read-only"])
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("bubblewrap", marks=pytest.mark.needs("namespaces")),
        pytest.param("landlock", marks=pytest.mark.needs("landlock")),
    ],
)
def test_a_workspace_that_was_replaced_by_a_link(
    base: Path, sandbox: Sandbox, backend: Backend, mode: str
) -> None:
    one = sandbox("ws/sub", backend, mode=mode)
    one.choose()
    bend(base / "ws/sub", "../target")
    with pytest.raises(SandboxUnavailable, match="reached through a symbolic link"):
        confined(one, "true")


@pytest.mark.needs("landlock")
async def test_landlock_grants_nothing_behind_a_link(
    base: Path, sandbox: Sandbox, owner: Owner
) -> None:
    """No mount keeps a command from replacing a root in a root."""
    one = sandbox("ws", "landlock", writable_roots=[str(base / "ws/sub/deep")])
    starting = confined(one, f"touch {base}/ws/sub/deep/new; echo end")
    bend(base / "ws/sub/deep", "../../target")
    text = await said(owner, starting)
    assert os.listdir(base / "target") == [".env"]
    assert text.endswith("end\n")


def test_whose_commands_may_be_in_the_way(base: Path) -> None:
    def session(folder: str, **more: object) -> Neighbours:
        (base / folder).mkdir(exist_ok=True)
        policy = SandboxPolicy.build(
            str(base / folder),
            tempfile.mkdtemp(dir=base),
            **more,  # type: ignore[arg-type]
        )
        return Neighbours(policy, str(base / "records"))

    one, inner, other = session("ws"), session("ws/sub"), session("elsewhere")
    reading = session("ws", mode="read-only")
    assert not any(each.are_running() for each in (one, inner, other, reading))
    one.enter()
    one.enter()
    assert [each.are_running() for each in (one, inner, other, reading)] == [
        False,
        True,
        False,
        True,
    ]
    one.leave()
    assert inner.are_running()
    one.leave()
    assert not inner.are_running()
    reading.enter()
    assert not one.are_running()
    inner.enter()
    assert one.are_running()
    left = len(os.listdir(base / "records/running"))
    del one
    assert len(os.listdir(base / "records/running")) == left - 1


def test_the_files_of_processes_that_are_gone(base: Path) -> None:
    policy = SandboxPolicy.build(str(base / "ws"), tempfile.mkdtemp(dir=base))
    one = Neighbours(policy, str(base / "records"))
    one.enter()
    gone = base / "records/running" / f"{2**22}-0123"
    gone.write_text(str(base / "ws"))
    assert not one.are_running()
    other = Neighbours(policy, str(base / "records"))
    other.enter()
    assert not gone.exists()
    assert one.are_running()
