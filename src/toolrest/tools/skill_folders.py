"""The folders that a session's skills are in; they are searched once, on first use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from toolrest.config.files import user_home
from toolrest.tools.catalog import is_on

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.policy.paths.policy import PathPolicy
    from toolrest.tools.skills import Skills


class SessionSkills:
    """The folders of skills, and the skills in them.

    A user of the library has named the workspace, so its skills count unless the folder is
    marked untrusted; with the user's settings files it must be marked trusted.
    """

    def __init__(self, config: Config, files: PathPolicy, environ: Mapping[str, str]) -> None:
        level = config.trust_level
        trusted = level == "trusted" if config.from_files else level != "untrusted"
        own = [os.path.join(files.workspace, ".agents", "skills")] if trusted else []
        places = [*own, os.path.join(user_home(environ), ".agents", "skills")]
        places.append(os.path.join(config.home, "skills"))
        self.places = [place for place in places if os.path.isdir(place)]
        self._files = files
        self._settings = config.value.tools

    @cached_property
    def skills(self) -> Skills:
        """The skills in these folders."""
        from toolrest.tools.skills import find_skills

        return find_skills(self.places, self._files)

    def index(self) -> str:
        """The index of the skills for the model's prompt; empty when there are none."""
        if not self.places:
            return ""
        from toolrest.tools.skills import ReadSkill

        return self.skills.index() if is_on(ReadSkill, self._settings) else ""


def skills_folder(home: str) -> tuple[str, ...]:
    """The part of Toolrest's home that tools may read, if it is there."""
    folder = os.path.join(home, "skills")
    return (folder,) if os.path.isdir(folder) else ()
