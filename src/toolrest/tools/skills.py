"""Which skills are there? Folders with a `SKILL.md`, found in the places that the user trusts.

A skill's front matter says its name and what it is for; that goes into the index that a model is
told. The rest is read when it is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256

from toolrest.errors import Rejected, RespondToModel
from toolrest.records import dataclass, field
from toolrest.policy.paths.policy import PathPolicy

FILE = "SKILL.md"
MOST_BYTES = 262_144
INDEX_CHARS = 4096
_MOST_SKILLS = 200
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 1024
_FIELD = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(.*))?$")


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill: its name, what it is for, and the file that explains it."""

    name: str
    description: str
    file: str

    @property
    def folder(self) -> str:
        """Where its own files are."""
        return os.path.dirname(self.file)


@dataclass(slots=True)
class Skills:
    """The skills of a session; of two with one name the first place wins."""

    found: dict[str, Skill] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def index(self, most: int = INDEX_CHARS) -> str:
        """What a model is told of them, within so many characters; empty when there are none."""
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
    """Look through the places, by way of the path policy. A bad skill is set aside, with why."""
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
    """The text of a skill's file; ValueError when it cannot be had."""
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
