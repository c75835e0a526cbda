"""`read_skill`: the instructions of a skill, when they are needed."""

from __future__ import annotations

import os
from collections.abc import Callable

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import Group, Tool
from toolrest.items import ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.skills import Skill, Skills, read_skill_file

_LISTED = 50


class ReadSkill(Tool):
    """Reads skills that were found in trusted places, and no other files."""

    name = "read_skill"
    description = (
        "Read the instructions of a skill by its name. Without a name, list all skills. Files "
        "that a skill mentions are in its directory; read_file reads them."
    )
    group: Group = "memory"
    typical = Effects(reads=("<skill>",))
    idempotent = True

    class Args(Parameters):
        """Parameters."""

        name: str | None = param(default=None, description="The skill's name.")
        path: str | None = param(
            default=None, description="The skill's directory or SKILL.md, in place of its name."
        )

    def __init__(self, skills: Callable[[], Skills], *, offered: bool = True) -> None:
        self._skills = skills
        self.offered = offered

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Reads that skill's file."""
        skill = self._named(args, ctx)
        return Effects.none() if skill is None else Effects(reads=(skill.file,))

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """The whole text, under a line that says where the skill's files are."""
        skill = self._named(args, ctx)
        if skill is None:
            return ToolOutput(self._listing())
        try:
            text = await ctx.in_thread(read_skill_file, skill.file, ctx.files)
        except ValueError as error:
            raise RespondToModel(f"the skill {skill.name} cannot be read: {error}") from None
        return ToolOutput(f"Skill {skill.name}, its files are in {skill.folder}\n\n{text}")

    def _listing(self) -> str:
        found = self._skills().found.values()
        rows = [f"- {skill.name}: {skill.description}" for skill in found]
        return "\n".join(rows) or "There are no skills."

    def _named(self, args: Args, ctx: Context) -> Skill | None:
        found = self._skills().found
        if args.name is None and args.path is None:
            return None
        if args.name is not None:
            skill = found.get(args.name.strip().removeprefix("$"))
        else:
            path = ctx.resolve(args.path or ".")
            near = (path, os.path.dirname(path))
            skill = next((one for one in found.values() if one.folder in near), None)
        if skill is None:
            named = ", ".join(list(found)[:_LISTED]) or "none"
            asked = args.name if args.name is not None else args.path
            message = f"there is no skill {asked!r}; the skills are: {named}"
            field = "name" if args.name is not None else "path"
            raise RespondToModel(message, kind="input_invalid", fields=(field,))
        return skill
