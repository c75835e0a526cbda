"""Skills: folders with a `SKILL.md` in folders that the user trusts, and `read_skill`.

The name and description in a skill's front matter go into an index for the model, which reads the
rest with `read_skill` when it is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct, field

from toolrest.errors import Rejected, RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import ExecItem, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.policy.paths.policy import PathPolicy

if TYPE_CHECKING:
    from toolrest.gate.session import Ground

FILE = "SKILL.md"
MOST_BYTES = 262_144
INDEX_CHARS = 4096
_MOST_SKILLS = 200
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 1024
_FIELD = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(.*))?$")


class Skill(Struct, frozen=True):
    """One skill: its name, its description, and its file."""

    name: str
    description: str
    file: str

    @property
    def folder(self) -> str:
        """The folder of its files."""
        return os.path.dirname(self.file)


class Skills(Struct):
    """The skills of a session; of two with one name the first folder wins."""

    found: dict[str, Skill] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def index(self, most: int = INDEX_CHARS) -> str:
        """The index for the model, within so many characters; empty without skills."""
        if not self.found:
            return ""
        head = "Read a skill with read_skill before you do work that it is for:"
        rows = [_row(skill) for skill in self.found.values()]
        if len(head) + sum(len(row) + 1 for row in rows) > most:
            rows = [f"- {name}" for name in self.found]
        shown: list[str] = []
        left = most - len(head) - 60
        for row in rows:
            if len(row) + 1 > left:
                shown.append(f"({len(rows) - len(shown)} more; read_skill lists them all)")
                break
            shown.append(row)
            left -= len(row) + 1
        body = "\n".join([head, *shown])
        return f"<skills_instructions>\n{body}\n</skills_instructions>"


def _row(skill: Skill) -> str:
    return f"- {skill.name}: {skill.description}"


def find_skills(places: Sequence[str], files: PathPolicy) -> Skills:
    """Find the skills in these folders, through the path policy. Invalid ones become problems."""
    skills = Skills()
    seen: set[bytes] = set()
    for place in places:
        for file in _files(place, files):
            if len(skills.found) >= _MOST_SKILLS:
                skills.problems.append(f"more than {_MOST_SKILLS} skills; the rest is left out")
                return skills
            try:
                text = read_skill_file(file, files)
                skill = parse(text, file)
            except ValueError as error:
                skills.problems.append(f"{file}: {error}")
                continue
            digest = sha256(text.encode()).digest()
            if digest not in seen:  # the same skill is often kept in several places
                seen.add(digest)
                skills.found.setdefault(skill.name, skill)
    return skills


def _files(place: str, files: PathPolicy) -> Iterator[str]:
    try:
        listed = sorted(files.scan(place))
    except (OSError, Rejected):
        return
    for name, kind in listed:
        file = os.path.join(place, name, FILE)
        if kind in ("dir", "symlink") and os.path.isfile(file):
            yield file


def read_skill_file(file: str, files: PathPolicy) -> str:
    """The text of a skill's file; ValueError when it cannot be read."""
    try:
        data = files.read_bytes(file, MOST_BYTES + 1)
    except (OSError, Rejected, RespondToModel) as error:
        raise ValueError(str(error)) from None
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def parse(text: str, file: str) -> Skill:
    """Read a skill's front matter. ValueError says what is wrong with it."""
    fields = front_matter(text)
    name = fields.get("name") or os.path.basename(os.path.dirname(file))
    description = " ".join(fields.get("description", "").split())
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise ValueError(f"the name {name[:80]!r} is not lower-case words joined by hyphens")
    if not description:
        raise ValueError("it has no description in its front matter")
    return Skill(name, _one_line(description)[:_LONGEST_DESCRIPTION], file)


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def front_matter(text: str) -> dict[str, str]:
    """The top-level texts between the `---` lines: plain, quoted, or blocks after `>` and `|`.

    This is the part of YAML that skills use. What is nested (metadata, lists) is passed over.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines or lines[0].strip() != "---" or "---" not in lines[1:]:
        raise ValueError("it does not begin with front matter between two --- lines")
    body = lines[1 : lines.index("---", 1)]
    fields: dict[str, str] = {}
    at = 0
    while at < len(body):
        match = _FIELD.match(body[at])
        at += 1
        following = at
        while following < len(body) and (
            not body[following].strip() or body[following][0] in " \t"
        ):
            following += 1
        if match is not None:
            fields[match[1]] = _value((match[2] or "").strip(), body[at:following])
        at = following
    return fields


def _value(first: str, below: list[str]) -> str:
    if first[:1] in (">", "|"):
        joint = " " if first[0] == ">" else "\n"
        return joint.join(line.strip() for line in below).strip()
    if first[:1] in ("'", '"') and first.endswith(first[0]) and len(first) > 1:
        inner = first[1:-1]
        return inner.replace("''", "'") if first[0] == "'" else inner.replace('\\"', '"')
    return " ".join([first.split(" #")[0], *(line.strip() for line in below)]).strip()


_LISTED = 50


class ReadSkill(Tool):
    """`read_skill`: reads the skills that were found in trusted folders, and no other files."""

    name = "read_skill"
    description = (
        "Read the instructions of a skill by its name. Without a name, list all skills. Files "
        "that a skill mentions are in its directory; read_file reads them."
    )
    group: Group = "memory"
    exec_item: ExecItem = ""
    offered_when = ("session:skills",)
    typical = Effects(reads=("<skill>",))
    idempotent = True

    class Args(Parameters):
        """Parameters."""

        name: str | None = param(default=None, description="The skill's name.")
        path: str | None = param(
            default=None, description="The skill's directory or SKILL.md, in place of its name."
        )

    def __init__(self, skills: Callable[[], Skills]) -> None:
        self._skills = skills

    @classmethod
    def build(cls, ground: Ground) -> Tool:
        """Make the tool with the session's skills."""
        return cls(lambda: ground.skills.skills)

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
            raise RespondToModel(f"cannot read the skill {skill.name}: {error}") from None
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
