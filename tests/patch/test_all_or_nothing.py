"""A patch that fails anywhere leaves everything as it was, and one that works keeps what it can."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from toolrest.patch import codex_grammar as grammar
from toolrest.patch.apply import commit
from toolrest.patch.errors import ApplyError
from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.plan import plan
from toolrest.patch.run import PatchOutcome, carry_out, run

Tree: TypeAlias = dict[str, Any]

TREE: Tree = {
    "a.txt": "1\n2\n3\n",
    "b.txt": {"text": "x\n", "mode": "0755"},
    "c.txt": "c\n",
    "gone.txt": "gone\n",
    "way": "a file where a folder will be\n",
    "d/e.txt": "e\n",
    "d/twin.txt": {"hardlink": "d/e.txt"},
    "link.txt": {"symlink": "c.txt"},
    "latin.bin": {"b64": "//8="},
}
PATCH = """*** Begin Patch
*** Update File: a.txt
@@
-2
+two
*** Add File: new/deep/n.txt
+n
*** Update File: d/e.txt
@@
-e
+E
*** Update File: link.txt
@@
-c
+C
*** Update File: b.txt
*** Move to: moved/b.sh
@@
-x
+y
*** Delete File: gone.txt
*** Delete File: way
*** Add File: way/inside.txt
+i
*** Add File: latin.bin
+text now
*** End Patch"""
AFTER: Tree = {
    "a.txt": "1\ntwo\n3\n",
    "c.txt": "C\n",
    "d/e.txt": "E\n",
    "d/twin.txt": "E\n",
    "latin.bin": "text now\n",
    "link.txt": {"symlink": "c.txt"},
    "moved/b.sh": {"text": "y\n", "mode": "0755"},
    "new/deep/n.txt": "n\n",
    "way/inside.txt": "i\n",
}
WRITES = ("create", "overwrite", "rename", "link", "unlink", "mkdir", "chmod")


class Failing(OsFiles):
    """Fails at the nth write: before it, or half way through it."""

    def __init__(self, at: int, half: bool, times: int = 1, error: int = errno.EIO) -> None:
        super().__init__()
        self.at = at
        self.half = half
        self.times = times
        self.error = error
        self.count = 0
        self.failed: str | None = None

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        return self._counted(name, value) if name in WRITES else value

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            number, self.count = self.count, self.count + 1
            if not self.at <= number < self.at + self.times:
                return call(*arguments)
            self.failed = name
            if self.half and name == "overwrite":
                super(Failing, self).overwrite(arguments[0], arguments[1][:1])
            raise OSError(self.error, os.strerror(self.error))

        return counted


@pytest.fixture
def tree(folder: Path, build: Callable[[Path, Tree], None]) -> Path:
    build(folder, TREE)
    return folder


def applied(files: OsFiles, cwd: Path, text: str = PATCH) -> PatchOutcome:
    with files:
        return run(text, files, str(cwd))


def test_the_patch_itself(tree: Path, snapshot: Callable[[Path], Tree]) -> None:
    outcome = applied(OsFiles(), tree)
    assert (outcome.stderr, outcome.notes) == ("", [])
    assert snapshot(tree) == AFTER
    assert (tree / "d/e.txt").samefile(tree / "d/twin.txt")


@pytest.mark.parametrize("half", [False, True], ids=["before", "half way"])
def test_a_failure_at_every_write(
    folder: Path,
    build: Callable[[Path, Tree], None],
    snapshot: Callable[[Path], Tree],
    half: bool,
) -> None:
    failed: set[str | None] = set()
    for index, case in enumerate(_fresh(folder)):
        build(case, TREE)
        before = snapshot(case), _inodes(case)
        files = Failing(index, half)
        outcome = applied(files, case)
        if files.failed is None:
            assert snapshot(case) == AFTER
            break
        failed.add(files.failed)
        if outcome.exit_code:
            assert (snapshot(case), _inodes(case)) == before, f"write {index}: {files.failed}"
            assert not [note for note in outcome.notes if note.startswith("could not")]
        else:
            # A second name could not be made, or a saved copy not be removed at once.
            assert snapshot(case) == AFTER
            assert files.failed in ("link", "unlink")
    assert failed == {"create", "overwrite", "rename", "link", "unlink", "mkdir"}


def _fresh(folder: Path) -> Iterator[Path]:
    for number in range(1000):
        path = folder / str(number)
        path.mkdir()
        yield path


def _inodes(root: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_ino for path in root.rglob("*")}


def test_what_cannot_be_taken_back_is_said(tree: Path) -> None:
    # The last write of the patch and everything after it fail.
    files = Failing(0, half=False, times=0)
    applied(files, tree)
    for path in ("a.txt", "gone.txt"):
        (tree / path).write_text("1\n2\n3\n")
    patch = (
        "*** Begin Patch\n*** Update File: a.txt\n@@\n-2\n+two\n*** Delete File: gone.txt\n"
        "*** End Patch"
    )
    outcome = applied(Failing(3, half=False, times=99), tree, patch)
    assert outcome.exit_code == 1
    (note,) = [note for note in outcome.notes if note.startswith("could not restore")]
    assert str(tree / "a.txt") in note
    saved = note.partition(" from ")[2].partition(":")[0]
    assert Path(saved).read_text() == "1\n2\n3\n"


def test_an_interrupt_rolls_back(
    tree: Path, snapshot: Callable[[Path], Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(tree)
    files = OsFiles()
    renames = []

    def rename(old: str, new: str) -> None:
        renames.append(new)
        if len(renames) == 3:
            raise KeyboardInterrupt
        OsFiles.rename(files, old, new)

    monkeypatch.setattr(files, "rename", rename)
    with files, pytest.raises(KeyboardInterrupt):
        run(PATCH, files, str(tree))
    assert snapshot(tree) == before


@pytest.mark.parametrize("change", ["rewritten", "replaced", "removed", "appeared"])
def test_a_file_that_changes_between_plan_and_commit(
    tree: Path, snapshot: Callable[[Path], Tree], change: str
) -> None:
    with OsFiles() as files:
        planned = plan(grammar.parse(PATCH), files, str(tree))
        path = tree / "a.txt"
        if change == "rewritten":
            path.write_text("1\n2\n3\n4\n")
        elif change == "replaced":
            (tree / "other").write_text("1\n2\n3\n")
            (tree / "other").rename(path)
        elif change == "removed":
            path.unlink()
        else:
            (tree / "new/deep").mkdir(parents=True)
            (tree / "new/deep/n.txt").write_text("mine\n")
        before = snapshot(tree)
        outcome = carry_out(planned, files)
    assert outcome.exit_code == 1
    assert outcome.stderr.startswith("Failed to write file ")
    assert snapshot(tree) == before
    assert "changed on disk" in " ".join(outcome.notes)


@pytest.mark.parametrize("name", ["a.txt", "b.txt", "c.txt", "d/e.txt", "gone.txt"])
@pytest.mark.parametrize("atomically", [False, True])
def test_a_file_that_somebody_saves_while_others_are_written(
    tree: Path, snapshot: Callable[[Path], Tree], name: str, atomically: bool
) -> None:
    """Failed before: all files were compared at the start only, and then the version was lost."""
    saved: Tree = {}

    class Saving(OsFiles):
        def create(self, path: str, data: bytes, like: str | None) -> bool:
            if not saved:
                if atomically:
                    (tree / "other").write_text("by hand\n")
                    (tree / "other").rename(tree / name)
                else:
                    (tree / name).write_text("by hand\n")
                now = snapshot(tree)
                saved.update((known, now[known]) for known in {*TREE} - {"way"})
            return super().create(path, data, like)

    outcome = applied(Saving(), tree)
    assert outcome.exit_code == 1
    assert "changed on disk" in " ".join(outcome.notes)
    assert snapshot(tree) == {**saved, "way": TREE["way"]}


@pytest.mark.parametrize(
    "body", ["*** Update File: a.txt\n@@\n-2\n+two\n", "*** Delete File: a.txt\n"]
)
def test_what_is_written_into_a_file_that_was_set_aside_is_kept(tree: Path, body: str) -> None:
    """Failed before: what a program wrote that had the file open went with the saved copy."""

    class Late(OsFiles):
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            if old.endswith("gone.txt"):
                opened.write("by hand\n")
                opened.flush()

    with (tree / "a.txt").open("a") as opened:
        patch = f"*** Begin Patch\n{body}*** Delete File: gone.txt\n*** End Patch"
        outcome = applied(Late(), tree, patch)
    assert outcome.exit_code == 0
    (note,) = outcome.notes
    assert note.startswith(f"{tree}/a.txt was written by somebody else")
    assert Path(note.rpartition(" ")[2]).read_text() == "1\n2\n3\nby hand\n"


def test_a_new_file_never_replaces_one_that_appeared_late(tree: Path) -> None:
    class Late(OsFiles):
        def link(self, old: str, new: str) -> None:
            if new.endswith("n.txt"):
                Path(new).write_text("mine\n")
            super().link(old, new)

    patch = "*** Begin Patch\n*** Add File: n.txt\n+n\n*** End Patch"
    outcome = applied(Late(), tree, patch)
    assert outcome.stderr == f"Failed to write file {tree}/n.txt\n"
    assert (tree / "n.txt").read_text() == "mine\n"
    assert not list(tree.glob(".toolrest-*"))


def test_without_hard_links(tree: Path, snapshot: Callable[[Path], Tree]) -> None:
    class NoLinks(OsFiles):
        def link(self, old: str, new: str) -> None:
            raise PermissionError(errno.EPERM, "no hard links here")

    assert applied(NoLinks(), tree).exit_code == 0
    assert snapshot(tree) == AFTER


def test_one_file_under_two_names_is_refused(tree: Path, snapshot: Callable[[Path], Tree]) -> None:
    before = snapshot(tree)
    both = "".join(f"*** Update File: d/{n}.txt\n@@\n-e\n+{n}\n" for n in ("e", "twin"))
    outcome = applied(OsFiles(), tree, f"*** Begin Patch\n{both}*** End Patch")
    assert outcome.stderr == f"Failed to write file {tree}/d/twin.txt\n"
    assert "two patches" in outcome.notes[0]
    assert snapshot(tree) == before


def test_a_file_that_is_changed_and_then_loses_one_of_its_names(tree: Path) -> None:
    body = "*** Update File: d/e.txt\n@@\n-e\n+E\n*** Delete File: d/e.txt\n"
    again = "*** Add File: d/e.txt\n+another\n"
    for number, text in enumerate((body, body + again)):
        (tree / "d/e.txt").unlink(missing_ok=True)
        (tree / "d/twin.txt").write_text("e\n")
        (tree / "d/e.txt").hardlink_to(tree / "d/twin.txt")
        outcome = applied(OsFiles(), tree, f"*** Begin Patch\n{text}*** End Patch")
        assert outcome.stderr == ""
        assert (tree / "d/twin.txt").read_text() == "E\n"
        assert (tree / "d/e.txt").exists() == bool(number)


def test_mode_owner_and_attributes_are_kept(tree: Path) -> None:
    path = tree / "b.txt"
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    path.chmod(0o750)
    try:
        os.setxattr(path, "user.note", b"kept")
        attributes = True
    except OSError:
        attributes = False
    before = path.stat()
    update = "*** Begin Patch\n*** Update File: b.txt\n{}@@\n-x\n+x\n*** End Patch"
    for move, name in (("", "b.txt"), ("*** Move to: sub/c.sh\n", "sub/c.sh")):
        assert applied(OsFiles(), tree, update.format(move)).exit_code == 0
        after = (tree / name).stat()
        kept = ("st_mode", "st_uid", "st_gid")
        assert [getattr(after, k) for k in kept] == [getattr(before, k) for k in kept]
        if attributes:
            assert os.getxattr(tree / name, "user.note") == b"kept"


def test_setuid_does_not_survive_new_content(tree: Path) -> None:
    (tree / "b.txt").chmod(0o4755)
    patch = "*** Begin Patch\n*** Update File: b.txt\n@@\n-x\n+y\n*** End Patch"
    assert applied(OsFiles(), tree, patch).exit_code == 0
    assert stat.S_IMODE((tree / "b.txt").stat().st_mode) == 0o755


def test_new_files_follow_the_umask(tree: Path) -> None:
    old = os.umask(0o027)
    try:
        patch = "*** Begin Patch\n*** Add File: n\n+n\n*** Add File: f/n\n+n\n*** End Patch"
        assert applied(OsFiles(), tree, patch).exit_code == 0
    finally:
        os.umask(old)
    assert stat.S_IMODE((tree / "n").stat().st_mode) == 0o640
    assert stat.S_IMODE((tree / "f").stat().st_mode) == 0o750


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("c.txt", "c.txt", "c.txt"),
        ("c.txt", "d/../c.txt", "c.txt"),
        ("c.txt", "link.txt", "c.txt"),
        ("link.txt", "c.txt", "c.txt"),
        ("folder/e.txt", "d/e.txt", "d/e.txt"),
    ],
)
def test_a_move_onto_itself_keeps_the_file(
    tree: Path, source: str, target: str, expected: str
) -> None:
    (tree / "folder").symlink_to("d")
    old = (tree / source).read_text().strip()
    patch = (
        f"*** Begin Patch\n*** Update File: {source}\n*** Move to: {target}\n"
        f"@@\n-{old}\n+changed\n*** End Patch"
    )
    assert applied(OsFiles(), tree, patch).exit_code == 0
    assert (tree / expected).read_text() == "changed\n"


def test_a_folder_swapped_for_a_symlink_is_not_followed(
    tree: Path, tmp_path: Path, snapshot: Callable[[Path], Tree]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "e.txt").write_text("e\n")
    patch = "*** Begin Patch\n*** Update File: d/e.txt\n@@\n-e\n+E\n*** End Patch"
    with OsFiles() as files:
        planned = plan(grammar.parse(patch), files, str(tree))
    (tree / "d").rename(tree / "was-d")
    (tree / "d").symlink_to(outside)
    before = snapshot(tree)
    with OsFiles() as files, pytest.raises(ApplyError, match="Failed to write file"):
        commit(planned, files)
    assert snapshot(tree) == before
    assert (outside / "e.txt").read_text() == "e\n"


def test_a_link_that_another_user_planted_is_not_followed(tree: Path) -> None:
    class Planted(OsFiles):
        def lstat(self, path: str) -> os.stat_result:
            status = super().lstat(path)
            if not path.endswith("/trap"):
                return status
            values = list(status)
            values[stat.ST_UID] = os.geteuid() + 1234
            return os.stat_result(values)

    shared = tree / "shared"
    shared.mkdir()
    (shared / "trap").symlink_to(tree / "c.txt")
    patch = "*** Begin Patch\n*** Add File: shared/trap\n+x\n*** End Patch"
    shared.chmod(0o1777)
    outcome = applied(Planted(), tree, patch)
    assert outcome.stderr == f"Failed to write file {shared}/trap\n"
    assert (tree / "c.txt").read_text() == "c\n"
    shared.chmod(0o755)
    assert applied(Planted(), tree, patch).exit_code == 0
    assert (tree / "c.txt").read_text() == "x\n"


def test_a_file_over_the_limit_is_not_read(tree: Path) -> None:
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-2\n+two\n*** End Patch"
    outcome = applied(OsFiles(max_read=5), tree, patch)
    assert outcome.stderr == (
        f"Failed to read file to update {tree}/a.txt: file is too large to read: limit is 5 bytes\n"
    )


def test_a_writable_file_in_a_folder_that_takes_no_new_names(tree: Path) -> None:
    class NoNewNames(OsFiles):
        def create(self, path: str, data: bytes, like: str | None) -> bool:
            raise PermissionError(errno.EACCES, "no")

    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-2\n+two\n*** End Patch"
    inode = (tree / "a.txt").stat().st_ino
    assert applied(NoNewNames(), tree, patch).exit_code == 0
    assert (tree / "a.txt").read_text() == "1\ntwo\n3\n"
    assert (tree / "a.txt").stat().st_ino == inode
