"""What the host mounts while a command runs is not for that command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.needs("namespaces", "mounts"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root's mounts are seen by a sandbox here"),
]

SESSION = """
import asyncio, os, subprocess, sys, time
from toolrest.process.command import Command
from toolrest.process.helper import tree
from toolrest.process.owner import Owner
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.policy import SandboxPolicy

base, place = sys.argv[1:]
workspace = base + "/ws"

async def main():
    os.mkdir(workspace)
    os.mkfifo(workspace + "/go")
    policy = SandboxPolicy.build(workspace, base + "/session")
    sandbox = SessionSandbox(policy, backend="bubblewrap", registry=base + "/records")
    line = f"echo ready; read _ <go; touch {place}/new && echo wrote; cat {place}/.env; echo end"
    confined = sandbox.confine(Command(("/bin/sh", "-c", line), workspace, {"PATH": "/bin"}))
    owner = Owner()
    child = await owner.start(confined.command, merge=True)
    with os.fdopen(child.outputs[0], "rb") as stream:
        assert await asyncio.to_thread(stream.readline) == b"ready\\n"
        inside = tree.children(child.pid)[0]
        until = time.monotonic() + 60
        while "master:" in open(f"/proc/{inside}/mountinfo").read() and time.monotonic() < until:
            await asyncio.sleep(0)
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
        with open(place + "/.env", "w") as file:
            file.write("SECRET")
        with open(workspace + "/go", "w") as file:
            file.write("go")
        print((await asyncio.to_thread(stream.read)).decode(), os.listdir(place))
    await child.wait()
    await child.kill()
    confined.release()
    await owner.aclose()

asyncio.run(main())
"""
SHARED = 'mount --make-rshared / && exec "$@"'
"""As systemd has it everywhere; in a namespace of the test's own."""


def test_a_file_system_that_the_user_mounts_meanwhile(ground: Path) -> None:
    folder = tempfile.mkdtemp(dir=ground)
    argv = [sys.executable, "-c", SESSION, folder, "/boot"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SHARED, "sh", *argv], capture_output=True, text=True
    )
    said = done.stdout + done.stderr
    assert said.endswith("end\n ['.env']\n"), said
    assert "wrote" not in said
    assert "SECRET" not in said
