from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from toolrest.gate.output.spill import Spill

OTHER_UID = 54321


def _mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_nothing_exists_before_the_first_file(tmp_path: Path) -> None:
    home = tmp_path / "home"
    spill = Spill(home, "s1")
    assert spill.path == str(home / "spill" / "s1")
    assert not home.exists()
    spill.close()


def test_folders_and_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    home = tmp_path / "home"
    before = os.umask(0)
    try:
        spill = Spill(home, "s1")
        file = spill.save("text", "read_file")
    finally:
        os.umask(before)
    assert file.path is not None
    assert [_mode(folder) for folder in (home, home / "spill", spill.path)] == [0o700] * 3
    assert _mode(file.path) == 0o600
    assert Path(file.path).read_text() == "text"
    assert (file.size, file.problem) == (4, None)
    spill.close()


def test_names_are_unique_unforeseeable_and_tame(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "s1")
    names = [str(spill.save("x", "../../etc/\x00pass wd").path) for _ in range(20)]
    assert len(set(names)) == 20
    assert all(os.path.dirname(name) == spill.path for name in names)
    assert all(len(os.path.basename(name).rsplit("-", 1)[1]) == 16 + 4 for name in names)
    spill.close()


@pytest.mark.parametrize("session", ["../up", "", "a/b", "\x00", "x" * 500, "\ud800", "..", "."])
def test_a_session_id_never_leaves_the_spill_folder(tmp_path: Path, session: str) -> None:
    spill = Spill(tmp_path, session)
    file = spill.save("x")
    assert file.path is not None
    assert Path(file.path).resolve().parent.parent == (tmp_path / "spill").resolve()
    spill.close()


def test_two_sessions_have_two_folders(tmp_path: Path) -> None:
    one, two = Spill(tmp_path, "s1"), Spill(tmp_path, "s2")
    assert os.path.dirname(str(one.save("1").path)) != os.path.dirname(str(two.save("2").path))
    one.close()
    two.close()


@pytest.mark.parametrize("planted", ["spill", "spill/s1"])
def test_a_planted_symlink_is_refused(tmp_path: Path, planted: str) -> None:
    home, target = tmp_path / "home", tmp_path / "target"
    target.mkdir()
    link = home / planted
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    spill = Spill(home, "s1")
    file = spill.save("secret")
    assert file.path is None
    assert file.problem is not None
    assert file.problem.startswith(f"cannot write {spill.path}: ")
    assert list(target.iterdir()) == []
    assert link.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand a folder to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    folder.mkdir(mode=0o777)
    os.chown(folder, OTHER_UID, OTHER_UID)
    file = Spill(tmp_path, "s1").save("secret")
    assert file.path is None
    assert "belongs to another user" in str(file.problem)
    assert list(folder.iterdir()) == []


def test_a_folder_left_open_to_others_is_closed_first(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill").chmod(0o777)
    spill = Spill(tmp_path, "s1")
    assert spill.save("x").path is not None
    assert _mode(tmp_path / "spill") == 0o700
    spill.close()


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "s1")
    first = spill.save("x")
    os.unlink(str(first.path))
    os.rmdir(spill.path)
    second = spill.save("y")
    assert Path(str(second.path)).read_text() == "y"
    spill.close()


def test_lone_surrogates_keep_the_byte_count(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "s1")
    file = spill.save("a\ud800b")
    assert Path(str(file.path)).read_text() == "a\ufffdb"
    assert file.size == 5
    spill.close()


def test_the_cap_never_splits_a_character(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "s1", cap=4)
    file = spill.save("aéé")
    assert Path(str(file.path)).read_text() == "aé"
    assert (file.size, file.problem) == (3, "the spill limit of 4 bytes was reached")
    file.write("more")
    file.close()
    assert Path(str(file.path)).read_text() == "aé"
    spill.close()


def test_an_unwritable_home_is_no_crash() -> None:
    code = """
import os, sys
from toolrest.gate.output.spill import Spill
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(54321); os.setuid(54321)
spill = Spill(sys.argv[1], "s1")
file = spill.save("x" * 100)
spill.close()
print(file.path, file.problem)
"""
    # Not under tmp_path, whose parents an ordinary user could not even enter.
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o555)
        done = subprocess.run(
            [sys.executable, "-c", code, home], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == (
            f"None cannot write {home}/spill/s1: Permission denied (os error 13)\n"
        )
