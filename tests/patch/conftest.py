"""Recorded cases, and trees of files to run them in."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Case: TypeAlias = dict[str, Any]
Tree: TypeAlias = dict[str, Any]

DATA = Path(__file__).parent.parent / "data"
SEED = 4
NOBODY = 65534


def load(name: str) -> list[Case]:
    with (DATA / name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def sample(cases: list[Case], count: int) -> list[Case]:
    """The same sample every time: at least one case of each category, then any."""
    chosen = random.Random(SEED)
    shuffled = chosen.sample(cases, len(cases))
    firsts = list({case["category"]: case for case in reversed(shuffled)}.values())
    rest = [case for case in shuffled if case not in firsts]
    return firsts + rest[: max(0, count - len(firsts))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`recorded` are the command's cases, by default a tenth of them; others are run whole."""
    whole = os.environ.get("TOOLREST_TEST_FULL") == "1"
    for name, fixture in _FILES.items():
        if fixture in metafunc.fixturenames:
            cases = load(name)
            if metafunc.function.__name__ == "test_every_recorded_mismatch_names_the_line":
                cases = [case for case in cases if case["stderr"].startswith("Failed to find")]
            if fixture == "recorded" and not whole:
                cases = sample(cases, len(cases) // 8)
            metafunc.parametrize(fixture, cases, ids=[case["name"] for case in cases])
    if "scripted" in metafunc.fixturenames:
        cases = sample(load("apply_patch.jsonl"), 60 if whole else 20)
        metafunc.parametrize("scripted", cases, ids=[case["name"] for case in cases])


_FILES = {
    "apply_patch.jsonl": "recorded",
    "apply_patch_shell.jsonl": "shell_case",
    "unified_diff.jsonl": "diff_case",
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder that an ordinary user can reach too, with no symlink on the way."""
    root = Path(os.path.realpath(tempfile.mkdtemp(prefix="patch-")))
    root.chmod(0o755)
    yield root
    for path, _, _ in os.walk(root):
        os.chmod(path, 0o755)
    shutil.rmtree(root)


@pytest.fixture
def build() -> Callable[[Path, Tree], None]:
    return build_tree


@pytest.fixture
def snapshot() -> Callable[[Path], Tree]:
    return snapshot_tree


def build_tree(root: Path, tree: Tree) -> None:
    late: list[tuple[Path, int]] = []
    for name, entry in tree.items():
        path = root / name
        entry = {"text": entry} if isinstance(entry, str) else entry
        path.parent.mkdir(parents=True, exist_ok=True)
        if "symlink" in entry:
            path.symlink_to(entry["symlink"])
        elif "hardlink" in entry:
            path.hardlink_to(root / entry["hardlink"])
        elif "fifo" in entry:
            os.mkfifo(path, 0o644)
        elif "dir" in entry:
            path.mkdir(exist_ok=True)
            late.append((path, int(entry.get("mode", "0755"), 8)))
        else:
            data = entry["text"].encode() if "text" in entry else base64.b64decode(entry["b64"])
            path.write_bytes(data)
            path.chmod(int(entry.get("mode", "0644"), 8))
    for path, mode in late:
        path.chmod(mode)


def snapshot_tree(root: Path) -> Tree:
    """The tree as the recorded cases spell it."""
    tree: Tree = {}
    for folder, folders, files in os.walk(root):
        for name in sorted(folders + files):
            path = Path(folder, name)
            entry = _entry(path)
            if entry is not None:
                tree[str(path.relative_to(root))] = entry
    return dict(sorted(tree.items()))


def _entry(path: Path) -> Any:
    status = path.lstat()
    mode = f"{stat.S_IMODE(status.st_mode):04o}"
    if stat.S_ISLNK(status.st_mode):
        return {"symlink": os.readlink(path)}
    if stat.S_ISFIFO(status.st_mode):
        return {"fifo": True}
    if stat.S_ISDIR(status.st_mode):
        if mode != "0755":
            return {"dir": True, "mode": mode}
        return None if any(path.iterdir()) else {"dir": True}
    data = path.read_bytes()
    try:
        text: Tree = {"text": data.decode()}
    except UnicodeDecodeError:
        text = {"b64": base64.b64encode(data).decode()}
    if mode != "0644":
        return text | {"mode": mode}
    return text.get("text", text)
