"""`get_memory` and `save_memory`: notes for later sessions, in files that the user can edit.

Two Markdown files under `$TOOLREST_HOME/memory`: one for all projects, one for this project. No
other tool can reach them; every line that is written is an event.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import date
from hashlib import sha256
from typing import Literal, TypeAlias

from toolrest.answer import Answer
from toolrest.errors import Rejected, RespondToModel
from toolrest.events import MemorySaved
from toolrest.gate.context import Context
from toolrest.gate.decision.decide import Decision
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import ExecItem, Tool
from toolrest.items import Group, JSONObject, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.private_files import make_private

Scope: TypeAlias = Literal["project", "global"]
SCOPES: tuple[Scope, ...] = ("project", "global")
MOST_FILE_BYTES = 65_536
MOST_TEXT_BYTES = 4_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ADD = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def memory_file(home: str, workspace: str, scope: Scope) -> str:
    """The path of a memory. A project is identified by its folder."""
    folder = os.path.join(home, "memory")
    if scope == "global":
        return os.path.join(folder, "global.md")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(workspace))[:40].strip(".-")
    key = sha256(os.fsencode(workspace)).hexdigest()[:12]
    return os.path.join(folder, "projects", f"{name or 'root'}-{key}.md")


def read_memory(path: str) -> str | None:
    """The content of a memory, up to its size limit; None when there is none."""
    try:
        fd = os.open(path, _READ)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        text = file.read(MOST_FILE_BYTES).decode("utf-8", "replace").strip()
    return text or None


def matching(text: str, query: str) -> str:
    """The entries that hold every word of a query, whatever the case."""
    words = query.casefold().split()
    found = (entry for entry in entries(text) if all(word in entry.casefold() for word in words))
    return "\n".join(found)


def entries(text: str) -> Iterator[str]:
    """The parts of a memory: list items with what is indented below them, and paragraphs."""
    held: list[str] = []
    for line in text.split("\n"):
        begins = line.startswith(("- ", "* ", "#"))
        if held and (begins or not line.strip()):
            yield "\n".join(held)
            held = []
        if line.strip():
            held.append(line)
    if held:
        yield "\n".join(held)


class GetMemory(Tool):
    """`get_memory`. It touches nothing that other tools can reach."""

    name = "get_memory"
    description = (
        "Read what was saved in earlier sessions: notes for this project and notes for all "
        "projects. Look here before asking the user what they may have told you before."
    )
    group: Group = "memory"
    exec_item: ExecItem = ""
    small_window = False
    needs = ("include_memory_tool",)
    typical = Effects.none()
    idempotent = True

    class Args(Parameters):
        """Parameters."""

        memory_id: str | None = param(
            default=None, description='"project" or "global"; both when left out.'
        )
        query: str | None = param(
            default=None, description="Only notes that hold all of these words."
        )

    async def run(self, args: Args, ctx: Context) -> JSONObject:
        """Return one memory by its id, or all of them."""
        wanted = args.memory_id.strip() if args.memory_id else None
        found: list[JSONObject] = []
        for scope in SCOPES if wanted is None else [s for s in SCOPES if s == wanted]:
            path = memory_file(ctx.files.toolrest_home, ctx.workspace, scope)
            text = await ctx.in_thread(read_memory, path)
            if text is not None:
                text = matching(text, args.query) if args.query else text
                found.append({"memory_id": scope, "memory_summary": text})
        if wanted is None:
            return {"memories": found}
        if not found:
            raise RespondToModel(f"memory not found for memory_id={wanted}")
        return found[0]


class SaveMemory(Tool):
    """`save_memory`. A note for all projects always needs the user's approval."""

    name = "save_memory"
    description = (
        "Save a note for later sessions: a fact about the project, a decision, or how the user "
        "wants things done. Short, one matter a note, and never a secret. The user sees it."
    )
    group: Group = "memory"
    exec_item: ExecItem = ""
    small_window = False
    needs = ("include_memory_tool",)
    typical = Effects(writes=("<memory>",), judged=True)

    class Args(Parameters):
        """Parameters."""

        text: str = param(description="The note.")
        scope: Scope = param(
            default="project",
            description='"project" for this project only, "global" for all of them.',
        )

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Writes that memory's file, which no other tool can reach."""
        path = memory_file(ctx.files.toolrest_home, ctx.workspace, args.scope)
        return Effects(writes=(path,), judged=True)

    def decide(self, args: Args, effects: Effects, ctx: Context) -> Decision | None:
        """Ask about a note for all projects: one project could plant it in every other."""
        if args.scope == "project":
            return None
        if ctx.session.approval_policy == "never":
            reason = 'a note for all projects needs approval; approval_policy = "never" never asks'
            return Decision(Answer.DENY, "memory.global", f"{reason}; scope project needs none")
        reason = f"it saves a note for all projects: {ctx.redact(args.text)[:500]}"
        return Decision(Answer.ASK, "memory.global", reason, what="write")

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Save the note."""
        text = _CONTROLS.sub(" ", ctx.redact(args.text.replace("\r\n", "\n"))).strip()
        if not text:
            raise RespondToModel("text must not be empty", kind="input_invalid", fields=("text",))
        if len(text.encode("utf-8", "replace")) > MOST_TEXT_BYTES:
            message = f"a note has at most {MOST_TEXT_BYTES:,} bytes; save the gist of it"
            raise RespondToModel(message, kind="input_invalid", fields=("text",))
        path = memory_file(ctx.files.toolrest_home, ctx.workspace, args.scope)
        if not await ctx.in_thread(_add, path, text):
            return ToolOutput(f"Already in the {args.scope} memory.")
        ctx.emit(MemorySaved(call_id=ctx.call_id, scope=args.scope, path=path, text=text))
        return ToolOutput(f"Saved to the {args.scope} memory.")


def _add(path: str, text: str) -> bool:
    """Append a note in one write; False when it is there already."""
    body = text.replace("\n", "\n  ")
    known = read_memory(path) or ""
    if any(entry.partition(") ")[2] == body for entry in entries(known)):
        return False
    make_private(os.path.dirname(path))
    line = f"- ({date.today().isoformat()}) {body}\n".encode("utf-8", "replace")
    fd = os.open(path, _ADD, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size + len(line) > MOST_FILE_BYTES:
            raise Rejected(
                f"the memory is full: {path} has {size:,} of {MOST_FILE_BYTES:,} bytes; "
                "ask the user to shorten it"
            )
        if size and not _ends_in_newline(path):
            line = b"\n" + line
        os.write(fd, line)
    finally:
        os.close(fd)
    return True


def _ends_in_newline(path: str) -> bool:
    """Whether a person who edited the file ended its last line."""
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"
