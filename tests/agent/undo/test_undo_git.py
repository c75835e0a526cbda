"""What git ignores and tracks, held against git itself."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrest.agent.undo.git_files import IgnoreRules, Pattern, parse_line, tracked_in

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
NAMES = st.sampled_from(["a", "b", "ab", "a.o", "b.log", "build", "src", "x y", "#x", "!x", "[z]"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
LINES = st.sampled_from(
    [
        *("a", "*.o", "/a", "build/", "src/*", "src/**", "**/ab", "a/**/b", "!a.o", "!build/"),
        *("a*", "?", "[ab]", "[!a]*", "\\#x", "\\!x", "#x", "x\\ y", "a/b", "src/**/*.log", "**"),
        *("*", "!*.o", "/src/a", "**/build/**", "b.log ", "[z]", "\\[z\\]", "", "!/src"),
    ]
)


@pytest.mark.slow
@settings(max_examples=300 if FULL else 30)
@given(st.lists(LINES, max_size=5), st.lists(LINES, max_size=3), st.sets(PATHS, min_size=8))
def test_ignored_as_git_says(top: list[str], below: list[str], paths: set[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["git", "init", "-q", place], check=True)
        Path(place, ".gitignore").write_text("\n".join(top) + "\n")
        Path(place, "src").mkdir()
        Path(place, "src", ".gitignore").write_text("\n".join(below) + "\n")
        asked = subprocess.run(
            ["git", "-C", place, "check-ignore", "--no-index", "-z", "--stdin"],
            input="\0".join(sorted(paths)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.returncode in (0, 1), asked.stderr
        expected = set(asked.stdout.split("\0")) - {""}
        assert {path for path in paths if ignored(path, top, below)} == expected


def ignored(path: str, top: list[str], below: list[str]) -> bool:
    """As the walk does it: a folder that is ignored takes everything in it along."""
    rules = IgnoreRules().entered("", _patterns(top))
    names = path.split("/")
    for end in range(1, len(names)):
        folder = "/".join(names[:end])
        if rules.ignores(folder, is_dir=True):
            return True
        if folder == "src":
            rules = rules.entered("src", _patterns(below))
    is_dir = path == "src"
    return rules.ignores(path, is_dir=is_dir)


def _patterns(lines: list[str]) -> tuple[Pattern, ...]:
    return tuple(found for line in lines if (found := parse_line(line)) is not None)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_tracked_as_git_says(tmp_path: Path, version: int) -> None:
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", tmp_path, *words], capture_output=True, check=True)
        return done.stdout.decode()

    git("init", "-q")
    names = ["a", "a.txt", "d/e/f", "d/e/fg", "d/é", "long" * 40, "z"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    git("add", "-A")
    git("update-index", "--index-version", str(version))
    if version == 3:
        git("update-index", "--skip-worktree", "a.txt")
    assert tracked_in(str(tmp_path)) == set(names)


@pytest.mark.parametrize("data", [b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\5rest", b"x" * 500])
def test_an_index_that_is_none_names_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(data)
    assert tracked_in(str(tmp_path)) == frozenset()


def test_a_hostile_pattern_takes_no_time() -> None:
    pattern = parse_line("*a*a*a*a*a*a*a*a*a*a*a*a*b")
    assert pattern is not None
    assert not pattern.matches(["a" * 250], is_dir=False)
