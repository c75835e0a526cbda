"""A session's skills: looked for once, when somebody first needs them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from toolrest.config.files import user_home
from toolrest.gate.tool._merge_deferred import Deferred
from toolrest.tools.catalog import is_on

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.gate.tool.tool import Tool
    from toolrest.policy.paths.policy import PathPolicy
    from toolrest.tools.skills import Skills


class SessionSkills:
    """Where skills may be, and what was found there.

    Whoever uses the library has named the workspace, so its skills count unless the folder is
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
        self._on = is_on("read_skill", config.value.tools)

    @cached_property
    def skills(self) -> Skills:
        """What was found."""
        from toolrest.tools.skills import find_skills

        return find_skills(self.places, self._files)

    def index(self) -> str:
        """What a model is told before its first turn; empty when there is nothing to tell."""
        return self.skills.index() if self.places and self._on else ""

    def tool(self) -> Tool:
        """`read_skill`; offered only where there is a place to find skills in."""
        offered = bool(self.places)

        def load() -> Tool:
            from toolrest.tools._merge_read_skill import ReadSkill

            return ReadSkill(lambda: self.skills, offered=offered)

        return Deferred("read_skill", "memory", load, offered=offered)


def skills_folder(home: str) -> tuple[str, ...]:
    """The part of Toolrest's home that tools may read, if it is there."""
    folder = os.path.join(home, "skills")
    return (folder,) if os.path.isdir(folder) else ()
