"""A denial is named; a plain failure is never called one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.sandbox.backends.launcher import disturbed, launcher_problem
from toolrest.sandbox.denial import (
    Denial,
    find_blocked,
    find_denials,
    likely_denied,
)
from toolrest.sandbox.policy import SandboxPolicy


@pytest.fixture
def policy(tmp_path: Path) -> SandboxPolicy:
    workspace = tmp_path / "ws"
    (workspace / ".git/hooks").mkdir(parents=True)
    (workspace / "run.sh").write_text("exit 1\n")
    (tmp_path / "home/.ssh").mkdir(parents=True)
    return SandboxPolicy.build(
        str(workspace), str(tmp_path / "session"), hidden=[str(tmp_path / "home/.ssh")]
    )


DENIED = [
    ("touch: cannot touch '/usr/x': Read-only file system", Denial("write", "/usr/x")),
    ("OSError: [Errno 30] Read-only file system: '/usr/x'", Denial("write", "/usr/x")),
    ("Error: EROFS: read-only file system, open '/usr/x'", Denial("write", "/usr/x")),
    # Node says so, whatever the reason was.
    ("Error: ENOENT: no such file or directory, mkdir '/usr/x'", Denial("write", "/usr/x")),
    ("open /usr/x: read-only file system", Denial("write", "/usr/x")),
    ("bash: line 1: /usr/x: Read-only file system", Denial("write", "/usr/x")),
    ("cp: cannot create regular file '/usr/x': Read-only file system", Denial("write", "/usr/x")),
    ("cat: {home}/.ssh/id_rsa: Permission denied", Denial("read", "{home}/.ssh/id_rsa")),
    ("bash: .git/hooks/x: Read-only file system", Denial("write", "{ws}/.git/hooks/x")),
    (
        "/bin/bash: line 1: .git/hooks/x: Read-only file system",
        Denial("write", "{ws}/.git/hooks/x"),
    ),
    ("/bin/bash: line 1: /usr/a b: Read-only file system", Denial("write", "/usr/a b")),
    ("/bin/bash: line 2: /usr/a: b: Read-only file system", Denial("write", "/usr/a: b")),
    ("s.sh: 1: cannot create /usr/a b: Read-only file system", Denial("write", "/usr/a b")),
    ("/bin/bash: line 3: cd: /usr/x: Read-only file system", Denial("write", "/usr/x")),
    (
        "fatal: cannot copy '/usr/share/a' to '{ws}/.git/a': Read-only file system",
        Denial("write", "{ws}/.git/a"),
    ),
    ("bash: {home}/.ssh/x: Read-only file system", Denial("write", "{home}/.ssh/x")),
    ("rm: cannot remove '.vscode': Device or resource busy", Denial("write", "{ws}/.vscode")),
    (
        "OSError: [Errno 16] Device or resource busy: '.git' -> 'away'",
        Denial("write", "{ws}/.git"),
    ),
    ("unshare: unshare failed: Operation not permitted", Denial("call")),
    ("PermissionError: [Errno 1] Operation not permitted", Denial("call")),
    ("curl: (6) Could not resolve host: example.com", Denial("network")),
    ("socket.gaierror: [Errno -3] Temporary failure in name resolution", Denial("network")),
]

PLAIN = [
    "FAILED tests/sandbox/test_x.py::test_seccomp - assert 1 == 2",
    "Error: ENOENT: no such file or directory, mkdir '{ws}/a'",
    "Error: ENOENT: no such file or directory, mkdir '/nonesuch/a'",
    "Error: ENOENT: no such file or directory, mkdir '/usr/bin'",
    "bash: ./run.sh: Permission denied",
    "/bin/bash: line 1: mounted: Read-only file system",
    "/bin/bash: line 1: a b: Read-only file system",
    "PermissionError: [Errno 13] Permission denied: '{ws}/locked'",
    "chmod: changing permissions of 'run.sh': Operation not permitted",
    "git@example.com: Permission denied (publickey).",
    "make: *** [Makefile:2: all] Error 1",
    "the landlock crate failed to compile",
    "connect: Connection refused",
    "rm: cannot remove '{ws}/mounted': Device or resource busy",
    "umount: /mnt: target is busy.",
    "",
]


def blocked_words(*given: Any) -> str | None:
    found = find_blocked(*given)
    return None if found is None else found.words


def filled(text: str, policy: SandboxPolicy) -> str:
    home = str(Path(policy.workspace).parent / "home")
    return text.replace("{home}", home).replace("{ws}", policy.workspace)


@pytest.mark.parametrize(("line", "denial"), DENIED)
def test_denials_are_found(policy: SandboxPolicy, line: str, denial: Denial) -> None:
    text = f"some output\n{filled(line, policy)}\nmore\n"
    wanted = Denial(denial.op, filled(denial.subject, policy))
    assert find_denials(text, policy, policy.workspace) == (wanted,)
    words = blocked_words("", text, 1, "bubblewrap", policy, policy.workspace)
    assert words is not None
    assert wanted.subject in words


@pytest.mark.parametrize("line", PLAIN)
def test_plain_failures_are_not_denials(policy: SandboxPolicy, line: str) -> None:
    text = filled(line, policy)
    assert find_denials(text, policy, policy.workspace) == ()
    assert blocked_words(text, "", 1, "bubblewrap", policy, policy.workspace) is None


def test_an_exit_code_of_0_is_no_failure_but_denials_can_be_read(policy: SandboxPolicy) -> None:
    text = "touch: cannot touch '/usr/x': Read-only file system"
    found = find_blocked("", text, 0, "bubblewrap", policy, "/")
    assert found is not None
    assert not found.shown
    assert found.words == "by its output, the sandbox (bubblewrap) blocked writing to /usr/x"
    assert found.denials == find_denials(text, policy, "/") == (Denial("write", "/usr/x"),)


def test_a_code_that_proves_nothing_leaves_only_the_words(policy: SandboxPolicy) -> None:
    text = "touch: cannot touch '/usr/x': Read-only file system"
    found = find_blocked("", text, 1, "bubblewrap", policy, "/", proves=False)
    assert found is not None
    assert not found.shown
    found = find_blocked("", text, 1, "bubblewrap", policy, "/", ["a.test:443"], proves=False)
    assert found is not None
    assert found.shown


def test_below_a_private_folder_it_counts_what_the_host_has(tmp_path: Path) -> None:
    base = Path(tempfile.mkdtemp(prefix="toolrest-test-", dir="/tmp"))
    try:
        (base / "ws").mkdir()
        (base / "there").write_text("x")
        policy = SandboxPolicy.build(str(base / "ws"), str(tmp_path / "s"))
        said = "cat: {}: No such file or directory"
        for path, wanted in (
            (f"{base}/there", (Denial("read", f"{base}/there"),)),
            (f"{base}/new", (Denial("write", f"{base}/new"),)),
            (f"{base}/no/folder", ()),
            (f"{base}/ws/missing", ()),
            ("/tmp/never-there", ()),
            ("/usr/never-there", ()),
        ):
            assert find_denials(said.format(path), policy, "/") == wanted
            assert find_denials(said.format(path), policy, "/", backend="landlock") == ()
    finally:
        shutil.rmtree(base)


def test_below_a_hidden_folder_the_name_alone_decides(policy: SandboxPolicy) -> None:
    (place,) = [place for place in policy.hidden if os.path.isdir(place)]
    Path(place, "there").touch()
    for name in ("there", "missing", "no/folder"):
        line = f"cat: {place}/{name}: No such file or directory"
        assert find_denials(line, policy, "/") == (Denial("read", f"{place}/{name}"),)


def test_a_killed_system_call(policy: SandboxPolicy) -> None:
    words = blocked_words("", "", 159, "bubblewrap", policy, "/")
    assert words is not None
    assert "system call" in words


def test_landlock_says_permission_denied(policy: SandboxPolicy) -> None:
    text = "touch: cannot touch '/usr/never-there': Permission denied"
    assert find_denials(text, policy, "/", backend="landlock") == (
        Denial("write", "/usr/never-there"),
    )
    assert find_denials(text, policy, "/", backend="bubblewrap") == ()


def test_hosts_of_the_proxy_are_named(policy: SandboxPolicy) -> None:
    words = blocked_words("", "curl: (56)", 56, "bubblewrap", policy, "/", ["example.com:443"])
    assert words is not None
    assert "a connection to example.com:443" in words


@pytest.mark.parametrize(
    ("code", "text", "denied"),
    [
        (0, "Operation not permitted", False),
        (1, "Operation not permitted", True),
        (1, "PERMISSION DENIED", True),
        (126, "permission denied", True),
        (2, "usage", False),
        (127, "not found", False),
        (159, "", True),
        (1, "exit", False),
    ],
)
def test_words_alone(code: int, text: str, denied: bool) -> None:
    assert likely_denied(code, text) is denied
    assert (blocked_words("", text, code, "landlock") is not None) is denied


def test_a_mount_that_came_in_between_is_known_by_its_words() -> None:
    words = (
        "bwrap: Can't make overlay mount on /newroot/var with options lowerdir=/oldroot/var"
        ":/oldroot/usr/local/games,userxattr: Invalid argument\n"
    )
    assert disturbed(words, 1)
    assert not disturbed(words, 0)
    assert not disturbed(f"something else first\n{words}", 1)
    assert not disturbed("bwrap: Can't chdir to /x: No such file or directory\n", 1)
    for words in (
        "bwrap: Can't find source path /var/lib/x: No such file or directory\n",
        "bwrap: Can't mkdir /var/lib/x: Read-only file system\n",
        "bwrap: Can't mkdir parents for /tmp/x/s.sock: Read-only file system\n",
    ):
        assert disturbed(words, 1)


def test_the_launchers_own_words() -> None:
    assert launcher_problem("bwrap: Can't chdir to /x: No such file or directory\n", 1) is not None
    assert launcher_problem("bwrap: x\n", 0) is None
    assert launcher_problem("hello\nbwrap: x\n", 1) is None


@given(st.text(max_size=300), st.text(max_size=300), st.integers(0, 255))
def test_any_output_is_judged(stdout: str, stderr: str, code: int) -> None:
    policy = SandboxPolicy(workspace="/ws", session_dir="/s", roots=("/ws",), hidden=("/h",))
    words = blocked_words(stdout, stderr + ": Permission denied", code, "landlock", policy, "/ws")
    assert words is None or "\n" not in words


def test_a_workspace_below_tmp(tmp_path: Path) -> None:
    """A command has a /tmp of its own; what is shown of the host's in there is not writable."""
    base = Path(tempfile.mkdtemp(prefix="toolrest-test-", dir="/tmp"))
    try:
        (base / "ws").mkdir()
        reading = SandboxPolicy.build(str(base / "ws"), str(tmp_path / "s"), mode="read-only")
        inside = f"touch: cannot touch '{base}/ws/x': Read-only file system"
        assert find_denials(inside, reading, "/") == (Denial("write", f"{base}/ws/x"),)
        writing = SandboxPolicy.build(str(base / "ws"), str(tmp_path / "s"))
        beside = f"touch: cannot touch '{base}/x': Read-only file system"
        assert find_denials(beside, writing, "/") == (Denial("write", f"{base}/x"),)
        refused = "touch: cannot touch '/tmp/never-there': Permission denied"
        assert find_denials(refused, writing, "/") == ()
        assert find_denials(refused, writing, "/", backend="landlock") == (
            Denial("write", "/tmp/never-there"),
        )
    finally:
        shutil.rmtree(base)


def test_toolrests_own_files_in_a_root(tmp_path: Path) -> None:
    policy = SandboxPolicy.build(sys.prefix, str(tmp_path / "s"))
    text = f"ERROR: Read-only file system: '{sys.prefix}/bin/python'"
    assert find_denials(text, policy, "/") == (Denial("write", f"{sys.prefix}/bin/python"),)


@pytest.mark.needs("namespaces")
def test_the_sandbox_says_so_for_a_workspace_below_tmp(person: Any, tmp_path: Path) -> None:
    base = person.do("mktemp -d /tmp/toolrest-test-XXXXXX").strip()
    try:
        person.do(f"mkdir {base}/ws")
        policy = SandboxPolicy.build(f"{base}/ws", str(tmp_path / "s"))
        results = person.confined(f"touch {base}/x", "touch /tmp/x", workspace=f"{base}/ws")
        assert [result.code for result in results] == [1, 0]
        assert find_denials(results[0].text, policy, base) == (Denial("write", f"{base}/x"),)
    finally:
        person.do(f"rm -r {base}")


def test_a_file_that_is_no_program_is_a_plain_failure(
    tmp_path: Path, policy: SandboxPolicy
) -> None:
    plain = tmp_path / "plain.sh"
    plain.write_text("exit 0\n")
    said = f"bash: {plain}: Permission denied"
    assert blocked_words("", said, 126, "landlock", policy, "/") is None
    assert blocked_words("", said, 1, "landlock", policy, "/") is not None
