"""Names that must stay missing are held while commands run, and let go afterwards."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from toolrest.process.helper import litter
from toolrest.sandbox.guard import placeholders as mountpoints
from toolrest.sandbox.guard.placeholder_folders import FolderPool
from toolrest.sandbox.guard.placeholders import MountPoints
from toolrest.sandbox.guard.root import at_depth, at_top


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def registry(tmp_path: Path) -> str:
    return str(tmp_path / "registry")


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_made_and_removed(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    made = points.acquire([f"{root}/.codex"], {f"{root}/.rc": b"text\n"})
    assert made == (f"{root}/.codex", f"{root}/.rc")
    assert names(root) == {".codex", ".rc"}
    points.release()
    assert names(root) == set()
    points.release()


def test_commands_side_by_side_share_them(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {})
    points.acquire([f"{root}/a"], {})
    points.release()
    assert names(root) == {"a"}
    points.release()
    assert names(root) == set()


def test_sessions_side_by_side_share_them(root: Path, registry: str) -> None:
    one, other = MountPoints(registry, str(root)), MountPoints(registry, str(root))
    one.acquire([f"{root}/a"], {})
    other.acquire([f"{root}/a", f"{root}/b"], {})
    one.release()
    assert names(root) == {"a", "b"}
    other.release()
    assert names(root) == set()


def test_what_was_there_before_stays(root: Path, registry: str) -> None:
    (root / "a").mkdir()
    (root / "b").write_text("mine")
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a", f"{root}/b"], {f"{root}/b": b"x"})
    points.release()
    assert (root / "b").read_text() == "mine"
    assert names(root) == {"a", "b"}


def test_what_somebody_put_to_use_stays(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a", f"{root}/b"], {f"{root}/f": b""})
    (root / "a/file").touch()
    (root / "b").rmdir()
    (root / "b").mkdir()
    (root / "f").write_text("settings")
    points.release()
    assert {"a", "a/file", "f"} <= names(root)


CRASH = """
import os, sys
from toolrest.sandbox.guard.placeholders import MountPoints
registry, root = sys.argv[1:]
MountPoints(registry, root).acquire([f"{root}/a"], {f"{root}/f": b".\\n"})
os._exit(1)
"""


def test_the_next_session_cleans_up_after_a_crash(root: Path, registry: str) -> None:
    subprocess.run([sys.executable, "-c", CRASH, registry, str(root)])
    assert names(root) == {"a", "f"}
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/c"], {})
    assert names(root) == {"c"}
    points.release()
    assert names(root) == set()


def test_a_broken_record_is_survived(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {})
    points.release()
    (record,) = Path(registry).glob("*.record")
    record.write_bytes(b"x\0 3\0004 y\0005")
    points.acquire([f"{root}/a"], {})
    points.release()
    assert names(root) == set()


def test_links_on_the_way_are_not_followed(root: Path, registry: str, tmp_path: Path) -> None:
    """A command may put a link wherever it can write; this process is not confined."""
    target = tmp_path / "target"
    target.mkdir()
    (root / "link").symlink_to(target)
    points = MountPoints(registry, str(root))
    with pytest.raises(OSError):
        points.acquire([f"{root}/link/a"], {})
    with pytest.raises(OSError):
        points.acquire([], {f"{root}/link/f": b""})
    assert names(target) == set()


@pytest.mark.parametrize("swept_by", ["session", "helper"])
def test_a_link_that_came_meanwhile_takes_no_other_folder_its_placeholders_failed_before(
    root: Path, registry: str, tmp_path: Path, swept_by: str
) -> None:
    other = tmp_path / "other"
    for folder in (root / "sub", other):
        folder.mkdir()
    others = MountPoints(registry, str(other))
    others.acquire([f"{other}/a"], {f"{other}/f": b""})
    points = MountPoints(registry, str(root))
    if swept_by == "session":
        points.acquire([f"{root}/sub/a"], {f"{root}/sub/f": b""})
    else:
        subprocess.run([sys.executable, "-c", CRASH, registry, f"{root}/sub"])
    (root / "sub").rename(root / "moved")
    (root / "sub").symlink_to(other)
    if swept_by == "session":
        points.release()
    else:
        litter.sweep(registry)
    assert names(other) == {"a", "f"}
    others.release()
    assert names(other) == set()


def test_a_dangling_link_is_a_taken_name(root: Path, registry: str, tmp_path: Path) -> None:
    (root / "a").symlink_to(tmp_path / "nowhere")
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {f"{root}/a": b"x"})
    points.release()
    assert not (tmp_path / "nowhere").exists()


def test_a_session_that_hangs_holds_nobody_up_for_ever(
    root: Path, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([], {})
    points.release()
    (guard,) = Path(registry).glob("*.lock")
    monkeypatch.setattr(mountpoints, "_PATIENCE", 0.05)
    with guard.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError):
            points.acquire([], {})
    points.acquire([], {})
    points.release()


def test_folders_are_used_again(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {})
    first = (root / "a").stat().st_ino
    points.release()
    MountPoints(registry, str(root)).acquire([f"{root}/b"], {})
    assert (root / "b").stat().st_ino == first


def test_which_placeholder_for_which_name(root: Path) -> None:
    (root / "there").mkdir()
    wanted = [
        f"{root}/{n}" for n in (".codex", ".mcp.json", ".bashrc", "there", "a/b/c", "there/d")
    ]
    missing, there = at_depth(wanted, str(root))
    folders = dict.fromkeys(f"{root}/{n}" for n in (".codex", "a", "there/d"))
    assert missing == {**folders, f"{root}/.mcp.json": b"", f"{root}/.bashrc": b""}
    assert there == {f"{root}/there": None}


def test_nothing_is_made_in_a_placeholder(root: Path, registry: str) -> None:
    """Another session's, which would no longer be known as one."""
    one, other = MountPoints(registry, str(root)), MountPoints(registry, str(root))
    one.acquire([f"{root}/.config"], {})
    missing, _ = at_depth([f"{root}/.config/fish"], str(root))
    assert missing == {f"{root}/.config": None}
    other.acquire([], missing)
    one.release()
    assert names(root) == {".config"}
    other.release()
    assert names(root) == set()


def test_what_is_put_into_a_kept_folder_is_never_taken_away(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    for _ in range(3):
        points.acquire([f"{root}/.codex"], {})
        points.release()
        assert names(root) == set()
    points.acquire([f"{root}/.codex"], {})
    (root / ".codex/mine").write_text("kept")
    points.release()
    assert (root / ".codex/mine").read_text() == "kept"
    # The name is taken now; gone, it is held again, and by another folder.
    points.acquire([], {}, {f"{root}/.codex": None})
    points.release()
    shutil.rmtree(root / ".codex")
    assert points.acquire([], {}, {f"{root}/.codex": None}) == (f"{root}/.codex",)
    points.release()
    assert names(root) == set()


def test_a_kept_folder_that_was_used_for_a_moment_is_used_again(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    for _ in range(3):
        points.acquire([f"{root}/a"], {})
        (root / "a/file").touch()
        (root / "a/file").unlink()
        points.release()
        assert names(root) == set()
    assert len(list(Path(registry, "spare").iterdir())) == 1


def test_a_kept_folder_is_handed_out_empty_or_not_at_all(root: Path, registry: str) -> None:
    lost = Path(registry, "spare", "old")
    lost.mkdir(parents=True)
    (lost / "file").write_text("somebody's")
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {})
    assert names(root) == {"a"}
    points.release()
    assert (lost / "file").read_text() == "somebody's"


def test_sessions_may_take_each_others_kept_folders(root: Path, registry: str) -> None:
    wanted = [f"{root}/{name}" for name in "abc"]
    one = MountPoints(registry, str(root))
    one.acquire(wanted, {})
    one.release()
    other = MountPoints(registry, str(root))
    for _ in range(2):
        for points in (other, one):
            assert set(points.acquire(wanted, {})) == set(wanted)
            assert names(root) == set("abc")
            points.release()
            assert names(root) == set()
    assert len(list(Path(registry, "spare").iterdir())) <= 6


def test_names_that_may_exist_count_only_when_they_were_made(root: Path, registry: str) -> None:
    (root / "there").mkdir()
    maybe: dict[str, bytes | None] = {f"{root}/there": None, f"{root}/a": None, f"{root}/f": b"x"}
    points = MountPoints(registry, str(root))
    for _ in range(2):
        assert points.acquire([], {}, maybe) == (f"{root}/a", f"{root}/f")
        points.release()
        assert names(root) == {"there"}
    (root / "there").rmdir()
    assert points.acquire([], {}, maybe) == tuple(maybe)
    points.release()
    assert names(root) == set()


def test_the_names_right_in_the_root_need_no_look(root: Path) -> None:
    wanted = (f"{root}/.codex", f"{root}/.bashrc", f"{root}/.config/fish")
    top, deeper = at_top(wanted, str(root))
    assert top == {f"{root}/.codex": None, f"{root}/.bashrc": b""}
    assert deeper == (f"{root}/.config/fish",)


KILLED = """
import os, sys
from toolrest.process.helper import litter
from toolrest.sandbox.guard import placeholder_folders, placeholders
registry, root, step = sys.argv[1:]
files = {module.__file__ for module in (litter, placeholder_folders, placeholders)}

def steps(frame, event, argument):
    if frame.f_code.co_filename not in files:
        return None
    left[0] -= 1
    if left[0] == 0:
        os._exit(9)
    return steps

def session():
    points = placeholders.MountPoints(registry, root)
    for _ in range(2):  # the second time the folders come from the kept ones
        wanted = {f"{root}/f": b".", f"{root}/.envrc": b""}
        points.acquire([f"{root}/a", f"{root}/b"], wanted, {f"{root}/mine": None})
        points.release()

number, status = 0, 9
while status == 9:
    number += int(step)
    left = [number]
    pid = os.fork()
    if pid == 0:
        sys.settrace(steps)
        session()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert litter.sweep(registry)
    found = sorted(os.listdir(root))
    assert found == ["mine"] and os.listdir(f"{root}/mine") == [], (number, found)
assert status == 0
print(number)
"""


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", [False, True])
def test_wherever_a_session_is_killed_nothing_of_it_stays_failed_before(
    root: Path, elsewhere: bool, full: bool
) -> None:
    """After each line in turn; the records may lie on another file system than the folder."""
    (root / "mine").mkdir()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if elsewhere else root.parent) as registry:
        argv = [sys.executable, "-c", KILLED, registry, str(root), "1" if full else "43"]
        ran = subprocess.run(argv, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 1000


@pytest.mark.parametrize("name", [".vscode", ".envrc", ".bashrc"])
def test_what_a_user_makes_in_place_of_a_placeholder_stays_failed_before(
    root: Path, registry: str, name: str
) -> None:
    """It may have the same inode, size and kind; the session is killed, and the next one looks."""
    place = root / name
    content = None if name == ".vscode" else b""
    code = f"""
import os, sys
from toolrest.sandbox.guard.placeholders import MountPoints
MountPoints({registry!r}, {str(root)!r}).acquire([], {{{str(place)!r}: {content!r}}})
os._exit(9)
"""
    for _ in range(20):
        subprocess.run([sys.executable, "-c", code])
        before = place.lstat()
        if content is None:
            place.rmdir()
            place.mkdir()
        else:
            place.unlink()
            place.touch()
        if place.lstat().st_ino == before.st_ino:
            break
    assert litter.sweep(registry)
    assert names(root) == {name}
    points = MountPoints(registry, str(root))
    points.acquire([], {}, {str(place): content})
    points.release()
    assert names(root) == {name}


def test_a_folder_that_a_user_makes_while_a_command_runs_stays_failed_before(
    root: Path, registry: str
) -> None:
    """Also where it gets the inode of the placeholder that was removed."""
    place = root / ".vscode"
    for _ in range(20):
        points = MountPoints(registry, str(root))
        points.acquire([str(place)], {})
        before = place.stat()
        place.rmdir()
        clock = Path(registry, "clock")
        while not clock.exists() or clock.stat().st_mtime_ns <= before.st_ctime_ns:
            clock.touch()
        place.mkdir()
        points.release()
        assert names(root) == {".vscode"}
        if place.stat().st_ino == before.st_ino:
            break
        place.rmdir()


def test_a_file_that_comes_the_moment_before_its_placeholder_is_removed_stays_failed_before(
    root: Path, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved by an editor, which renames it into place."""
    points = MountPoints(registry, str(root))
    points.acquire([], {f"{root}/.envrc": b""})
    move = os.rename

    def rename(source: bytes, target: bytes) -> None:
        (root / "new").write_text("mine")
        move(root / "new", root / ".envrc")
        move(source, target)

    monkeypatch.setattr(os, "rename", rename)
    points.release()
    assert (root / ".envrc").read_text() == "mine"
    assert names(root) == {".envrc"}


def test_a_record_of_which_only_a_part_was_written_names_the_rest(
    root: Path, registry: str
) -> None:
    other = MountPoints(registry, str(root))
    other.acquire([f"{root}/a"], {})
    (record,) = Path(registry).glob("*.record")
    record.write_bytes(record.read_bytes() + b"1234 /w")
    other.acquire([f"{root}/b"], {})
    other.release()
    assert names(root) == {"a", "b"}
    other.release()
    assert names(root) == set()


def test_placeholders_of_another_session_are_not_taken_for_lost(root: Path, registry: str) -> None:
    one, other = MountPoints(registry, str(root)), MountPoints(registry, str(root))
    one.acquire([f"{root}/a"], {})
    for _ in range(3):
        assert other.acquire([], {}, {f"{root}/a": None}) == ()
        other.release()
        assert names(root) == {"a"}
    one.release()
    assert names(root) == set()


def test_nor_those_of_a_session_that_keeps_its_records_elsewhere(
    root: Path, registry: str, tmp_path: Path
) -> None:
    """Another user's, or one with another home: what it still uses cannot be known."""
    one = MountPoints(registry, str(root))
    one.acquire([f"{root}/a"], {f"{root}/f": b".\n"})
    before = {path.name: path.stat().st_ino for path in root.iterdir()}
    other = MountPoints(str(tmp_path / "elsewhere"), str(root))
    for _ in range(3):
        assert other.acquire([], {}, {f"{root}/a": None, f"{root}/f": b".\n"}) == ()
        other.release()
        assert {path.name: path.stat().st_ino for path in root.iterdir()} == before
    one.release()
    assert names(root) == set()


def test_a_record_folder_has_one_mark_for_all_its_sessions(registry: str) -> None:
    os.mkdir(registry)
    code = (
        "import sys; from toolrest.sandbox.guard.placeholder_folders import placeholder_mtime; "
        "print(placeholder_mtime(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, registry]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    found = {process.communicate()[0] for process in running}
    assert len(found) == 1
    assert os.listdir(registry) == ["mark"]


def test_a_kept_folder_with_its_time_set_back_is_not_handed_out(root: Path, registry: str) -> None:
    """Else a user who may write where it was could have files appear in another workspace."""
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {})
    points.release()
    (kept,) = Path(registry, "spare").iterdir()
    before = kept.stat()
    (kept / "pre-commit").write_text("theirs")
    os.utime(kept, ns=(before.st_atime_ns, before.st_mtime_ns))
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/hooks"], {})
    assert names(root) == {"hooks"}
    points.release()


def interfere(spares: FolderPool, folder: Path, *, made_again: bool = True) -> None:
    """A file is written the moment before we take the folder, which is then made anew."""
    move = spares._rename
    moved: list[bytes] = []

    def rename(source: bytes, where: int, target: bytes) -> None:
        if not moved:
            (folder / "settings.json").write_text("mine")
        move(source, where, target)
        if not moved and made_again:
            folder.mkdir()
        moved.append(target)

    spares._rename = rename


def test_a_folder_made_again_while_its_twin_is_away_gets_what_was_in_it(
    root: Path, registry: str
) -> None:
    spares = FolderPool(registry, 10**18)
    folder = root / ".vscode"
    folder.mkdir()
    os.utime(folder, (0, 0))
    seen = os.stat_result(folder.stat())
    interfere(spares, folder)
    spares.reclaim(bytes(folder), bytes(folder), seen)
    assert (folder / "settings.json").read_text() == "mine"


@pytest.mark.parametrize("made_again", [False, True])
def test_what_comes_the_moment_before_a_known_folder_is_taken_stays(
    root: Path, registry: str, made_again: bool
) -> None:
    """One that was used before, and goes back to where it is kept."""
    points = MountPoints(registry, str(root))
    folder = root / ".vscode"
    points.acquire([str(folder)], {})
    points.release()
    points.acquire([str(folder)], {})
    interfere(points._pool, folder, made_again=made_again)
    points.release()
    assert (folder / "settings.json").read_text() == "mine"
    points.acquire([str(folder), f"{root}/.codex"], {})
    points.release()
    assert os.listdir(root) == [".vscode"]
    assert (folder / "settings.json").read_text() == "mine"


def test_what_lies_in_a_kept_folders_place_is_not_written_over(root: Path, registry: str) -> None:
    points = MountPoints(registry, str(root))
    points.acquire([f"{root}/a"], {})
    points.release()
    (kept,) = Path(registry, "spare").iterdir()
    points.acquire([f"{root}/a"], {})
    kept.mkdir()
    other = kept.stat().st_ino
    points.release()
    assert names(root) == set()
    assert kept.stat().st_ino == other


def test_what_cannot_be_given_back_holds_up_nobody(root: Path, registry: str) -> None:
    """A file stands where the folder was a moment ago: what was in it stays where it is kept."""
    points = MountPoints(registry, str(root))
    wanted = [f"{root}/.a", f"{root}/.b", f"{root}/.c"]
    points.acquire(wanted, {})
    points.release()
    points.acquire(wanted, {})
    spares = points._pool
    move = spares._rename
    folder = root / ".b"

    def rename(source: bytes, where: int, target: bytes) -> None:
        theirs = os.path.basename(source) == b".b"
        if theirs:
            (folder / "mine").write_text("mine")
        move(source, where, target)
        if theirs:
            folder.write_text("a file")

    spares._rename = rename
    points.release()
    assert os.listdir(root) == [".b"]
    assert folder.read_text() == "a file"
    assert [path.read_text() for path in Path(registry, "spare").rglob("mine")] == ["mine"]
    other = MountPoints(registry, str(root))
    other.acquire([f"{root}/.a"], {})
    other.release()
    assert os.listdir(root) == [".b"]
