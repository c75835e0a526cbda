"""What policy calls writable in folders for temporary files is what the sandbox shares there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.items import ToolOutput


@pytest.fixture
def below_tmp() -> Iterator[Path]:
    base = tempfile.mkdtemp(prefix="toolrest-test-", dir="/tmp")
    try:
        work = Path(base, "work")
        work.mkdir()
        yield work
    finally:
        shutil.rmtree(base)


@pytest.fixture
def elsewhere(user_home: str) -> Path:
    work = Path(user_home, "tmp-elsewhere")
    work.mkdir(exist_ok=True)
    return work


async def run(work: Path, cmd: str, **settings: Any) -> ToolOutput:
    async with Toolrest(work, settings=settings) as rest:
        return await rest.call("exec_command", {"cmd": cmd, "login": False})


async def add(work: Path, path: Path, **settings: Any) -> ToolOutput:
    patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    async with Toolrest(work, settings=settings) as rest:
        return await rest.call("apply_patch", {"input": patch})


def asked(output: ToolOutput) -> bool:
    return output.failure is not None and output.failure.kind == "approval_denied"


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("place", ["../beside.txt", "/tmp/toolrest-test-beside", "/var/tmp/ours"])
async def test_beside_a_workspace_below_tmp_is_outside(below_tmp: Path, place: str) -> None:
    output = await run(below_tmp, f"touch {place}; echo in > file")
    is_host = not place.startswith("/var")
    assert asked(output) == is_host, output.text
    assert (below_tmp / "file").exists() != is_host
    assert not (below_tmp / place).exists()


@pytest.mark.needs("sandbox")
async def test_a_file_beside_a_workspace_below_tmp_is_written_once_approved(
    below_tmp: Path,
) -> None:
    output = await run(below_tmp, "touch ../beside.txt", on_ask="allow")
    assert "Process exited with code 0" in output.text
    assert (below_tmp.parent / "beside.txt").exists()


@pytest.mark.needs("namespaces")
async def test_elsewhere_tmp_is_the_sandboxs_own(elsewhere: Path) -> None:
    name = f"/tmp/toolrest-test-{os.getpid()}"
    output = await run(elsewhere, f"echo mine > {name} && cat {name}")
    assert "mine" in output.text
    assert not os.path.exists(name)
    assert asked(await add(elsewhere, Path(name)))


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("mode", ["workspace-write", "read-only"])
async def test_a_shared_tmp_is_written_by_commands_and_patches(below_tmp: Path, mode: str) -> None:
    settings = {"sandbox_tmp": "host", "sandbox_mode": mode}
    may = mode == "workspace-write"
    for output, name in (
        (await run(below_tmp, "touch ../by-command", **settings), "by-command"),
        (await add(below_tmp, below_tmp.parent / "by-patch", **settings), "by-patch"),
    ):
        assert asked(output) != may, output.text
        assert (below_tmp.parent / name).exists() == may
    excluded = settings | {"sandbox_workspace_write.exclude_slash_tmp": True}
    excluded["sandbox_workspace_write.exclude_tmpdir_env_var"] = True
    assert asked(await add(below_tmp, below_tmp.parent / "other", **excluded))
    assert asked(await run(below_tmp, "touch /var/tmp/ours", **settings))


@pytest.mark.needs("landlock")
async def test_landlock_gives_no_tmp_and_is_not_taken_to(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolrest.sandbox.confine.bwrap_programs", lambda _: ())
    assert asked(await run(elsewhere, "touch /tmp/toolrest-test-landlock"))
    assert "Process exited with code 0" in (await run(elsewhere, "touch here")).text
