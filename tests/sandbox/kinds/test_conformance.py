"""The same tests for every kind of sandbox. A docstring's first line is a row of the matrix."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.kinds.conftest import Kind, Open
from tests.sandbox.kinds.kinds import FORCED, KINDS, furnish
from tests.sandbox.test_set_id import SCRIPT as SET_ID

Record = Any
CANNOT = {
    ("landlock", "protected"): "not in a writable root",
    ("landlock", "hidden"): "not in a writable root",
    ("landlock", "allowlist"): "refused",
    ("landlock", "tree"): "when the session ends",
    ("docker", "set_id"): "the engine's filter lets them",
}
"""What a kind does not do, as `doctor` prints it; the test then shows that it is really so."""


def cell(record_property: Record, text: str) -> None:
    """What the matrix says instead of `yes`."""
    record_property("cell", text)


def test_every_kind_is_a_row() -> None:
    assert set(KINDS) >= {"bubblewrap", "landlock", "chroot", "docker", "gvisor"}


async def test_runs(box: Kind) -> None:
    """Exit codes, both streams, variables, folders"""
    done = (await box.sh("echo out; echo err >&2; exit 7")).result
    assert (done.exit_code, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert (await box.sh("kill -TERM $$")).result.exit_code == 143
    assert (await box.sh("no-such-program-here")).result.exit_code == 127
    assert await box.out("basename $(pwd -P); cat ../file", cwd=f"{box.workspace}/sub") == (
        "sub\ntext\n"
    )
    assert await box.out(f"cat {box.workspace}/file") == "text\n"


async def test_variables(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables arrive as they are, with line ends too"""
    values = {"ONE": "a b=c 'd'", "SEVERAL": 'first\\n"\nsecond\n\n', "ODD": "é\r\n$(x) %s"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    box = await opened()
    line = "python3 -c 'import os, sys; print(ascii([os.environ[n] for n in sys.argv[1:]]))' "
    assert await box.out(line + " ".join(values)) == f"{list(values.values())!a}\n"


@pytest.mark.parametrize("user", ["1234:1234", "games"])
async def test_a_user_of_the_image(opened: Open, kind: str, port: int, user: str) -> None:
    """Another user (`sandbox.user`) has /tmp and the allow list, and cannot read what is hidden"""
    if kind != "docker":
        pytest.skip(f"{kind}: only containers have users of their own")
    box = await opened(
        hosts=(f"127.0.0.1:{port}",), sandbox={**KINDS[kind]()["sandbox"], "user": user}
    )
    (box.workspace / ".env").chmod(0o600)
    box.workspace.chmod(0o755)
    assert await box.out("id -u; echo x > $TMPDIR/x; mkdir -p ~/y; cat /tmp/x") != "0\nx\n"
    assert (await box.sh("cat .env")).result.exit_code != 0
    url = f"http://127.0.0.1:{port}/"
    assert await box.out(f"NO_PROXY= no_proxy= {FETCH} {url}") == "hello\n"


async def test_writes(box: Kind) -> None:
    """Writes the workspace and its temporary folder, as the user, and nothing else"""
    await box.out("echo new > sub/new; mkdir d; mv sub/new d; echo x > $TMPDIR/kept")
    made = box.workspace / "d/new"
    assert made.read_text() == "new\n"
    assert (made.stat().st_uid, made.stat().st_gid) == (os.geteuid(), os.getegid())
    assert await box.out("cat $TMPDIR/kept") == "x\n"
    outside = box.workspace.parent / "outside"
    for path in (outside, Path("/usr/x"), Path("/etc/x")):
        assert (await box.sh(f"echo x > {path}")).result.exit_code != 0
        assert not path.exists()


NAMES = (".git/hooks/x", ".git/config", ".vscode/x", ".codex", ".mcp.json", ".envrc")


async def test_protected(box: Kind, kind: str, record_property: Record) -> None:
    """Protected names, there or not, cannot be written"""
    codes = [(await box.sh(f"echo x > {name}")).result.exit_code for name in NAMES]
    renamed = (await box.sh("mv .git .other || mv .git/hooks .git/other")).result.exit_code
    if (kind, "protected") in CANNOT:
        assert 0 in codes
        cell(record_property, CANNOT[kind, "protected"])
        return
    assert 0 not in (*codes, renamed), codes
    assert not (box.workspace / ".git/hooks/x").exists()
    await box.runner.aclose()
    names = {path.name for path in box.workspace.iterdir()}
    assert names == {".git", "sub", ".env", "file"}


@pytest.mark.parametrize("mode", ["workspace-write", "read-only"])
async def test_hidden(opened: Open, kind: str, mode: str, record_property: Record) -> None:
    """Hidden files cannot be read, also those that came during the session"""
    box = await opened(sandbox_mode=mode)
    said = (await box.sh("cat .env")).result
    if (kind, "hidden") in CANNOT:
        cell(record_property, CANNOT[kind, "hidden"])
        if mode == "workspace-write":
            assert said.exit_code == 0
            return
    assert "hidden-away" not in said.stdout
    (box.workspace / ".env.local").write_text("KEY=hidden-away\n")
    said = (await box.sh("cat .env.local; mv .env other; cat other")).result
    assert "hidden-away" not in said.stdout


async def test_read_only(opened: Open) -> None:
    """In read-only mode nothing is written"""
    box = await opened(sandbox_mode="read-only")
    assert await box.out("cat file") == "text\n"
    assert (await box.sh("echo x > new")).result.exit_code != 0
    assert not (box.workspace / "new").exists()


async def test_set_id(box: Kind, kind: str, record_property: Record) -> None:
    """Commands of root make no setuid files"""
    if os.geteuid() != 0:
        pytest.skip("what another user's commands make is not root's")
    (box.workspace / "make.py").write_text(SET_ID)
    await box.out("python3 make.py")
    made = [path.name for path in box.workspace.iterdir() if path.stat().st_mode & 0o6000]
    if (kind, "set_id") in CANNOT:
        assert made
        cell(record_property, CANNOT[kind, "set_id"])
        return
    assert made == []


UNCOVER = """python3 -c '
import ctypes, os
call = ctypes.CDLL(None).syscall
UNSHARE, MOUNT, UMOUNT, PRIVATE, DETACH, BIND = 272, 165, 166, 0x10020000, 2, 4096
places = [path for path in ("/proc", "/sys", "/dev", "/run", "/run/toolrest", "/tmp", ".env")
          if os.path.exists(path)]
def seen():
    return [(path, os.stat(path).st_dev, os.stat(path).st_ino) for path in places]
os.makedirs("beneath", exist_ok=True)
before = seen()
call(UNSHARE, PRIVATE)
for name in ("uid_map", "gid_map"):
    try:
        with open(f"/proc/self/{name}", "w") as table:
            table.write(f"0 {os.getuid()} 1")
    except OSError:
        pass
call(MOUNT, b"/", b"beneath", None, BIND, None)
for path in places:
    call(UMOUNT, path.encode(), DETACH)
print(os.listdir("beneath"), seen() == before)
' """


async def test_uncovers_nothing(box: Kind) -> None:
    """What lies beneath a mount stays covered, in namespaces of a command's own too"""
    if platform.machine() != "x86_64":
        pytest.skip("the numbers of the calls are those of x86-64")
    assert await box.out(UNCOVER) == "[] True\n"


async def test_tree_ends(box: Kind, kind: str, record_property: Record) -> None:
    """What a command left running is gone when it is answered"""
    mark = f"toolrest-left-{os.getpid()}-{kind}"
    await box.out(f"(setsid sh -c 'sleep 300; : {mark}' >/dev/null 2>&1 &) ; sleep 0.2")
    if (kind, "tree") in CANNOT:
        assert running(mark)
        await box.runner.aclose()
        assert not running(mark)
        cell(record_property, CANNOT[kind, "tree"])
        return
    assert not running(mark)
    assert (await box.sh(f"sh -c 'sleep 300; : {mark}'", seconds=1)).result.timed_out
    assert not running(mark)
    assert await box.out("echo again") == "again\n"
    await box.sh(f"(setsid sh -c 'sleep 300; : {mark}' >/dev/null 2>&1 &) ; kill -9 $PPID $$")
    assert not running(mark)


def running(mark: str) -> list[str]:
    """Processes of this machine with a mark in their arguments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in words and pid != str(os.getpid()):
            found.append(words.decode(errors="replace"))
    return found


async def test_side_by_side(box: Kind) -> None:
    """Commands run side by side, and one that ends leaves the other alone"""
    slow = asyncio.create_task(box.out("sleep 2; echo slow"))
    await asyncio.sleep(0.5)
    assert await box.out("echo quick") == "quick\n"
    assert await slow == "slow\n"


async def test_terminal(box: Kind) -> None:
    """A terminal: typed lines, Ctrl-C, window size"""
    launch = box.runner.plan(("/bin/sh", "-c", "stty size; cat; echo over"), None, tty=True)
    done = await box.runner.execute(launch, yield_ms=10_000, outside=False, call_id="1")
    text, number = done.result.text, done.result.session_id
    assert number is not None, text
    text += (await box.runner.write(number, "typed\n", yield_ms=2_000)).result.text
    code, said = await typed(box, number, "\x04")
    text += said
    assert "24 80" in text
    assert "typed" in text
    assert "over" in text
    assert code == 0

    launch = box.runner.plan(("/bin/sh", "-c", "echo began; sleep 100"), None, tty=True)
    done = await box.runner.execute(launch, yield_ms=5_000, outside=False, call_id="2")
    assert done.result.session_id is not None, done.result.text
    code, said = await typed(box, done.result.session_id, "\x03")
    assert code == 130, said


async def typed(box: Kind, number: int, keys: str) -> tuple[int | None, str]:
    """Type, and wait for the end: the exit code, and what came until then."""
    text = ""
    async with asyncio.timeout(60):
        while True:
            result = (await box.runner.write(number, keys, yield_ms=5_000)).result
            text, keys = text + result.text, ""
            if result.session_id is None:
                return result.exit_code, text


FETCH = """python3 -c '
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except OSError as error:
    print("failed", getattr(error, "code", type(error).__name__))
' """
DIRECT = """python3 -c '
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5)
    print("reached")
except OSError as error:
    print("failed")
' """


async def test_no_network(box: Kind, port: int) -> None:
    """Without a network nothing is reached"""
    assert await box.out(f"{DIRECT} {port}") == "failed\n"


CONNECT = """python3 -c '
import socket
try:
    socket.socket(socket.AF_UNIX).connect("service.sock")
    print("reached")
except OSError:
    print("failed")
' """


async def test_host_sockets(box: Kind, listen: Callable[[str], list[bytes]]) -> None:
    """A unix socket of the host in the workspace does not answer"""
    assert await box.out(CONNECT) == "failed\n"
    listen(str(box.workspace / "service.sock"))
    assert await box.out(CONNECT) == "failed\n"


async def test_allow_list(
    opened: Open, port: int, kind: str, workspace: Path, record_property: Record
) -> None:
    """An allow list lets its hosts through, and no other"""
    if (kind, "allowlist") in CANNOT:
        with pytest.raises(Exception, match="allowlist"):
            await (await opened(hosts=(f"127.0.0.1:{port}",))).out("true")
        cell(record_property, CANNOT[kind, "allowlist"])
        return
    box = await opened(hosts=(f"127.0.0.1:{port}",))
    url = f"http://127.0.0.1:{port}/"
    # The proxy's variables except loopback, which the listed host is here.
    assert await box.out(f"NO_PROXY= no_proxy= {FETCH} {url}") == "hello\n"
    assert await box.out(f"NO_PROXY= no_proxy= {FETCH} http://127.0.0.2:{port}/") == "failed 403\n"
    assert await box.out(f"{DIRECT} {port}") == "failed\n"


async def test_limits(opened: Open, kind: str) -> None:
    """Limits of file size and memory"""
    box = await opened(limits={"file_size": "1MB", "memory": "300MB"})
    await box.sh("head -c 3000000 /dev/zero > big")
    assert (box.workspace / "big").stat().st_size == 1_000_000
    line = "python3 -c 'x = bytearray(700_000_000); print(len(x))'"
    done = (await box.sh(line)).result
    assert done.exit_code != 0, done
    assert await box.out("echo still fine") == "still fine\n"


EVERYDAY = (
    "cat <<END\nhere\nEND",
    "yes | head -n 10000 | sort | uniq -c | wc -l",
    "set -e; mkdir -p a/b; echo 1 > a/b/c; tar cf t.tar a; rm -r a; tar xf t.tar; cat a/b/c",
    "f=$(mktemp); echo x > $f; cat $f; sleep 0.01 & wait",
    "(exit 3); test $? = 3 && kill -0 $$ && nice -n 5 true && ulimit -n > /dev/null",
    "ln -s a link && readlink link && ls > /dev/null && id && find . -name t.tar",
    "python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0.01))'",
    "python3 -c 'import tempfile; tempfile.NamedTemporaryFile().write(b\"x\")'",
    "git --version && git init -q other && cd other && echo x > f && git add f",
)


async def test_everyday(box: Kind) -> None:
    """Everyday work: shells, tar, Python, git"""
    failed = [line for line in EVERYDAY if (await box.sh(line)).result.exit_code]
    assert failed == []


KILLED = """
import asyncio, json, os, sys
from toolrest.agent.setup.runner import standalone_runner
from toolrest.config.loader import load

async def main(wish):
    places = {"workspace": wish["workspace"], "home": wish["home"]}
    config = load(flags=wish["flags"], env=os.environ, **places)
    runner = standalone_runner(config, os.environ, backend=wish["backend"])
    argv = ("/bin/sh", "-c", "echo began > began; sleep 300; : " + wish["mark"])
    await runner.run(argv, wish["workspace"], seconds=300, outside=False)

asyncio.run(main(json.loads(sys.argv[1])))
"""


async def test_killed(settings: dict[str, Any], kind: str, workspace: Path) -> None:
    """After kill -9 of Toolrest nothing runs on and nothing is left"""
    mark = f"toolrest-killed-{os.getpid()}-{kind}"
    home = workspace.parent / "home"
    wish = {
        "workspace": str(workspace),
        "home": str(home),
        "flags": {"sandbox_mode": "workspace-write", **settings},
        "backend": FORCED.get(kind),
        "mark": mark,
    }
    furnish(kind, home)
    env = {**os.environ, "TOOLREST_HOME": str(home)}
    host = subprocess.Popen([sys.executable, "-c", KILLED, json.dumps(wish)], env=env)
    try:
        await until(lambda: (workspace / "began").exists())
    finally:
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
    await until(lambda: not [line for line in running(mark) if "KILLED" not in line])
    left = {".git", "sub", ".env", "file", "began"}
    await until(lambda: {path.name for path in workspace.iterdir()} == left)
    if kind == "docker":
        await until(lambda: not containers(settings["sandbox"]))


def containers(options: dict[str, Any]) -> str:
    ask = [options["engine"], *options["engine_args"], "ps", "--all", "--quiet"]
    ask += ["--filter", f"ancestor={options['image']}"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout


async def until(holds: Any, seconds: float = 40) -> None:
    """Wait for a thing itself, with a generous limit."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
