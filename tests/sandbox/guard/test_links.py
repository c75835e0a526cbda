"""A protected name that is a symbolic link, or lies behind one, stays what it is (S8)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.policy.paths.links import Links
from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import run
from toolrest.sandbox.backends import probe as backends
from toolrest.sandbox.backends.container.mounts import Shown
from toolrest.sandbox.backends.launcher import ATTEMPTS, disturbed
from toolrest.sandbox.confine import Backend, Confined, SessionSandbox
from toolrest.sandbox.doctor import examine
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.sandbox.policy import SandboxPolicy


class Person(Protocol):
    place: Path
    workspace: Path

    def do(self, line: str, cwd: Path | None = None) -> str: ...
    def confined(self, *lines: str, **wish: Any) -> list[Any]: ...


MAKE = """
mkdir conf d1 d2 inner; echo one > conf/a; echo two > real; echo three > d2/end
ln -s conf .vscode
ln -s $PWD/real .envrc
ln -s d1/hop .mcp.json; ln -s ../d2/end d1/hop
ln -s $PWD/../outside .codex
ln -s .agents .agents
mkdir -p up/down; ln -s up/down/../../real .toolrest
"""

TRICKS = [
    "rm .vscode",
    "rm -rf .vscode/; rm .vscode && mkdir .vscode",
    "echo x > .vscode/a",
    "echo x > .vscode/new",
    "mv .vscode away",
    "mv -T inner .vscode",
    "ln -sfn inner .vscode",
    "mv conf c2 && mkdir conf",
    "rm .envrc && echo x > .envrc",
    "echo x > .envrc",
    "echo x > new; mv new .envrc || { rm new; false; }",
    "mv real r2; echo x > real",
    "ln real twice && echo x > twice",
    "rm .mcp.json",
    "rm d1/hop",
    "ln -sfn ../inner d1/hop",
    "mv d1 d3 && mkdir d1",
    "mv d2 d3 && mkdir d2",
    "echo x > d2/end",
    "rm .codex && mkdir .codex",
    "echo x > .codex/x",
    "rm .agents",
    "mv up u2 && mkdir -p evil/x/y && ln -s evil/x up",
    "mv up/down u2 || { rmdir u2; false; }",
    "rmdir up/down",
    "umount .vscode || umount .envrc",
    "unshare -Urm sh -c 'umount .vscode && rm .vscode'",
    "mount --bind inner d1",
]


@pytest.fixture
def linked(person: Person) -> Person:
    person.do("mkdir outside; echo out > outside/o")
    person.do(MAKE, person.workspace)
    return person


def state(person: Person) -> str:
    look = "find . -printf '%p %y %l %i\\n' | sort; cat conf/a real d2/end; ls ../outside"
    return person.do(look, person.workspace)


@pytest.mark.slow
def test_nobody_replaces_one_or_what_it_leads_to(linked: Person) -> None:
    before = state(linked)
    results = linked.confined(*TRICKS)
    assert [result.refused for result in results] == [""] * len(TRICKS)
    did = [line for line, result in zip(TRICKS, results, strict=True) if result.code == 0]
    assert (did, state(linked)) == ([], before)


def test_they_are_read_as_ever_and_the_rest_is_writable(linked: Person) -> None:
    lines = [
        "cat .vscode/a .envrc .mcp.json .codex/o",
        "readlink .vscode .mcp.json d1/hop",
        "ls -A1",
        "ls -A /dev/shm",
        "echo 1 > d1/new; echo 2 > inner/new; echo 3 > top; rm d1/new; mv inner inner2",
    ]
    read, targets, names, shared, rest = linked.confined(*lines)
    assert read.text == "one\ntwo\nthree\nout\n"
    assert targets.text == "conf\nd1/hop\n../d2/end\n"
    assert {".vscode", ".envrc", ".mcp.json", ".codex", ".agents", ".toolrest"} <= set(
        names.text.split()
    )
    assert (shared.code, shared.text) == (0, "")
    assert rest.code == 0, rest.text
    assert (linked.workspace / "inner2" / "new").read_text() == "2\n"


def test_with_the_network_on(linked: Person) -> None:
    (result,) = linked.confined("rm .vscode || rm .envrc || rm d1/hop", network="on")
    assert result.code == 1
    assert result.text.count("busy") == 3


def test_folders_on_the_way_may_be_links_too(person: Person) -> None:
    """As in a home whose settings are kept in a folder of their own."""
    person.do(
        "mkdir -p dots/config/fish other; echo 1 > dots/config/fish/f; ln -s dots/config .config",
        person.workspace,
    )
    lines = [
        "rm .config",
        "ln -sfn other .config",
        "mv dots d",
        "echo x > .config/fish/f",
        "mv dots/config/fish f",
        "mkdir -p dots/config/systemd/user",
        "touch .config/systemd/x",
        "cat .config/fish/f && echo 1 > dots/config/mine",
    ]
    names = [f"{person.workspace}/.config/{name}" for name in ("fish", "systemd")]
    results = person.confined(*lines, protected=names)
    assert [result.code == 0 for result in results] == [False] * 7 + [True], results
    assert person.do("ls dots/config", person.workspace).split() == ["fish", "mine"]


def test_where_everything_is_writable(linked: Person) -> None:
    names = [f"{linked.workspace}/{name}" for name in (".vscode", ".envrc")]
    lines = ["rm .vscode", "rm .envrc", "echo x > conf/a", "echo x > real", "echo 1 > inner/new"]
    results = linked.confined(*lines, writable_roots=["/"], protected=names)
    assert [result.code == 0 for result in results] == [False] * 4 + [True], results


def test_roots_in_each_other_and_beside(linked: Person) -> None:
    linked.do("mkdir -p other/c ws/inner/c; ln -s c other/.vscode; ln -s c ws/inner/.vscode")
    roots = [str(linked.place / "other"), str(linked.workspace / "inner")]
    places = [*roots, str(linked.workspace)]
    lines = [f"rm {place}/.vscode || echo x > {place}/.vscode/x" for place in places]
    *results, last = linked.confined(*lines, f"touch {roots[0]}/n inner/n", writable_roots=roots)
    assert [result.code == 0 for result in results] == [False] * 3, results
    assert last.code == 0, last.text


@pytest.mark.slow
@pytest.mark.parametrize("target", ["nothing", "d/nothing", "hop"])
def test_what_is_not_there_at_the_end_of_one_is_not_made(person: Person, target: str) -> None:
    person.do(f"mkdir d; ln -s {target} .envrc; ln -s d/deeper hop", person.workspace)
    before = person.do("ls -lAR --time-style=+", person.workspace)
    lines = [f"echo x > {name}" for name in (".envrc", target, "nothing/x", "d/nothing", "hop")]
    *results, last = person.confined(*lines[:2], "rm .envrc", "touch d/mine && rm d/mine")
    assert [result.code == 0 for result in results] == [False] * 3, results
    assert last.code == 0, last.text
    assert person.do("ls -lAR --time-style=+", person.workspace) == before


@pytest.mark.parametrize("target", ["nothing/../d", ".", "/proc/self/cwd/d"])
def test_one_whose_end_cannot_be_protected_stops_everything(person: Person, target: str) -> None:
    person.do(f"mkdir d; ln -s {target} .envrc", person.workspace)
    (result,) = person.confined("touch ran")
    assert f"{person.workspace}/.envrc leads t" in result.refused
    assert not (person.workspace / "ran").exists()


@pytest.mark.slow
def test_one_that_leads_to_nothing_elsewhere_is_harmless(person: Person) -> None:
    person.do("ln -s /nowhere/at/all .envrc", person.workspace)
    results = person.confined("true", "rm .envrc", "mkdir -p /nowhere/at")
    assert [result.code == 0 for result in results] == [True, False, False], results


@pytest.fixture
def workspace(ground: Path) -> Path:
    made = Path(tempfile.mkdtemp(dir=ground)) / "ws"
    (made / "conf").mkdir(parents=True)
    return made


def opened(workspace: Path, backend: Backend | None = "bubblewrap", **wish: Any) -> SessionSandbox:
    policy = SandboxPolicy.build(str(workspace), str(workspace.parent / "session"), **wish)
    return SessionSandbox(policy, backend=backend, registry=str(workspace.parent / "registry"))


def confined(sandbox: SessionSandbox, line: str = "true", *, late: bool = False) -> Confined:
    argv = ("/bin/sh", "-c", line)
    command = Command(argv, sandbox.policy.workspace, {"PATH": "/usr/bin:/bin"})
    return sandbox.confine(command, late=late)


async def code(sandbox: SessionSandbox, owner: Owner, line: str) -> int | None:
    """Its exit code; repeated where mounts of other tests were in the way of bubblewrap."""
    for _ in range(ATTEMPTS):
        command = confined(sandbox, line, late=True)
        try:
            result = await run(owner, command.command)
        finally:
            command.release()
        if not disturbed(result.stderr, result.exit_code):
            break
    return result.exit_code


@pytest.mark.needs("namespaces")
async def test_one_that_comes_between_two_commands(workspace: Path, owner: Owner) -> None:
    sandbox = opened(workspace)
    assert await code(sandbox, owner, "true") == 0
    (workspace / ".vscode").symlink_to("conf")
    with pytest.raises(SandboxBusy, match="Call again"):
        await code(sandbox, owner, "rm .vscode")
    assert await code(sandbox, owner, "rm .vscode") == 1
    (workspace / ".vscode").unlink()
    assert await code(sandbox, owner, "mkdir .vscode/x") == 1
    assert await code(sandbox, owner, "true") == 0
    (workspace / ".vscode").symlink_to("nothing")
    with pytest.raises(SandboxUnavailable, match=r"vscode leads to .*nothing, which is not"):
        await code(sandbox, owner, "true")
    (workspace / ".vscode").unlink()
    assert await code(sandbox, owner, "true") == 0
    assert [path.name for path in workspace.iterdir()] == ["conf"]


@pytest.mark.needs("namespaces")
async def test_one_in_place_of_a_part_of_git_that_was_missing(
    workspace: Path, owner: Owner
) -> None:
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    shutil.rmtree(workspace / ".git/hooks")
    sandbox = opened(workspace)
    assert await code(sandbox, owner, "true") == 0
    (workspace / ".git/hooks").symlink_to("../conf")
    with pytest.raises(SandboxBusy):
        await code(sandbox, owner, "true")
    for line in ("echo x > .git/hooks/x", "rm .git/hooks", "echo x > conf/x"):
        assert await code(sandbox, owner, line) != 0


@pytest.mark.needs("namespaces")
async def test_one_that_changes_while_a_command_runs(workspace: Path) -> None:
    (workspace / "other").mkdir()
    (workspace / ".vscode").symlink_to("conf")
    sandbox = opened(workspace)
    running = confined(sandbox)
    (workspace / ".vscode").unlink()
    (workspace / ".vscode").symlink_to("other")
    with pytest.raises(SandboxBusy, match="while a command was running"):
        confined(sandbox)
    running.release()
    confined(sandbox).release()


@pytest.mark.needs("namespaces")
async def test_one_that_is_gone_when_the_command_starts(workspace: Path, owner: Owner) -> None:
    (workspace / ".vscode").symlink_to("conf")
    command = confined(opened(workspace))
    (workspace / ".vscode").unlink()
    result = await run(owner, command.command)
    command.release()
    assert result.state == "failed_to_start"
    assert "symbolic links" in (result.error or "")


@pytest.mark.slow
@pytest.mark.needs("namespaces")
async def test_many_at_the_bottom_of_deep_folders(workspace: Path, owner: Owner) -> None:
    bottom = workspace.joinpath(*("a" * 1 for _ in range(100)))
    bottom.mkdir(parents=True)
    for number in range(30):
        (bottom / str(number)).symlink_to(str(number + 1))
    (bottom / "30").write_text("here")
    (workspace / ".envrc").symlink_to(bottom / "0")
    sandbox = opened(workspace)
    assert await code(sandbox, owner, "grep -q here .envrc") == 0
    assert await code(sandbox, owner, "test $(wc -l < /proc/self/mountinfo) -lt 400") == 0
    deep = "a/" * 100
    for line in (f"rm {deep}7", f"echo x > {deep}30", "mv a b", "mv a/a/a/a b || rmdir b/; false"):
        assert await code(sandbox, owner, line) != 0
    assert (workspace / ".envrc").read_text() == "here"


@pytest.mark.parametrize(("links", "depth"), [(65, 1), (1, 130)])
def test_too_many_are_refused_and_nothing_weaker_is_used(
    workspace: Path, links: int, depth: int
) -> None:
    bottom = workspace.joinpath(*("a" for _ in range(depth)))
    bottom.mkdir(parents=True)
    (bottom / "end").touch()
    for number in range(links):
        (bottom / str(number)).symlink_to("end")
    names = [str(bottom / str(number)) for number in range(links)]
    with pytest.raises(SandboxUnavailable, match=r"too many symbolic links|too deep"):
        confined(opened(workspace, None, protected=names))


@pytest.mark.needs("namespaces")
def test_where_none_can_be_held_nothing_runs_not_even_with_less(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / ".envrc").symlink_to("/etc/hostname")
    monkeypatch.setattr(backends, "_COPIES", os.fsencode(workspace / "nowhere"))
    with pytest.raises(
        SandboxUnavailable, match=r"\.envrc is a symbolic link .* Replace the link by"
    ):
        confined(opened(workspace, None))


@pytest.mark.slow
@pytest.mark.needs("namespaces")
def test_a_view_that_cannot_be_shown_is_no_reason_for_a_weaker_backend(workspace: Path) -> None:
    names = [workspace / f".env.{number}" for number in range(3100)]
    for name in names:
        name.mkdir()
    sandbox = opened(workspace, None, hidden=[str(name) for name in names])
    with pytest.raises(SandboxUnavailable, match="works here, but cannot show this workspace"):
        confined(sandbox)
    report = examine(sandbox.policy, sandbox.registry)
    assert report.chosen == ""
    for name in names[100:]:
        name.rmdir()
    sandbox = opened(workspace, None, hidden=[str(name) for name in names[:100]])
    command = confined(sandbox)
    command.release()
    assert command.backend == "bubblewrap"


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("exceptions", [["/dev/shm"], ["/dev"]])
def test_the_place_where_they_are_held_is_not_shown(workspace: Path, exceptions: list[str]) -> None:
    confined(opened(workspace, exceptions=exceptions)).release()
    (workspace / ".envrc").symlink_to("conf")
    with pytest.raises(SandboxUnavailable, match=r"/dev.* cannot be shown"):
        confined(opened(workspace, exceptions=exceptions))


@pytest.mark.needs("namespaces")
async def test_ends_in_the_cache(workspace: Path, owner: Owner) -> None:
    cache = workspace.parent / "cache"
    (cache / "v").mkdir(parents=True)
    (workspace / ".vscode").symlink_to(cache / "v")
    sandbox = opened(workspace, cache_dir=str(cache))
    assert await code(sandbox, owner, f"touch {cache}/mine") == 0
    assert await code(sandbox, owner, "touch .vscode/x") == 1
    assert await code(sandbox, owner, f"rmdir {cache}/v") == 1


def test_a_container_does_not_run_with_one(workspace: Path) -> None:
    (workspace / ".vscode").symlink_to("conf")

    def look() -> None:
        session = workspace.parent / "session"
        Shown(opened(workspace).policy, str(session / "registry"), str(session)).look(alone=True)

    with pytest.raises(SandboxUnavailable, match="vscode is a symbolic link"):
        look()
    (workspace / ".vscode").unlink()
    subprocess.run(
        "git init -q . && mkdir real && mv .git real/store && ln -s real l"
        " && echo gitdir: l/store > .git",
        shell=True,
        check=True,
        cwd=workspace,
    )
    with pytest.raises(SandboxUnavailable, match="/l is a symbolic link"):
        look()


NAMES = st.sampled_from(["a", "b", "c", "d"])
TARGETS = st.lists(st.sampled_from(["a", "b", "c", "d", "..", ".", ""]), min_size=1, max_size=4)
TREES = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=3), st.none() | TARGETS))


@given(TREES, st.lists(NAMES, min_size=1, max_size=4))
def test_the_walk_ends_where_the_kernels_does(
    tree: list[tuple[list[str], list[str] | None]], asked: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as made:
        root = os.path.realpath(made)
        for names, target in tree:
            path = os.path.join(root, *names)
            try:
                if target is None:
                    os.makedirs(path, exist_ok=True)
                else:
                    os.symlink("/".join(target) or ".", path)
            except OSError:
                continue
        path = os.path.join(root, *asked)
        links = Links.towards([path], lambda p: p.startswith(root))
        assert all(os.path.islink(p) for p in links.held)
        assert all(os.path.realpath(os.path.dirname(p)) == os.path.dirname(p) for p in links.held)
        if os.path.exists(path) and os.path.realpath(path) != path:
            real = os.path.realpath(path)
            assert links.held
            assert links.ends == ((real,) if real.startswith(root) else ())


def test_the_host_sees_no_mount_of_it(linked: Person) -> None:
    linked.confined("true")
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(linked.workspace) not in mounts
    subprocess.run(["rm", str(linked.workspace / ".vscode")], check=True)
