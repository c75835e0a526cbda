"""What is at many names, asked again and again: never an old answer."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from toolrest.sandbox.guard.changes import FileKindCache

NAMES = ("a", "b", "d", "d/a", "d/e", "d/e/a", "f/a")
STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["file", "folder", "link", "gone"])),
    max_size=12,
)


def change(path: Path, kind: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
    if kind == "gone" or not path.parent.is_dir():
        return
    if kind == "file":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")


def settle(root: Path, tick: int) -> None:
    """Let every folder look as if it had last changed some time ago, each time another moment."""
    moment = time.time_ns() - 60_000_000_000 + tick
    for folder, _, _ in os.walk(root):
        os.utime(folder, ns=(moment, moment))


def kind(path: Path) -> int:
    return stat.S_IFMT(path.lstat().st_mode) if os.path.lexists(path) else 0


@settings(max_examples=60, deadline=None)
@given(STEPS, st.booleans())
def test_the_answer_is_what_is_there(steps: list[tuple[str, str]], old: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        paths = [root / name for name in NAMES]
        kinds = FileKindCache(map(str, paths))
        for tick, (name, what) in enumerate(steps):
            if old:
                settle(root, tick)
                kinds.snapshot()
            change(root / name, what)
            seen = sorted(value for group in kinds.snapshot() for value in group)
            assert seen == sorted(map(kind, paths))
