"""Which instructions do the files of the user and of the project give?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from toolrest.errors import Rejected
from toolrest.records import dataclass
from toolrest.policy.paths.policy import PathPolicy

NAMES = ("AGENTS.override.md", "AGENTS.md")
_SEPARATOR = "\n\n--- project-doc ---\n\n"
_GLOBAL_LIMIT = 1 << 20


@dataclass(slots=True)
class ProjectDocs:
    """Where project files are looked for, and how much of them is taken.

    `enabled` is off for folders that the user does not trust: what a stranger's repository
    says is no instruction.
    """

    enabled: bool = True
    max_bytes: int = 32_768
    fallbacks: Sequence[str] = ()
    root_markers: Sequence[str] = (".git",)


def agents_text(home: str, files: PathPolicy, docs: ProjectDocs) -> str:
    """The user's own file, then the project's from its root down to the working folder."""
    project = project_text(files, docs) if docs.enabled else ""
    return _SEPARATOR.join(part for part in (_global_text(home), project) if part)


def agents_message(text: str, cwd: str) -> str:
    """The text as the model gets it."""
    return f"# AGENTS.md instructions for {cwd}\n\n<INSTRUCTIONS>\n{text}\n</INSTRUCTIONS>"


def _global_text(home: str) -> str:
    for name in NAMES:
        try:
            with open(os.path.join(home, name), "rb") as file:
                text = file.read(_GLOBAL_LIMIT).decode("utf-8", "replace").strip()
        except OSError:
            continue
        if text:
            return text
    return ""


def project_text(files: PathPolicy, docs: ProjectDocs) -> str:
    """The project's files, joined, within the budget of bytes."""
    left = docs.max_bytes
    found: list[str] = []
    for path in project_files(files.cwd, docs):
        if left <= 0:
            break
        try:
            # Through the path policy: a link in a repository could point at a key.
            data = files.read_bytes(path, left)
        except (OSError, Rejected):
            continue
        text = data.decode("utf-8", "replace")
        if text.strip():
            found.append(text)
            left -= len(data)
    return "\n\n".join(found)


def project_files(cwd: str, docs: ProjectDocs) -> Iterator[str]:
    """At most one file a folder, from the project's root down."""
    for folder in _folders(cwd, docs.root_markers):
        for name in (*NAMES, *docs.fallbacks):
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                yield path
                break


def _folders(cwd: str, markers: Sequence[str]) -> list[str]:
    folders = [cwd]
    while markers:
        here = folders[-1]
        if any(os.path.lexists(os.path.join(here, marker)) for marker in markers):
            return folders[::-1]
        parent = os.path.dirname(here)
        if parent == here:
            break
        folders.append(parent)
    return [cwd]
