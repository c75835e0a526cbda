"""The prompt: base instructions, permissions, AGENTS.md, environment, and the user's message.

A user's message is text and images from files.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from toolrest.agent.history.history import IMAGE_END, IMAGE_START, History, message
from toolrest.errors import ConfigError, Rejected
from toolrest.items import JSONObject
from toolrest.policy.modes import network_of
from toolrest.policy.paths.policy import PathPolicy
from toolrest.private_files import project_has, regular_file
from toolrest.process.shells.shells import Shells
from toolrest.tools.images.pictures import format_of

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest
    from toolrest.config import Config, Settings


NAMES = ("AGENTS.override.md", "AGENTS.md")
_SEPARATOR = "\n\n--- project-doc ---\n\n"
_GLOBAL_LIMIT = 1 << 20


class ProjectDocs(Struct):
    """The project's AGENTS.md files: where they are searched, and how much of them is read.

    `enabled` is off for folders that the user does not trust: their files are no instructions.
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
    """The message with the text of AGENTS.md."""
    return f"# AGENTS.md instructions for {cwd}\n\n<INSTRUCTIONS>\n{text}\n</INSTRUCTIONS>"


def _global_text(home: str) -> str:
    for name in NAMES:
        try:
            with open(os.path.join(home, name), "rb", opener=regular_file) as file:
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
        if any(project_has(os.path.join(here, marker)) for marker in markers):
            return folders[::-1]
        parent = os.path.dirname(here)
        if parent == here:
            break
        folders.append(parent)
    return [cwd]


_INSTRUCTIONS = os.path.join(os.path.dirname(__file__), "base_instructions.md")

_SANDBOX = {
    "read-only": "Files can be read; commands and edits cannot change any.",
    "workspace-write": "Files can be read; only the writable folders below can be changed.",
    "danger-full-access": "There is no sandbox: whatever a command does takes effect.",
}
_APPROVAL = {
    "untrusted": "Commands that are not known to be harmless are shown to the user first.",
    "on-failure": "What the sandbox blocks is shown to the user, who may let it run outside.",
    "on-request": (
        "To run a command outside the sandbox, ask: call it with sandbox_permissions = "
        '"require_escalated" and a justification of one sentence. Ask only where the task needs '
        "it; the user may deny it."
    ),
    "never": "There is no approver. Work with what is allowed; what is denied stays denied.",
    "auto": "Reading runs at once; everything else is shown to the user first.",
    "strict": "Everything that has an effect is shown to the user first.",
    "dangerous": "There is no approver. What leaves the sandbox is denied; the rest takes effect.",
}


def base_instructions(settings: Settings) -> str:
    """The base instructions: the file of `model_instructions_file`, else ours."""
    path = settings.model_instructions_file or _INSTRUCTIONS
    try:
        with open(path, encoding="utf-8", opener=regular_file) as file:
            text = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"model_instructions_file: cannot read {path}: {error}") from None
    if not text:
        raise ConfigError(f"model_instructions_file: {path} is empty")
    return text


class Opening(Struct):
    """The items that open a session and, later, those for what has changed."""

    config: Config
    files: PathPolicy
    shell: str
    docs: ProjectDocs
    skills: str = ""
    """The index of the skills."""
    only_own: bool = False
    """The model has no built-in tools, so it need not know the sandbox and the folder."""

    def items(self) -> list[JSONObject]:
        """All opening items, in order."""
        return [message(role, text) for role, text in self._texts()]

    def news(self, history: History) -> list[JSONObject]:
        """The opening items that a resumed history does not have in their present form."""
        found = []
        for role, text in self._texts():
            head = text.partition("\n")[0].partition(" for ")[0]
            if history.last_text(head) != text:
                found.append(message(role, text))
        return found

    def _texts(self) -> Iterator[tuple[str, str]]:
        settings = self.config.value
        if not self.only_own:
            yield "developer", self.permissions()
        if settings.developer_instructions:
            yield "developer", settings.developer_instructions
        if self.only_own:
            return
        if self.skills:
            yield "developer", self.skills
        docs = agents_text(self.config.home, self.files, self.docs)
        if docs:
            yield "user", agents_message(docs, self.files.cwd)
        yield "user", self.environment()

    def permissions(self) -> str:
        """The sandbox and the approval policy, described for the model."""
        settings = self.config.value
        lines = [f"sandbox_mode is {settings.sandbox_mode}. {_SANDBOX[settings.sandbox_mode]}"]
        if settings.sandbox_mode != "danger-full-access":
            lines.append(f"The network is {self._network()} for commands.")
        if settings.sandbox_mode == "workspace-write":
            roots = ", ".join(f"`{root}`" for root in self.files.writable_roots)
            lines.append(f"Writable: {roots}.")
        lines.append(
            f"approval_policy is {settings.approval_policy}. {_APPROVAL[settings.approval_policy]}"
        )
        body = "\n".join(lines)
        return f"<permissions instructions>\n{body}\n</permissions instructions>"

    def _network(self) -> str:
        settings = self.config.value
        hosts = settings.tool_security.allowed_network_domains
        if hosts:
            return f"restricted to {', '.join(hosts)}"
        return "enabled" if network_of(settings) == "on" else "off"

    def environment(self) -> str:
        """The environment: working folder, shell, date and time zone."""
        now = datetime.now().astimezone()
        facts = {
            "cwd": self.files.cwd,
            "shell": self.shell,
            "current_date": now.date().isoformat(),
            "timezone": now.tzname() or "UTC",
        }
        body = "\n".join(f"  <{name}>{_escaped(text)}</{name}>" for name, text in facts.items())
        return f"<environment_context>\n{body}\n</environment_context>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def opening_for(rest: Toolrest, *, trusted: bool | None = None, only_own: bool = False) -> Opening:
    """The opening of a session with these tools.

    A user of the library has named the workspace, so its AGENTS.md counts unless the folder is
    marked untrusted; the command line passes `trusted`, False for an unknown folder.
    """
    config, settings = rest.config, rest.settings
    files = rest.session.files
    docs = ProjectDocs(
        enabled=config.trust_level != "untrusted" if trusted is None else trusted,
        max_bytes=settings.project_doc_max_bytes,
        fallbacks=settings.project_doc_fallback_filenames,
        root_markers=settings.project_root_markers,
    )
    shell = Shells.of_this_user(os.environ, avoid=files.writable_roots).default()
    return Opening(config, files, shell.kind, docs, rest.skills_index(), only_own)


LARGEST_IMAGE = 20_000_000
_TAKEN = ("png", "jpeg", "gif", "webp")


def prompt_items(text: str, images: Sequence[str] = ()) -> list[JSONObject]:
    """One user message: the images first, each between marks that name it, then the text."""
    parts: list[str | JSONObject] = []
    for number, path in enumerate(images, 1):
        full = os.path.abspath(path)
        parts += [
            f'{IMAGE_START}{number}] path="{full}">',
            {"type": "input_image", "image_url": image_url(full)},
            IMAGE_END,
        ]
    return [message("user", *parts, _typed(text))]


def _typed(text: str) -> str:
    """The text as it was typed, where Python took a terminal of UTF-8 for one of ASCII."""
    if not any("\udc80" <= char <= "\udcff" for char in text):
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # halves of other pairs
        return text


def image_url(path: str) -> str:
    """An image file as a `data:` URL; ConfigError when models do not take it."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_IMAGE + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the image {path}: {error.strerror}") from None
    kind = format_of(data)
    if kind not in _TAKEN:
        raise ConfigError(f"the image {path} is not a PNG, JPEG, GIF or WebP picture")
    if len(data) > LARGEST_IMAGE:
        raise ConfigError(
            f"the image {path} is larger than {LARGEST_IMAGE:,} bytes; make it smaller"
        )
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
