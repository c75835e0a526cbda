"""What a confined command sees: roots wherever they are, private folders, hidden places."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.machine import interpreter, packages

from toolrest.sandbox.backends import live_view
from toolrest.sandbox.backends.live_view import LiveView
from toolrest.sandbox.backends.view import Show, View
from toolrest.sandbox.errors import SandboxBusy
from toolrest.sandbox.policy import SandboxPolicy


class Person(Protocol):
    name: str
    place: Path
    home: Path
    workspace: Path
    env: dict[str, str]

    def do(self, line: str, cwd: Path | None = None) -> str: ...
    def confined(self, *lines: str, **wish: Any) -> list[Any]: ...


def codes(results: list[Any]) -> list[bool]:
    return [result.code == 0 for result in results]


PROTECTED = [".toolrest", ".codex", ".agents", ".mcp.json", ".vscode", ".envrc", ".git"]


def ways_to_make(name: str) -> list[str]:
    return [
        f"echo x > {name}",
        f"mkdir {name}",
        f"mkdir -p {name}/deep/er",
        f"ln -s /tmp {name}",
        f"ln README {name}",
        f"mkdir other && mv -T other {name}",
        f"echo x > other && mv -fT other {name}",
        f"rmdir {name} && mkdir {name}",
        f"mv {name} elsewhere",
        f"echo x > {name}/config.toml",
        f"mkfifo {name}",
        f"chmod 777 {name}",
    ]


@pytest.mark.slow
def test_missing_control_files_cannot_be_made(person: Person) -> None:
    """S8: create, rename, symlink and parent folders, all from inside."""
    person.do("echo x > README", person.workspace)
    lines = [line for name in PROTECTED for line in (*ways_to_make(name), "rm -rf other")]
    results = person.confined(*lines)
    worked = [line for line, result in zip(lines, results, strict=True) if result.code == 0]
    assert worked == ["rm -rf other"] * len(PROTECTED)
    assert person.do("ls -A", person.workspace) == "README\n"


def test_existing_control_files_cannot_be_changed(person: Person) -> None:
    person.do("mkdir .codex .vscode && echo a > .codex/c && echo a > .envrc", person.workspace)
    results = person.confined(
        "echo b > .codex/c",
        "echo b > .codex/d",
        "rm -r .codex",
        "mv .codex x",
        "echo b > .envrc",
        "rm .envrc",
        "mv .envrc x",
        "ln .envrc y && echo b > y",
        "touch .vscode/tasks.json",
    )
    assert not any(codes(results))
    assert person.do("cat .codex/c .envrc", person.workspace) == "a\na\n"


def test_the_private_tmp_lasts_for_the_session_and_is_nobody_elses(person: Person) -> None:
    mark = f"toolrest-{person.place.name}"
    person.do(f"echo host > /tmp/{mark}; echo host > /var/tmp/{mark}-host")
    try:
        first, second, third = person.confined(
            f"cat /tmp/{mark}; stat -c %a /tmp; echo in > /tmp/{mark}-in; echo $TMPDIR; mktemp",
            f"cat /tmp/{mark}-in; ls /run /var/tmp",
            f"echo x > /var/tmp/{mark}; test -O /tmp && test -w /tmp",
        )
        assert "host" not in first.text
        assert "\n700\n/tmp\n/tmp/tmp." in first.text
        assert second.text.startswith("in\n/run:\n\n/var/tmp:\n")
        # What leads to Toolrest itself is shown, where it is installed there.
        own = {path.split("/")[3] for path in map(os.path.realpath, OWN) if in_var_tmp(path)}
        assert set(second.text.split("/var/tmp:\n")[1].split("\n")) <= {*own, ""}
        assert third.code == 0
        assert not Path(f"/tmp/{mark}-in").exists()
        assert not Path(f"/var/tmp/{mark}").exists()
    finally:
        person.do(f"rm /tmp/{mark} /var/tmp/{mark}-host")


OWN = (sys.prefix, sys.base_prefix, *packages().split(os.pathsep))


def in_var_tmp(path: str) -> bool:
    return path.startswith("/var/tmp/")


def test_the_hosts_tmp_when_asked_for(person: Person) -> None:
    mark = f"/tmp/toolrest-{person.place.name}"
    (result,) = person.confined(f"echo in > {mark}; echo x > /var/tmp/x", tmp="host")
    assert result.code != 0
    assert person.do(f"cat {mark}; rm {mark}") == "in\n"


@pytest.mark.slow
def test_a_workspace_in_tmp(person: Person) -> None:
    base = person.do("mktemp -d /tmp/toolrest-XXXXXX").strip()
    person.do(f"mkdir -p {base}/a/ws && echo secret > {base}/a/beside")
    try:
        results = person.confined(
            "echo in > made; cat made",
            f"cat {base}/a/beside",
            f"mv {base} /tmp/away || mv {base}/a {base}/b || rmdir {base}/a",
            f"rmdir {base}; mkdir {base}/new",
            "cat made; touch .codex",
            workspace=f"{base}/a/ws",
        )
        assert codes(results) == [True, False, False, False, False]
        assert results[4].text.startswith("in\n")
        assert person.do(f"cat {base}/a/ws/made") == "in\n"
        assert person.do(f"ls -A {base}/a/ws") == "made\n"
    finally:
        person.do(f"rm -rf {base}")


@pytest.mark.slow
def test_links_planted_in_the_private_tmp_lead_nowhere(person: Person) -> None:
    """The folders above a workspace in /tmp must not be swapped for links between commands."""
    base = person.do("mktemp -d /tmp/toolrest-XXXXXX").strip()
    person.do(f"mkdir -p {base}/ws")
    target = person.place / "target"
    person.do(f"mkdir {target}")
    swap = (
        f"rm -rf {base} 2>/dev/null; mv {base} /tmp/x 2>/dev/null;"
        f"ln -sfn /oldroot{target} {base}; ln -sfn {target} {base}; true"
    )
    try:
        person.confined(swap, "touch made", swap, "touch made", workspace=f"{base}/ws")
        assert person.do(f"ls -A {target}") == ""
        assert person.do(f"ls -A {base}/ws") == "made\n"
    finally:
        person.do(f"rm -rf {base}")


def test_nested_roots(person: Person) -> None:
    person.do("mkdir -p ws/inner/deep/root out")
    inner = person.workspace / "inner/deep/root"
    results = person.confined(
        f"echo 1 > {inner}/made; echo 1 > made",
        f"touch {inner}/.codex",
        f"mv {inner} {inner}2",
        "mv inner inner2",
        "mv inner/deep inner/deep2",
        "mv inner/x y; mkdir inner/free && mv inner/free inner/free2",
        writable_roots=[str(inner)],
    )
    assert codes(results) == [True, False, False, False, False, True]
    assert person.do("ls -A ws/inner/deep/root") == "made\n"


def test_a_symlinked_root_is_bound_where_it_really_is(person: Person) -> None:
    person.do("mkdir real && ln -s real link")
    (result,) = person.confined("pwd -P; touch made", workspace=str(person.place / "link"))
    assert result.text.strip() == str(person.place / "real")
    assert (person.place / "real/made").exists()


@pytest.mark.slow
def test_a_root_that_becomes_a_link_later_moves_nothing(person: Person) -> None:
    """S6: roots are followed once; a command's folder never becomes one."""
    person.do("mkdir out && ln -s ../out ws/link")
    results = person.confined("touch link/x", "cd link && touch x")
    assert codes(results) == [False, False]
    (result,) = person.confined("touch y", cwd=str(person.place / "out"))
    assert result.code != 0
    (result,) = person.confined("pwd", cwd=str(person.place / "out"))
    assert result.text.strip() == str(person.place / "out")
    assert person.do("ls -A out") == ""


def test_a_folder_that_is_not_there_says_so(person: Person) -> None:
    (result,) = person.confined("true", cwd=str(person.place / "nowhere"))
    assert result.code != 0
    assert "nowhere" in result.text


@pytest.mark.slow
def test_home_as_workspace(person: Person) -> None:
    person.do("mkdir -p .ssh .config/gh .config/app .toolrest && echo k > .ssh/id", person.home)
    person.do("echo rc > .bashrc && echo t > .config/gh/hosts.yml", person.home)
    home = str(person.home)
    results = person.confined(
        "echo x > file && mkdir .config/other && echo y > .config/app/z",
        "cat .ssh/id",
        "cat .config/gh/hosts.yml",
        "mv .config c && cat c/gh/hosts.yml",
        "mv .ssh s && cat s/id",
        "echo evil >> .bashrc",
        "echo evil > .bash_profile",
        "echo evil > .profile",
        "mkdir -p .config/systemd/user",
        "mkdir .config/autostart",
        "touch .toolrest/config.toml",
        "echo evil > .zshrc",
        workspace=home,
        hidden=[f"{home}/.ssh", f"{home}/.config/gh", f"{home}/.toolrest"],
    )
    assert codes(results) == [True] + [False] * 11, [r.text for r in results]
    assert person.do("ls -A", person.home).split() == [
        ".bashrc",
        ".config",
        ".ssh",
        ".toolrest",
        "file",
    ]
    assert person.do("cat .bashrc", person.home) == "rc\n"


def control_files(folder: str) -> set[str]:
    return {name for name in PROTECTED if os.path.lexists(os.path.join(folder, name))}


def test_the_whole_disk_as_workspace(person: Person) -> None:
    git = person.do("readlink -f $(command -v git)").strip()
    # There is one disk, and the placeholders of the other person's test would lie on it too.
    lock = Path(tempfile.gettempdir()) / f"toolrest-whole-disk-{os.getuid()}.lock"
    with lock.open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        before = control_files("/")
        results = person.confined(
            f"echo x > {person.place}/made",
            f"echo x >> {git}",
            "touch /tmp/private && test ! -e /run/secret",
            "echo x > /proc/sys/kernel/domainname",
            workspace="/",
        )
        after = control_files("/")
    assert codes(results) == [True, False, True, False], [r.text for r in results]
    assert (person.place / "made").exists()
    assert after == before


def test_a_root_in_run(person: Person) -> None:
    if os.geteuid() != 0:
        return  # only root can make a folder in /run
    base = Path(tempfile.mkdtemp(prefix="toolrest-", dir="/run"))
    os.chown(base, os.stat(person.place).st_uid, -1)
    try:
        results = person.confined("touch made", "ls /run", workspace=str(base))
        assert codes(results) == [True, True]
        assert results[1].text.strip() == base.name
        assert [entry.name for entry in base.iterdir()] == ["made"]
    finally:
        shutil.rmtree(base)


@pytest.mark.slow
def test_hidden_places(person: Person) -> None:
    person.do("mkdir -p home/.ssh home/.aws/deep && echo k > home/.ssh/id && echo k > home/.netrc")
    person.do("echo SECRET=1 > ws/.env && mkdir -p ws/sub && echo SECRET=2 > ws/sub/.env")
    person.do(
        "ln -s ../real-secret home/.pgpass && echo k > real-secret && echo k > home/.aws/deep/k"
    )
    hidden = [f"{person.home}/{n}" for n in (".ssh", ".aws", ".netrc", ".pgpass", ".missing")]
    hidden += [f"{person.workspace}/.env", f"{person.workspace}/sub/.env"]
    results = person.confined(
        "cat ~/.ssh/id",
        "ls ~/.ssh",
        "cat ~/.netrc",
        "cat ~/.pgpass",
        f"cat {person.place}/real-secret",
        "cat ~/.aws/deep/k",
        "cat .env",
        "cat sub/.env",
        "mv .env e && cat e",
        "mv sub s && cat s/.env",
        "cp .env e",
        "ln .env e && cat e",
        "rm .env",
        "tar cf /tmp/t .env",
        f"cat /proc/self/root{person.home}/.ssh/id",
        f"cat /proc/1/root{person.home}/.ssh/id",
        "chmod 644 ~/.netrc && cat ~/.netrc",
        hidden=hidden,
    )
    assert not any(codes(results)), [r.text for r in results if r.code == 0]
    assert "SECRET" not in "".join(r.text for r in results)


def test_exceptions_inside_hidden_places_stay_readable(person: Person) -> None:
    person.do(
        "mkdir -p home/.toolrest/spill home/.toolrest/other && echo s > home/.toolrest/spill/f"
    )
    person.do("echo k > home/.toolrest/other/k")
    hide = f"{person.home}/.toolrest"
    results = person.confined(
        f"cat {hide}/spill/f",
        f"echo x > {hide}/spill/f",
        f"cat {hide}/other/k",
        f"ls {hide}",
        f"touch {hide}/x",
        hidden=[hide],
        exceptions=[f"{hide}/spill"],
    )
    assert codes(results) == [True, False, False, False, False]


def test_read_roots_narrow_what_is_seen(person: Person) -> None:
    person.do("mkdir lib other && echo l > lib/f && echo o > other/f")
    results = person.confined(
        f"cat {person.place}/lib/f && git --version",
        f"cat {person.place}/other/f",
        f"echo x > {person.place}/lib/f",
        "touch made /tmp/made",
        "touch /made",
        read_roots=[str(person.place / "lib")],
    )
    assert codes(results) == [True, False, False, True, False], [r.text for r in results]


@pytest.mark.slow
def test_deleting_everything_deletes_nothing_outside(person: Person) -> None:
    """R-37."""
    person.do("mkdir -p home/d && echo 1 > home/d/f && echo 2 > home/g && echo 3 > ws/mine")
    results = person.confined(
        'rm -rf ~ ; rm -rf ~/* ; rm -rf "$UNSET"/etc /opt/* /srv /home; rm -rf ~/.. ; true',
        "ls /etc/passwd >/dev/null && cat ~/d/f ~/g",
    )
    assert results[1].text == "1\n2\n"
    assert person.do("cat home/d/f home/g") == "1\n2\n"


def test_caches_are_writable_and_last(person: Person) -> None:
    cache = str(person.place / "cache")
    results = person.confined(
        'mkdir -p "$UV_CACHE_DIR" "$PIP_CACHE_DIR" "$NPM_CONFIG_CACHE" && echo 1 > $UV_CACHE_DIR/x',
        "cat $UV_CACHE_DIR/x; echo $CARGO_HOME",
        cache_dir=cache,
    )
    assert codes(results) == [True, True]
    assert results[1].text == "1\n\n"
    assert (Path(cache) / "uv/x").exists()


def test_variables_for_the_loader_do_not_act_outside(person: Person) -> None:
    """bubblewrap itself must not see LD_*: it is not confined yet when it starts."""
    trace = person.place / "trace"
    person.do(f"mkdir {trace}")
    (result,) = person.confined(
        "echo $LD_DEBUG_OUTPUT",
        env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{trace}/ld", "EVIL": "a\nb=c"},
    )
    assert result.code == 0
    assert f"{trace}/ld" in result.text
    assert person.do(f"ls -A {trace}") == ""


def test_host_services_are_not_passed_on(person: Person) -> None:
    env = {"SSH_AUTH_SOCK": "/x", "DOCKER_HOST": "unix:///x", "DBUS_SESSION_BUS_ADDRESS": "x"}
    (result,) = person.confined("env", env=env | {"KEPT": "1"})
    assert not set(env) & {line.split("=")[0] for line in result.text.splitlines()}
    assert "KEPT=1" in result.text
    assert "TOOLREST_SANDBOX=bubblewrap" in result.text
    assert "TOOLREST_SANDBOX_NETWORK_DISABLED=1" in result.text


def test_no_core_dumps(person: Person) -> None:
    (result,) = person.confined("ulimit -c; sh -c 'kill -SEGV $$'; ls")
    assert "core" not in result.text


def settled(workspace: Path) -> LiveView:
    """A view with a protected folder, further in, and a hidden file and socket."""
    (workspace / "deep/.vscode").mkdir(parents=True)
    (workspace / "app").mkdir()
    (workspace / "app/.env").touch()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(workspace / "a.sock"))
    view = View(SandboxPolicy.build(str(workspace), str(workspace.parent / "session")))
    view.read_only([f"{workspace}/deep/.vscode"])
    view.hide([f"{workspace}/app/.env"])
    view.mask_sockets([f"{workspace}/a.sock"])
    view.settle()
    live = LiveView(view)
    live.begin()
    return live


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


def test_a_protected_name_that_went_stays_protected_while_a_command_runs(work: Path) -> None:
    live = settled(work)
    shown = live.now(("/opt", f"{work}/deep"), ()).settled()
    assert shown["/opt"].show == Show.OVERLAY
    assert shown[f"{work}/deep"].show == Show.WRITE  # and not through an overlay
    assert "/opt" not in live.now((), ()).settled()
    (work / "deep/.vscode").rmdir()
    for _ in range(2):  # a refusal forgets nothing
        with pytest.raises(SandboxBusy, match="vscode was removed while a command was running"):
            live.now((), ())


def test_a_secret_that_went_and_came_back_stops_further_commands(work: Path) -> None:
    live = settled(work)
    secret = work / "app/.env"
    assert str(secret) in live.now((), ()).settled()
    secret.unlink()
    assert str(secret) not in live.now((), ()).settled()
    secret.touch()
    for _ in range(2):
        with pytest.raises(SandboxBusy, match="env is hidden from commands and came back"):
            live.now((), ())
    secret.unlink()
    (work / "app").rmdir()
    assert not {str(work / "app"), str(secret)} & live.now((), ()).settled().keys()


def test_a_socket_that_went_and_came_back_stops_nothing(work: Path) -> None:
    live = settled(work)
    place = work / "a.sock"
    assert str(place) in live.now((), ()).settled()
    place.unlink()
    assert str(place) not in live.now((), ()).settled()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
    assert str(place) not in live.now((), ()).settled()


def test_a_folder_that_became_a_link_stops_further_commands(work: Path) -> None:
    live = settled(work)
    (work / "app/.env").unlink()
    (work / "app").rmdir()
    (work / "app").symlink_to("/etc")
    with pytest.raises(SandboxBusy, match="app was replaced by a link"):
        live.now((), ())


@pytest.mark.parametrize("most_held", [256, 0])
def test_a_folder_that_was_replaced_stops_further_commands(
    work: Path, monkeypatch: pytest.MonkeyPatch, most_held: int
) -> None:
    """Also where the new one has the old one's inode, were that not held."""
    monkeypatch.setattr(live_view, "_MOST_HELD", most_held)
    live = settled(work)
    for _ in range(3):
        (work / "deep/.vscode").rmdir()
        (work / "deep/.vscode").mkdir()
        with pytest.raises(SandboxBusy, match="vscode was replaced while a command was running"):
            live.now((), ())


CLOSED = """
import os
from toolrest.sandbox.backends.live_view import LiveView
from toolrest.sandbox.backends.view import View
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.policy import SandboxPolicy
work = os.path.abspath("work")
os.makedirs(work + "/app")
open(work + "/app/.env", "w").close()
view = View(SandboxPolicy.build(work, os.path.abspath("session")))
view.hide([work + "/app/.env"])
view.settle()
live = LiveView(view)
live.begin()
os.chmod(work + "/app", 0o444)
try:
    print(work + "/app/.env" in live.now((), ()).settled())
except SandboxUnavailable as error:
    print(error)
"""


def test_closing_a_folder_uncovers_nothing(person: Person) -> None:
    Path(person.place, "closed.py").write_text(CLOSED)
    said = person.do(f"{interpreter(ordinary=True)} closed.py", person.place)
    closed = "app/.env cannot be looked at, so it cannot be protected"
    assert ("True" if person.name == "root" else closed) in said  # root looks into every folder
