"""Many hidden files: every one is masked, and a command hardly starts later for it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from tests.machine import NOBODY, interpreter
from tests.sandbox.conftest import Person

from toolrest import Toolrest
from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.policy import SandboxPolicy

pytestmark = pytest.mark.needs("namespaces")

FILES = 300
COUNT = "cat p*/.env; ls -d p*/.env | wc -l"


def fill(workspace: Path) -> list[str]:
    """Secrets in folders of their own, one in another, two in each, some beside protected names."""
    made = []
    for number in range(FILES // 2):
        folder = workspace / f"a{number % 7}" / f"b{number}"
        folder.mkdir(parents=True)
        for name in (".env", ".env.local"):
            (folder / name).write_text("SECRET\n")
            made.append(str(folder / name))
    return made


@pytest.mark.slow
def test_all_are_masked_and_stay_where_they_are(person: Person) -> None:
    script = f"""
        import pathlib
        for at in range({FILES // 2}):
            folder = pathlib.Path("{person.workspace}", f"a{{at % 7}}", f"b{{at}}")
            folder.mkdir(parents=True)
            (folder / ".env").write_text("SECRET")
            (folder / ".env.local").write_text("SECRET")
    """
    Path(person.place, "fill.py").write_text("\n".join(line[8:] for line in script.splitlines()))
    person.do(f"{interpreter(ordinary=True)} fill.py")
    hidden = [str(path) for path in sorted(person.workspace.rglob(".env*"))]
    assert len(hidden) == FILES
    lines = (
        "cat a*/b*/.env*; echo $?",
        "head -c 9 a*/b*/.env* 2>&1 | grep -c 'Permission denied'",
        "mv a1 x; mv a2/b2 a2/y; mv a3/b3/.env a3/b3/z; rm a4/b4/.env.local; echo > a5/b5/.env; ls",
        "touch a6/b6/new && mkdir -p a6/b6/c && echo wrote",
        "ls /proc/self/fd | tr '\\n' ' '",
    )
    found = person.confined(*lines, hidden=hidden)
    reads, denied, moves, writes, open_files = (result.text for result in found)
    assert "SECRET" not in reads
    if person.name == "user":  # root may read what has no permissions: it is empty
        assert int(denied) == FILES
    assert moves.split("\n", 5)[-1].split() == [f"a{number}" for number in range(7)]
    assert writes == "wrote\n"
    assert open_files.split() == ["0", "1", "2", "3"]
    assert all(Path(path).read_text() == "SECRET" for path in hidden)


async def test_where_a_mask_cannot_be_made_nothing_runs(ground: Path) -> None:
    """Here one of the files has gone since the view was made."""
    base = Path(tempfile.mkdtemp(dir=ground))
    (base / "ws").mkdir()
    hidden = fill(base / "ws")
    policy = SandboxPolicy.build(str(base / "ws"), str(base / "session"), hidden=hidden)
    sandbox = SessionSandbox(policy, backend="bubblewrap", registry=str(base / "registry"))
    line = ("/bin/sh", "-c", "touch ran")
    confined = sandbox.confine(Command(line, policy.workspace, {"PATH": "/usr/bin:/bin"}))
    os.unlink(hidden[-1])
    owner = Owner()
    try:
        child = await owner.start(confined.command, merge=True)
        ended = await child.wait()
        assert ended is not None
        assert ended.exit_code != 0
        os.close(child.outputs[0])
    finally:
        await owner.aclose()
        confined.release()
    assert not (base / "ws/ran").exists()


async def test_what_waits_for_the_masks_loads_nothing_that_a_command_wrote(ground: Path) -> None:
    """A shell: libraries in the workspace would read what is not masked yet."""
    base = Path(tempfile.mkdtemp(dir=ground))
    (base / "ws").mkdir()
    hidden = fill(base / "ws")
    policy = SandboxPolicy.build(str(base / "ws"), str(base / "session"), hidden=hidden)
    sandbox = SessionSandbox(policy, backend="bubblewrap", registry=str(base / "registry"))
    env = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(base / "ws"), "BASH_FUNC_read%%": "() {"}
    line = ("/bin/sh", "-c", "printenv LD_LIBRARY_PATH > seen")
    confined = sandbox.confine(Command(line, policy.workspace, env))
    unset = b"".join(data for _, data in confined.command.files).split(b"--setenv")[-1]
    assert b"--unsetenv\0LD_LIBRARY_PATH\0--unsetenv\0BASH_FUNC_read%%\0" in unset
    owner = Owner()
    try:
        child = await owner.start(confined.command, merge=True)
        ended = await child.wait()
        assert ended is not None
        assert ended.exit_code == 0
        os.close(child.outputs[0])
    finally:
        await owner.aclose()
        confined.release()
    assert (base / "ws/seen").read_text() == f"{base}/ws\n"


@pytest.mark.slow
async def test_five_hundred_are_hidden_at_once(ground: Path) -> None:
    """What they cost is in `bench/masks.py`."""
    for number in range(500):
        folder = ground / f"p{number}"
        folder.mkdir()
        (folder / ".env").write_text("SECRET")
    settings = {"checkpoints": {"enabled": False}, "approval_policy": "never"}
    async with Toolrest(ground, settings=settings) as rest:
        for _ in range(2):  # the second reads what the first one knew
            call = {"cmd": COUNT, "login": False, "yield_time_ms": 30_000}
            said = (await rest.call("exec_command", call)).text
            assert "SECRET" not in said
            assert "500" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("beside", [False, True])
async def test_one_in_a_folder_that_only_another_user_may_enter(ground: Path, beside: bool) -> None:
    """Commands of root cannot look there either; each one was killed without a word."""
    work = Path(tempfile.mkdtemp(dir=ground))
    for number in range(30):
        folder = work / f"p{number:02}"
        folder.mkdir(mode=0o700)
        (folder / ".env").write_text("SECRET")
    os.chown(work / "p20", NOBODY, NOBODY)
    settings = {"checkpoints": {"enabled": False}, "approval_policy": "never"}
    call = {"cmd": "cat p*/.env; ls -d p*/.env | wc -l", "login": False}
    async with Toolrest(work, settings=settings) as other, Toolrest(work, settings=settings) as one:
        if beside:
            os.mkfifo(work / "go")
            await other.call("exec_command", {"cmd": "read _ <go", "yield_time_ms": 250})
        said = (await one.call("exec_command", call)).text
        if beside:
            (work / "go").write_text("go")
    assert "SECRET" not in said
    assert "\n29" in said
