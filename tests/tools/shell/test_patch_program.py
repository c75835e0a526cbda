"""`apply_patch` where it is no patch of its own to us: a program on the PATH of commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.machine import require, solid_ground

from toolrest import Toolrest
from toolrest.sandbox import confine

pytestmark = pytest.mark.slow

KINDS = ("bubblewrap", "landlock", "chroot", "none")
NEEDS = {"bubblewrap": "namespaces", "chroot": "namespaces", "landlock": "landlock"}
LINES = {
    "a pipe": "cd sub && printf '%s' \"$PATCH\" | apply_patch",
    "an argument": 'cd sub; apply_patch "$PATCH"',
    "the other name": "cd sub; printf '%s' \"$PATCH\" | applypatch",
    "a script": 'echo \'cd sub && printf "%s" "$PATCH" | apply_patch\' > s.sh; sh s.sh',
}
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+made\n*** End Patch\n"


def rootfs(place: Path) -> str:
    """A root with a shell and the Python of these tests, under the name `python3` alone."""
    python = os.path.realpath(sys.executable)
    programs = {name: os.path.realpath(f"/bin/{name}") for name in ("sh", "true")}
    programs["python3"] = python
    ldd = [subprocess.run(["ldd", p], capture_output=True, text=True) for p in programs.values()]
    files = {word for done in ldd for word in done.stdout.split() if word.startswith("/")}
    for file in (*files, *programs.values()):
        target = place / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    library = os.path.dirname(os.__file__)
    names = ("encodings", "collections", "importlib", "lib-dynload")
    for name in names:
        shutil.copytree(f"{library}/{name}", f"{place}{library}/{name}")
    for module in Path(library).glob("*.py"):
        shutil.copy(module, f"{place}{module}")
    (place / "bin").mkdir(exist_ok=True)
    for name, program in programs.items():
        if not (place / "bin" / name).exists():
            (place / "bin" / name).symlink_to(program)
    return str(place)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param in NEEDS:
        require(NEEDS[request.param])
    return str(request.param)


@pytest.fixture
def settings(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    common: dict[str, Any] = {"approval_policy": "never", "sandbox_mode": "workspace-write"}
    common["shell_environment_policy.set"] = {"PATCH": PATCH}
    if kind == "landlock":
        monkeypatch.setattr(confine, "bwrap_programs", lambda roots: ())
    if kind == "chroot":
        return common | {"sandbox_policy": "chroot", "sandbox.rootfs": rootfs(tmp_path / "root")}
    return common | ({"sandbox_mode": "danger-full-access"} if kind == "none" else {})


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
async def test_a_patch_that_is_not_recognised_is_applied(
    work: Path, settings: dict[str, Any], line: str
) -> None:
    (work / "sub").mkdir()
    async with Toolrest(work, settings=settings) as rest:
        output = await rest.call("shell_command", {"command": line})
    assert output.success, output.text
    assert "A new.txt" in output.text
    assert (work / "sub" / "new.txt").read_text() == "made\n"


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(
    "shell", ["bash", "sh", pytest.param("zsh", marks=pytest.mark.needs("zsh"))]
)
async def test_a_login_shell_of_the_model_finds_it(work: Path, shell: str) -> None:
    """Debian's /etc/profile sets PATH anew."""
    for name in (".profile", ".zprofile"):
        (work / name).write_text("PATH=/usr/bin:/bin; export PATH\n")
    settings: dict[str, Any] = {"shell_environment_policy.set": {"HOME": str(work)}}
    async with Toolrest(work, settings=settings, tools=["all"]) as rest:
        words = [shell, "-lc", f"xargs -0 apply_patch <<'X'\n{PATCH}X"]
        output = await rest.call("shell", {"command": words})
    assert output.success, output.text
    assert (work / "new.txt").read_text() == "made\n"


@pytest.mark.needs("namespaces")
async def test_the_sandbox_binds_it(work: Path) -> None:
    (work / ".git" / "hooks").mkdir(parents=True)
    (work / ".env").write_text("KEY=tops\n")
    outside = Path(solid_ground(), "outside.txt")
    async with Toolrest(work, approval_policy="never") as rest:
        for path in (".git/hooks/post-commit", outside):
            patch = PATCH.replace("new.txt", str(path))
            line = f"true; printf '%s' '{patch}' | apply_patch"
            output = await rest.call("shell_command", {"command": line})
            assert not output.success
            assert "Failed to write file" in output.text
        patch = "*** Begin Patch\n*** Update File: .env\n-KEY=tops\n+KEY=x\n*** End Patch"
        line = f"true; printf '%s' '{patch}' | apply_patch"
        output = await rest.call("shell_command", {"command": line})
        assert not output.success
        assert "tops" not in output.text.replace(patch, "")
    assert not list((work / ".git" / "hooks").iterdir())
    assert (work / ".env").read_text() == "KEY=tops\n"
    assert not outside.exists()


@pytest.mark.needs("sandbox")
async def test_where_patches_are_off_no_program_is_on_the_path(work: Path) -> None:
    settings = {"tools.disabled": ["apply_patch"]}
    async with Toolrest(work, settings=settings, env={"PATH": "/usr/bin:/bin"}) as rest:
        line = f"true; printf '%s' '{PATCH}' | apply_patch"
        output = await rest.call("shell_command", {"command": line})
    assert "not found" in output.text
    assert not (work / "new.txt").exists()
