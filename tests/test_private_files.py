"""What a command left in a private folder goes, however it is built."""

from __future__ import annotations

import os
from pathlib import Path

from toolrest.private_files import remove_tree


def test_folders_in_each_other_without_end(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    folder = os.open(made, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("a", dir_fd=folder)
        inner = os.open("a", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    remove_tree(str(made))
    assert not made.exists()
