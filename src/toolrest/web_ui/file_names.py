"""File names behind an `@`: those of a session's folder, without what its settings hide."""

from __future__ import annotations

import os

from toolrest.chat.composer.files import FileNames
from toolrest.config.loader import load
from toolrest.errors import ToolrestError
from toolrest.policy.paths.hidden import HiddenList, home_folders

_SHOWN = 8
_LOOKED_AT = 64
_MOST_TYPED = 200
_MOST_FOLDERS = 8


class FolderFiles:
    """The names of the files in some folders, listed once in a while."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._names: dict[str, FileNames] = {}

    def matching(self, folder: str, typed: str) -> list[str]:
        """Return the names that fit best, without those that the path policy hides."""
        try:
            config = load(home=self._home, workspace=folder, surface="cli")
        except ToolrestError:
            return []  # nothing says what is hidden there
        globs = config.value.hidden_paths
        hidden = HiddenList(
            homes=home_folders(), roots=(folder,), globs=globs, toolrest_homes=(self._home,)
        )
        names = self._names.pop(folder, None) or FileNames(folder)
        self._names[folder] = names
        while len(self._names) > _MOST_FOLDERS:
            del self._names[next(iter(self._names))]
        found = names.matching(typed[:_MOST_TYPED], _LOOKED_AT)
        return [name for name in found if _is_shown(folder, name, hidden)][:_SHOWN]


def _is_shown(folder: str, name: str, hidden: HiddenList) -> bool:
    path = os.path.join(folder, name)
    return hidden.hit(path) is None and hidden.hit(os.path.realpath(path)) is None
