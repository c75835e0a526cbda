"""What a session may write, and that a write stays where it was judged."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest.errors import ConfigError, Rejected
from toolrest.policy.paths import atomic_write as replacing
from toolrest.policy.paths.protected import HOME_FILES, NAMES


@pytest.mark.usefixtures("both_ways")
def test_writes_stay_in_the_roots(places: Any) -> None:
    extra = places.outside.with_name("extra")
    extra.mkdir()
    files = places.policy(writable_roots=[extra])
    assert files.writable_roots == (str(places.workspace), str(extra))
    files.write_bytes("new.txt", b"1")
    files.write_bytes(extra / "x", b"2")
    assert (places.workspace / "new.txt").read_bytes() == b"1"
    assert (extra / "x").read_bytes() == b"2"
    for path in (places.outside / "y", "../outside/y", "/etc/toolrest-test", places.home / "y"):
        reason = files.write_denied(path)
        assert "writable_roots" in reason
        assert str(places.workspace) in reason
        with pytest.raises(Rejected):
            files.write_bytes(path, b"3")
    assert sorted(os.listdir(places.outside)) == ["o.txt"]


@pytest.mark.usefixtures("both_ways")
def test_a_root_is_no_prefix_of_its_neighbour(places: Any) -> None:
    evil = places.workspace.with_name("work-evil")
    evil.mkdir()
    files = places.policy()
    assert files.write_denied(evil / "x")
    assert files.write_denied(f"{places.workspace}-evil/x")
    assert files.write_denied(places.workspace / "..x") is None  # a name, not a way up
    files.write_bytes("..x", b"1")


def test_read_only_writes_nothing_and_full_access_all_but_our_home(places: Any) -> None:
    reading = places.policy(mode="read-only")
    assert reading.writable_roots == ()
    assert 'sandbox_mode is "read-only"' in reading.write_denied("x")
    with pytest.raises(Rejected):
        reading.write_bytes("x", b"")
    full = places.policy(mode="danger-full-access")
    full.write_bytes(places.outside / "y", b"1")
    assert full.write_denied("/etc/x") is None
    assert full.write_denied("b/.github/x") is None
    (places.workspace / "link").symlink_to(places.home / ".toolrest")
    for path in (places.home / ".toolrest" / "config.toml", "link/config.toml"):
        assert "Toolrest's own home" in full.write_denied(path)
    with pytest.raises(ConfigError, match="sandbox_mode"):
        places.policy(mode="everything")


@pytest.mark.usefixtures("both_ways")
def test_links_out_of_a_root_are_not_written_through(places: Any) -> None:
    work, outside = places.workspace, places.outside
    (work / "leaf").symlink_to(outside / "o.txt")
    (work / "dangling").symlink_to(outside / "new")
    (work / "folder").symlink_to(outside)
    (work / "inner").symlink_to("a.txt")
    (work / "loop").symlink_to("loop")
    (work / "deep").mkdir()
    (work / "deep" / "up").symlink_to("../folder")
    files = places.policy()
    for path in ("leaf", "dangling", "folder/new", "deep/up/new", "folder/sub/new"):
        with pytest.raises(Rejected, match="writable_roots"):
            files.write_bytes(path, b"bad", parents=True)
        assert files.write_denied(path, follow=False) is None
    with pytest.raises(OSError):
        files.write_bytes("loop", b"bad")
    files.write_bytes("inner", b"good")
    assert (work / "inner").is_symlink()
    assert (work / "a.txt").read_bytes() == b"good"
    assert os.listdir(outside) == ["o.txt"]
    assert (outside / "o.txt").read_text() == "outside"


PROTECTED = [
    ".git",
    ".git/x",
    ".git/hooks/pre-commit",
    ".git/config",
    "sub/../.git/HEAD",
    "sub/.git",
    "sub/.git/hooks/pre-commit",
    "sub/.git/config",
    "sub/.git/info/attributes",
    "a/b/.mcp.json",
    *NAMES,
    *(f"{name}/x" for name in NAMES),
    *(f"sub/{name}/x" for name in NAMES),
]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("path", PROTECTED)
def test_protected_names_are_refused_existing_or_not(places: Any, path: str) -> None:
    files = places.policy()
    assert "protected" in files.write_denied(path) or ".env" in files.write_denied(path)
    for parents in (False, True):
        with pytest.raises(Rejected):
            files.write_bytes(path, b"bad", parents=parents)
    assert sorted(os.listdir(places.workspace)) == ["a.txt"]
    target = places.workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("old")
    with pytest.raises(Rejected):
        files.write_bytes(path, b"bad")
    assert target.read_text() == "old"


@pytest.mark.parametrize(
    "path", [".github/x", ".gitignore", "sub/.git/x", "git/hooks/x", "AGENTS.md"]
)
def test_what_only_looks_protected_is_not(places: Any, path: str) -> None:
    assert places.policy().write_denied(path) is None


def test_a_link_that_stands_in_for_git_protects_its_target(places: Any) -> None:
    (places.workspace / "store" / "hooks").mkdir(parents=True)
    (places.workspace / ".git").symlink_to("store")
    (places.workspace / "alias").symlink_to(".git/hooks")
    files = places.policy()
    for path in (".git/hooks/x", "alias/x"):
        with pytest.raises(Rejected, match="protected"):
            files.write_bytes(path, b"bad")


def test_a_git_folder_elsewhere_in_a_root_is_protected(places: Any) -> None:
    store = places.workspace / "store"
    common = places.workspace / "common"
    (store / "hooks").mkdir(parents=True)
    (common / "hooks").mkdir(parents=True)
    (store / "commondir").write_text("../common\n")
    (places.workspace / ".git").write_text("gitdir: store\n")
    files = places.policy()
    for path in ("store/hooks/x", "store/config", "common/hooks/x", "common/config"):
        assert "protected" in files.write_denied(path)
    assert files.write_denied("store/notes") is None
    assert str(store / "hooks") in files.protected_paths(str(places.workspace))


@pytest.mark.parametrize(
    "pointer", [b"", b"gitdir:", b"gitdir: \0", b"\xff\xfe", b"gitdir: .git\n"]
)
def test_a_strange_git_pointer_harms_nothing(places: Any, pointer: bytes) -> None:
    (places.workspace / ".git").write_bytes(pointer)
    assert places.policy().write_denied("x") is None


def test_start_up_files_are_protected_when_home_is_a_root(places: Any) -> None:
    files = places.policy(workspace=places.home, toolrest_home=places.outside / "tr")
    for name in HOME_FILES:
        assert files.write_denied(name), name
        assert str(places.home / name) in files.protected_paths(str(places.home))
    assert files.write_denied("project/.bashrc") is None
    assert places.policy().protected_paths(str(places.workspace)) == [
        str(places.workspace / name)
        for name in (".git/hooks", ".git/config", ".git/info/attributes", *NAMES)
    ]


def test_our_own_code_is_protected_inside_a_root(places: Any) -> None:
    import sys

    import toolrest

    package = Path(toolrest.__file__).parent
    files = places.policy(workspace=package.parent.parent)
    assert "Toolrest's own code" in files.write_denied(package / "gate" / "tool.py")
    if sys.prefix != sys.base_prefix:
        inside = places.policy(workspace=Path(sys.prefix).parent)
        assert inside.write_denied(Path(sys.prefix) / "bin" / "python")


def test_more_places_can_be_protected(places: Any) -> None:
    files = places.policy(protected=[places.workspace / "audit"])
    assert files.write_denied("audit/log") is not None
    assert files.write_denied("audit2") is None


def test_the_innermost_root_decides(places: Any) -> None:
    git = places.workspace / ".git"
    git.mkdir()
    files = places.policy(writable_roots=[git])
    assert files.write_denied(".git/index") is None
    assert files.write_denied(".toolrest/x")


def test_roots_are_fixed_at_the_start(places: Any) -> None:
    alias = places.outside / "root"
    alias.symlink_to(places.workspace)
    files = places.policy(writable_roots=[alias])
    alias.unlink()
    alias.symlink_to(places.home)
    with pytest.raises(Rejected):
        files.write_bytes(alias / "x", b"bad")
    assert files.writable_roots == (str(places.workspace),)


@pytest.mark.usefixtures("both_ways")
def test_a_replaced_file_keeps_its_mode_and_a_new_one_follows_the_umask(places: Any) -> None:
    script = places.workspace / "run.sh"
    script.write_text("old")
    script.chmod(0o4751)
    if os.getuid() == 0:
        os.chown(script, 1234, 4321)
        script.chmod(0o4751)
    files = places.policy()
    files.write_bytes("run.sh", b"new")
    status = script.stat()
    assert stat.S_IMODE(status.st_mode) == 0o4751
    if os.getuid() == 0:
        assert (status.st_uid, status.st_gid) == (1234, 4321)
    mask = os.umask(0o027)
    try:
        files.write_bytes("fresh", b"x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((places.workspace / "fresh").stat().st_mode) == 0o640


def test_a_hard_link_is_replaced_and_not_written_through(places: Any) -> None:
    os.link(places.outside / "o.txt", places.workspace / "twin")
    places.policy().write_bytes("twin", b"new")
    assert (places.outside / "o.txt").read_text() == "outside"


@pytest.mark.usefixtures("both_ways")
def test_what_is_no_file_is_not_replaced(places: Any) -> None:
    (places.workspace / "dir").mkdir()
    os.mkfifo(places.workspace / "fifo")
    files = places.policy()
    with pytest.raises(IsADirectoryError):
        files.write_bytes("dir", b"x")
    with pytest.raises(IsADirectoryError):
        places.policy(mode="danger-full-access").write_bytes("/", b"x")
    with pytest.raises(OSError):
        files.write_bytes(".", b"x")
    with pytest.raises(Rejected, match="not a regular file"):
        files.write_bytes("fifo", b"x")
    with pytest.raises(FileNotFoundError):
        files.write_bytes("no/such/folder", b"x")
    with pytest.raises(NotADirectoryError):
        files.write_bytes("a.txt/x", b"x")
    with pytest.raises(NotADirectoryError):
        files.write_bytes("a.txt/x/y", b"x", parents=True)
    assert sorted(os.listdir(places.workspace)) == ["a.txt", "dir", "fifo"]


@pytest.mark.usefixtures("both_ways")
def test_missing_folders_are_made_on_request(places: Any) -> None:
    files = places.policy()
    files.write_bytes("one/two/three.txt", b"x", parents=True)
    assert (places.workspace / "one/two/three.txt").read_bytes() == b"x"


def test_a_failed_write_leaves_the_old_content_and_no_litter(
    places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(fd: int, data: bytes) -> None:
        os.write(fd, data[:2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(replacing, "write_all", full_disk)
    files = places.policy()
    for path in ("a.txt", "new.txt"):
        with pytest.raises(OSError, match="No space"):
            files.write_bytes(path, b"long content")
    assert os.listdir(places.workspace) == ["a.txt"]
    assert (places.workspace / "a.txt").read_text() == "plain"


def test_a_read_only_folder_is_an_os_error_for_an_ordinary_user(
    places: Any, as_user: Callable[[Callable[[], Any]], Any]
) -> None:
    places.workspace.chmod(0o555)
    files = places.policy()

    def attempt() -> int | None:
        try:
            files.write_bytes("x", b"")
        except OSError as error:
            return error.errno
        return None

    assert as_user(attempt) == errno.EACCES


def test_what_a_protected_name_leads_to_is_protected(places: Any) -> None:
    work = places.workspace
    for folder in ("conf", "hk", "d1", ".git"):
        (work / folder).mkdir()
    (work / ".vscode").symlink_to("conf")
    (work / ".git" / "hooks").symlink_to("../hk")
    (work / ".mcp.json").symlink_to("d1/hop")
    (work / "d1" / "hop").symlink_to("../servers")
    (work / ".envrc").symlink_to(".")
    files = places.policy()
    for path in ("conf/a", "hk/pre-commit", "d1/hop", "servers", ".vscode/a", ".envrc"):
        assert files.write_denied(path), path
    for path in ("confer", "d1/other", "x"):
        assert files.write_denied(path) is None, path


def test_a_folder_to_be_made_that_became_a_link_is_not_entered(
    places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command puts the link there between our look and our mkdir."""
    make = os.mkdir

    def too_late(name: Any, *args: Any, **options: Any) -> None:
        if name == "made":
            os.symlink(places.outside, name, dir_fd=options["dir_fd"])
        make(name, *args, **options)

    files = places.policy()
    monkeypatch.setattr(os, "mkdir", too_late)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        files.open_parent("made/x", create=True)
    assert os.path.islink(places.workspace / "made")
