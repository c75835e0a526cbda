"""A command that runs cannot bend what the next one sees, nor make Toolrest write elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import pytest

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.sandbox.confine import Confined, SessionSandbox
from toolrest.sandbox.policy import SandboxPolicy

pytestmark = pytest.mark.needs("namespaces")

ADVERSARY = """
import os, sys, itertools

ws, target = sys.argv[1:3]
names = [".git", ".git/hooks", ".git/info", ".git/info/attributes", ".git/commondir", ".codex",
         ".envrc", ".vscode", "sub", "sub/.env", "sub/deep", "sub/deep/own", "."]
os.chdir(ws)
print("ready", flush=True)
for turn in itertools.count():
    if os.path.exists("stop"):
        break
    for name in names:
        for goal in (target, "/oldroot" + target, target + "/made"):
            for act in (lambda: os.rename(name, name + "x"), lambda: os.unlink(name),
                        lambda: os.rmdir(name), lambda: os.symlink(goal, name),
                        lambda: os.chmod(name, 0o555), lambda: os.chmod(name, 0o755)):
                try:
                    act()
                except OSError:
                    pass
"""


@pytest.fixture
def base(ground: Path) -> Path:
    made = Path(tempfile.mkdtemp(dir=ground))
    workspace = made / "ws"
    for folder in ("ws/sub/deep/own", "target", "session", "ws/.git/hooks", "ws/.git/info"):
        (made / folder).mkdir(parents=True)
    (workspace / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (workspace / ".git/config").write_text("[core]\n")
    (workspace / "sub/.env").write_text("SECRET\n")
    return made


class Started:
    """A command that runs, and how to end it."""

    def __init__(self, owner: Owner, confined: Confined) -> None:
        self.owner = owner
        self.confined = confined

    async def go(self) -> None:
        self.child = await self.owner.start(self.confined.command, merge=True)
        self.stream = os.fdopen(self.child.outputs[0], "rb")

    async def end(self) -> str:
        text = await asyncio.to_thread(self.stream.read)
        await self.child.wait()
        await self.child.kill()
        self.stream.close()
        self.confined.release()
        return text.decode(errors="replace")


@pytest.mark.slow
async def test_an_adversary_beside_other_commands(base: Path, full: bool) -> None:
    workspace, target = base / "ws", base / "target"
    policy = SandboxPolicy.build(
        str(workspace),
        str(base / "session"),
        hidden=[str(workspace / "sub/.env")],
        writable_roots=[str(workspace / "sub/deep/own")],
    )
    sandbox, owner = SessionSandbox(policy), Owner()

    def confined(*argv: str) -> Confined:
        command = Command(argv, str(workspace), {"PATH": "/usr/bin:/bin"})
        return sandbox.confine(command, late=True)

    adversary = Started(
        owner, confined(sys.executable, "-I", "-c", ADVERSARY, str(workspace), str(target))
    )
    await adversary.go()
    assert await asyncio.to_thread(adversary.stream.readline) == b"ready\n"
    attempts = "cat sub/.env; echo x > .git/hooks/y; touch .codex/z; cat .git/commondir"
    said = ""
    for _ in range(100 if full else 15):
        one = Started(owner, confined("/bin/sh", "-c", attempts))
        await one.go()
        said += await one.end()
    (workspace / "stop").touch()
    await adversary.end()
    await owner.aclose()
    assert "SECRET" not in said
    assert list(target.iterdir()) == []
    assert os.listdir(workspace / ".git/hooks") == []
    assert not (workspace / ".git/commondir").exists()
    assert (workspace / "sub/.env").read_text() == "SECRET\n"


async def test_an_adversary_before_other_commands(base: Path) -> None:
    """What one command leaves behind for the next: folders without permission, links."""
    workspace, target = base / "ws", base / "target"
    policy = SandboxPolicy.build(str(workspace), str(base / "session"))
    sandbox, owner = SessionSandbox(policy), Owner()
    tricks = [
        "chmod 555 .git/info .git sub .",
        f"mv .git/info i; ln -s {target} .git/info; ln -s /oldroot{target} .git/info",
        f"chmod 755 . .git; rm -rf .git/info; ln -s {target} .git/info",
        f"rm -rf .git/refs .git/objects; ln -s {target} .git/objects; ln -s {target} .git/refs",
        f"ln -s {target}/x .envrc; ln -s {target} .vscode; mkdir -p a; ln -s {target} a/.git",
    ]
    for trick in [*tricks, *reversed(tricks)]:
        confined = sandbox.confine(
            Command(("/bin/sh", "-c", trick), str(workspace), {"PATH": "/usr/bin:/bin"}), late=True
        )
        one = Started(owner, confined)
        await one.go()
        await one.end()
    await owner.aclose()
    assert list(target.iterdir()) == []
    assert not (workspace / ".git/info").is_symlink()


async def test_many_at_once(base: Path, full: bool) -> None:
    workspace = base / "ws"
    policy = SandboxPolicy.build(str(workspace), str(base / "session"))
    sandbox, owner = SessionSandbox(policy), Owner()

    async def one(number: int) -> str:
        line = f"echo {number}; touch .codex/x 2>&1 | tail -c 23"
        confined = sandbox.confine(
            Command(("/bin/sh", "-c", line), str(workspace), {"PATH": "/bin"}), late=True
        )
        started = Started(owner, confined)
        await started.go()
        return await started.end()

    count = 60 if full else 12
    said = await asyncio.gather(*(one(number) for number in range(count)))
    assert said == [f"{number}\n Read-only file system\n" for number in range(count)]
    assert sorted(os.listdir(workspace)) == [".git", "sub"]
    await owner.aclose()
