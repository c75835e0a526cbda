"""A protected name that is a symbolic link, or lies behind one, stays what it is (S8)."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.process.command import Command
from toolrest.process.helper import wire
from toolrest.process.owner import Owner
from toolrest.process.run import run
from toolrest.sandbox.confine import Sandbox
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.sandbox.links import Links
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


@pytest.mark.parametrize("target", ["nothing", "d/nothing", "hop", "nothing/../d"])
def test_one_that_leads_to_nothing_here_stops_everything(person: Person, target: str) -> None:
    person.do(f"mkdir d; ln -s {target} .envrc; ln -s d/deeper hop", person.workspace)
    (result,) = person.confined("touch ran")
    assert f"{person.workspace}/.envrc leads to" in result.refused
    assert "which is not there" in result.refused
    assert str(person.workspace) in result.refused
    assert not (person.workspace / "ran").exists()


def test_one_that_leads_to_nothing_elsewhere_is_harmless(person: Person) -> None:
    person.do("ln -s /nowhere/at/all .envrc", person.workspace)
    results = person.confined("true", "rm .envrc", "mkdir -p /nowhere/at")
    assert [result.code == 0 for result in results] == [True, False, False], results


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    made = Owner()
    yield made
    await made.aclose()


async def test_one_that_comes_between_two_commands(ground: Path, owner: Owner) -> None:
    base = Path(tempfile.mkdtemp(dir=ground))
    workspace = base / "ws"
    (workspace / "conf").mkdir(parents=True)
    policy = SandboxPolicy.build(str(workspace), str(base / "session"))
    sandbox = Sandbox(policy, backend="bubblewrap", registry=str(base / "registry"))

    async def code(line: str) -> int | None:
        command = Command(("/bin/sh", "-c", line), str(workspace), {"PATH": "/usr/bin:/bin"})
        confined = sandbox.confine(command, late=True)
        try:
            return (await run(owner, confined.command)).exit_code
        finally:
            confined.release()

    assert await code("true") == 0
    (workspace / ".vscode").symlink_to("conf")
    with pytest.raises(SandboxBusy, match="Call again"):
        await code("rm .vscode")
    assert await code("rm .vscode") == 1
    (workspace / ".vscode").unlink()
    assert await code("mkdir .vscode/x") == 1
    assert await code("true") == 0
    assert [path.name for path in workspace.iterdir()] == ["conf"]


async def test_one_that_is_gone_when_the_command_starts(ground: Path, owner: Owner) -> None:
    base = Path(tempfile.mkdtemp(dir=ground))
    (base / "ws" / "conf").mkdir(parents=True)
    link = base / "ws" / ".vscode"
    link.symlink_to("conf")
    policy = SandboxPolicy.build(str(base / "ws"), str(base / "session"))
    sandbox = Sandbox(policy, backend="bubblewrap", registry=str(base / "registry"))
    confined = sandbox.confine(Command(("/bin/true",), str(base / "ws"), {}))
    link.unlink()
    result = await run(owner, confined.command)
    confined.release()
    assert result.state == "failed_to_start"
    assert "symbolic links" in (result.error or "")


def test_where_none_can_be_held_nothing_runs_not_even_with_less(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Path(tempfile.mkdtemp(dir=ground))
    (base / "ws").mkdir()
    (base / "ws" / ".envrc").symlink_to("/etc/hostname")
    monkeypatch.setattr(wire, "COPIES", str(base / "nowhere"))
    policy = SandboxPolicy.build(str(base / "ws"), str(base / "session"))
    sandbox = Sandbox(policy, registry=str(base / "registry"))
    with pytest.raises(SandboxUnavailable, match=r"\.envrc is a symbolic link .* Put there what"):
        sandbox.confine(Command(("/bin/true",), str(base / "ws"), {}))


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
