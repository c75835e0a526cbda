"""A task's own home: the user's settings, keys and rules; sessions and grants of its own.

It lies in the user's home, which is hidden from all tools, of other tasks as well.
"""

from __future__ import annotations

import hashlib
import os
import shutil

from toolrest.batch.stores.store import Store
from toolrest.private_files import make_private, remove_tree

_STATE = frozenset(
    {
        "approvals", "audit", "batch", "cache", "chat", "checkpoints", "log", "reports", "run",
        "sessions", "spill", "told", "vm",
    }
)  # fmt: skip
"""What a home gathers in use, and a task has of its own."""


def store_name(store: Store) -> str:
    """A short name for a store, for files of this machine."""
    return hashlib.sha256(store.url.encode()).hexdigest()[:16]


def state_folder(home: str, store: Store, key: str) -> str:
    """The folder of what this machine knows of a task until it has its result."""
    return os.path.join(home, "batch", store_name(store), key)


def make_task_home(user_home: str, state: str) -> str:
    """Make a task's home, or bring its settings up to date; returns its path."""
    home = os.path.join(state, "home")
    make_private(home)
    with os.scandir(user_home) as entries:
        for entry in entries:
            target = os.path.join(home, entry.name)
            if entry.name in _STATE or entry.name.endswith((".lock", ".sock")):
                continue
            if entry.is_dir(follow_symlinks=False):
                remove_tree(target)
                shutil.copytree(entry.path, target, symlinks=True)
            elif entry.is_file():
                shutil.copy2(entry.path, target)
    return home
