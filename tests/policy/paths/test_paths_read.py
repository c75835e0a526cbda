"""What a session may read, and that exactly what was judged is what is opened."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.errors import Rejected
from toolrest.policy.paths.policy import PathPolicy


def test_relative_paths_start_from_cwd_and_absolute_ones_replace_it(places: Any) -> None:
    (places.workspace / "sub").mkdir()
    files = places.policy(cwd="sub")
    assert files.resolve("x") == f"{places.workspace}/sub/x"
    assert files.resolve("../a.txt") == f"{places.workspace}/a.txt"
    assert files.resolve("/etc/../etc//hosts") == "/etc/hosts"
    assert files.resolve("//etc/hosts") == "/etc/hosts"
    assert files.resolve("") == f"{places.workspace}/sub"
    assert files.resolve(Path("/")) == "/"


def unencodable(char: str) -> bool:
    return "\ud800" <= char <= "\udfff" and not "\udc80" <= char <= "\udcff"


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_resolve_gives_a_clean_absolute_path_or_refuses(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    home = tmp_path_factory.getbasetemp() / "no-home"
    files = PathPolicy("/", homes=[], toolrest_home=home)
    if "\0" in text or any(map(unencodable, text)):
        with pytest.raises(Rejected) as caught:
            files.resolve(text)
        assert caught.value.kind == "input_invalid"
        return
    full = files.resolve(text)
    assert full.startswith("/")
    assert not full.startswith("//")
    assert not {".", "..", ""} & set(full.split("/")[1:-1])
    assert files.read_denied(text) is None or isinstance(files.read_denied(text), str)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("path", ["a\0b", "\0", "\ud800x"])
def test_a_path_that_is_no_path_is_refused_everywhere(places: Any, path: str) -> None:
    files = places.policy()
    assert files.read_denied(path)
    assert files.write_denied(path)
    for call in (files.resolve, files.canonical, files.open_read, files.scan, files.read_bytes):
        with pytest.raises(Rejected) as caught:
            call(path)
        assert caught.value.kind == "input_invalid"


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("path", ["x" * 300, "x/" * 3000, "d/" * 500_000])
def test_a_name_that_is_too_long_is_an_os_error_at_once(places: Any, path: str) -> None:
    files = places.policy()

    def attempts() -> None:
        assert files.read_denied(path) is None
        with pytest.raises(OSError) as caught:
            files.open_read(path)
        assert caught.value.errno in (errno.ENAMETOOLONG, errno.ENOENT)
        with pytest.raises(OSError):
            files.write_bytes(path, b"x")

    assert_effort(attempts, below=350)


@pytest.mark.usefixtures("both_ways")
def test_files_in_and_outside_the_workspace_are_readable(places: Any) -> None:
    files = places.policy()
    assert files.read_bytes("a.txt") == b"plain"
    assert files.read_bytes(places.outside / "o.txt") == b"outside"
    assert files.read_bytes("a.txt", limit=3) == b"pla"


@pytest.mark.usefixtures("both_ways")
def test_missing_folders_and_directories_are_os_errors(places: Any) -> None:
    files = places.policy()
    with pytest.raises(FileNotFoundError):
        files.open_read("nope")
    with pytest.raises(IsADirectoryError):
        files.open_read(".")
    with pytest.raises(IsADirectoryError):
        files.open_read("/")
    with pytest.raises(NotADirectoryError):
        files.scan("a.txt")
    with pytest.raises(OSError) as caught:
        files.open_read("a.txt/x")
    assert caught.value.errno == errno.ENOTDIR


@pytest.mark.usefixtures("both_ways")
def test_symlinks_are_judged_by_what_they_lead_to(places: Any) -> None:
    work = places.workspace
    (work / "good").symlink_to("a.txt")
    (work / "out").symlink_to(places.outside)
    (work / "leaf").symlink_to(places.home / ".ssh" / "id")
    (work / "ancestor").symlink_to(places.home / ".ssh")
    (work / "chain").symlink_to("leaf")
    (work / "dangling").symlink_to("nowhere")
    (work / "dangling_hidden").symlink_to(places.home / ".ssh" / "none")
    (work / "loop").symlink_to("loop")
    files = places.policy()
    assert files.read_bytes("good") == b"plain"
    assert files.read_bytes("out/o.txt") == b"outside"
    for path in ("leaf", "ancestor/id", "chain", "dangling_hidden", "ancestor/none"):
        reason = files.read_denied(path)
        assert reason is not None
        assert "~/.ssh" in reason
        with pytest.raises(Rejected, match=r"~/\.ssh"):
            files.open_read(path)
    with pytest.raises(Rejected):
        files.scan("ancestor")
    with pytest.raises(FileNotFoundError):
        files.open_read("dangling")
    with pytest.raises(OSError) as caught:
        files.open_read("loop")
    assert caught.value.errno == errno.ELOOP


@pytest.mark.usefixtures("both_ways")
def test_fifos_sockets_and_devices_are_refused_without_waiting(places: Any) -> None:
    os.mkfifo(places.workspace / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(places.workspace / "sock"))
    (places.workspace / "null").symlink_to("/dev/null")
    files = places.policy()
    # Who waits for the other end of one waits for ever.
    for path, word in [("fifo", "FIFO"), ("sock", "socket"), ("null", "/dev")]:
        with pytest.raises(Rejected, match=word):
            files.open_read(path)
        assert word in files.read_denied(path)
    for path in ("/dev/zero", "/dev/tty", "/dev/stdin", "/dev/fd/0", "/dev/random", "/dev"):
        with pytest.raises(Rejected):
            files.open_read(path)
    listener.close()


def test_a_device_in_the_workspace_is_refused_as_one(places: Any) -> None:
    device = places.workspace / "null"
    try:
        os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        device.symlink_to("/dev/null")
    with pytest.raises(Rejected, match=r"device|/dev"):
        places.policy().open_read("null")


@pytest.mark.usefixtures("both_ways")
def test_a_workspace_in_dev_shm_works(places: Any) -> None:
    import shutil
    import tempfile

    if not os.access("/dev/shm", os.W_OK):
        return
    work = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        (work / "a").write_text("x")
        files = places.policy(workspace=work)
        assert files.read_bytes("a") == b"x"
        assert files.scan(".") == [("a", "file")]
        assert places.policy().read_denied(work / "a")
    finally:
        shutil.rmtree(work)


@pytest.mark.usefixtures("both_ways")
def test_read_roots_narrow_what_is_readable(places: Any) -> None:
    sibling = places.workspace.with_name("work-evil")
    sibling.mkdir()
    (sibling / "x").write_text("x")
    (places.workspace / "link").symlink_to(sibling / "x")
    extra = places.outside.with_name("extra")
    extra.mkdir()
    (extra / "e").write_text("e")
    files = places.policy(read_roots=[extra])
    assert files.read_bytes("a.txt") == b"plain"
    assert files.read_bytes(extra / "e") == b"e"
    for path in (places.outside / "o.txt", sibling / "x", "link", sibling / "missing", "/"):
        assert "read_roots" in files.read_denied(path)
        with pytest.raises(Rejected, match="read_roots"):
            files.open_dir(path)


def test_size_limit_names_the_setting_and_the_size(places: Any) -> None:
    (places.workspace / "big").write_bytes(b"x" * 1001)
    files = places.policy(max_file_size=1000)
    with pytest.raises(Rejected, match=r"1,001 bytes.*max_file_access_size is 1,000"):
        files.read_bytes("big")
    assert len(files.read_bytes("big", limit=10)) == 10
    with pytest.raises(Rejected, match="max_file_access_size"):
        files.write_bytes("new", b"x" * 1001)


def test_a_file_without_a_size_still_counts_what_is_read(places: Any) -> None:
    files = places.policy(max_file_size=100)
    with pytest.raises(Rejected, match="max_file_access_size"):
        files.read_bytes("/proc/mounts")


@pytest.mark.usefixtures("both_ways")
def test_what_the_system_refuses_stays_an_os_error(
    places: Any, as_user: Callable[[Callable[[], Any]], Any]
) -> None:
    closed = places.workspace / "closed"
    closed.mkdir(mode=0o700)
    secret = places.workspace / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    if os.getuid() != 0:
        closed.chmod(0o000)
        secret.chmod(0o000)
    files = places.policy()

    def attempt() -> list[int | None]:
        found: list[int | None] = []
        attempts: list[Callable[[], Any]] = [
            lambda: files.open_read("secret"),
            lambda: files.scan("closed"),
            lambda: files.open_read("closed/x"),
            lambda: files.write_bytes("closed/x", b""),
        ]
        for call in attempts:
            try:
                call()
                found.append(None)
            except OSError as error:
                found.append(error.errno)
        found.append(None if files.read_denied("secret") is None else -1)
        return found

    assert as_user(attempt) == [errno.EACCES] * 4 + [None]


@pytest.mark.usefixtures("both_ways")
def test_scan_tells_kinds_and_follows_nothing(places: Any) -> None:
    work = places.workspace
    (work / "dir").mkdir()
    (work / "link").symlink_to("/")
    os.mkfifo(work / "fifo")
    entries = places.policy().scan(".")
    assert sorted(entries) == [
        ("a.txt", "file"),
        ("dir", "dir"),
        ("fifo", "other"),
        ("link", "symlink"),
    ]


def test_no_descriptor_is_left_open(places: Any) -> None:
    os.mkfifo(places.workspace / "fifo")
    (places.workspace / "link").symlink_to(places.home / ".ssh" / "id")
    files = places.policy()

    def once() -> None:
        for path in ("a.txt", "fifo", "link", "nope", ".", "/proc/self/environ", "/proc/self/fd/0"):
            files.read_denied(path)
            files.write_denied(path)
            for call in (files.open_read, files.scan, files.read_bytes):
                try:
                    got = call(path)
                    if isinstance(got, int):
                        os.close(got)
                except (OSError, Rejected):
                    pass
        files.write_bytes("new/deep/x", b"1", parents=True)

    once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        once()
    assert len(os.listdir("/proc/self/fd")) == before
