"""`apply_patch`: change files by a patch in any of the forms models write, all or nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolrest.config.files import patch_records
from toolrest.errors import Failure, Rejected, RespondToModel
from toolrest.events import PatchApplyBegin, PatchApplyEnd, TurnDiff
from toolrest.gate.context import Context
from toolrest.gate.tool import arguments
from toolrest.gate.tool.call import ToolCall, ToolQuestion
from toolrest.gate.tool.tool import ExecItem, Grammar, Icon, Tool
from toolrest.items import Group, JSONObject, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.policy.launch import Changed

if TYPE_CHECKING:
    from toolrest.config.schema.families import PatchForm
    from toolrest.gate.session import Ground
    from toolrest.patch.files.os_files import OsFiles
    from toolrest.patch.files.policy_files import PolicyFiles
    from toolrest.patch.plan import Plan, Record
    from toolrest.patch.report.changes import Change
    from toolrest.patch.request import Checked, Request
    from toolrest.patch.run import PatchOutcome

NO_CHANGES = "No changes made."
OUTSIDE = "writing outside of the project; rejected by user approval settings"
READ_ONLY = "writing is blocked by read-only sandbox; rejected by user approval settings"

_LANGUAGE = """Change files with a patch:
*** Begin Patch
*** Add File: new.txt
+every line of a new file
*** Update File: old.txt
*** Move to: renamed.txt
@@ def function_around_the_change():
 a line that stays
-a line that goes
+a line that comes
*** Delete File: unwanted.txt
*** End Patch
`Move to` and `@@` lines are optional. Give three lines of context around each change."""

_TEXTS = {
    "freeform": _LANGUAGE,
    "function": _LANGUAGE,
    "unified": "Change files with a unified diff, as `git diff` prints it.",
    "string_edits": (
        "Change a file by replacing text. old_string must occur exactly once, or set replace_all. "
        "Several changes go in `edits`; all of them apply or none."
    ),
}


def _string(description: str) -> JSONObject:
    return {"type": "string", "description": description}


_EDIT: JSONObject = {
    "old_string": _string("The text to replace, exactly as it is in the file."),
    "new_string": _string("The text to put there."),
    "replace_all": {"type": "boolean", "description": "Replace every occurrence."},
}


def _object(properties: JSONObject, required: list[str]) -> JSONObject:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_SCHEMAS: dict[str, JSONObject] = {
    "freeform": _object({"input": _string("The whole patch.")}, ["input"]),
    "function": _object({"input": _string("The whole patch.")}, ["input"]),
    "unified": _object(
        {
            "patch": _string("The diff."),
            "confirm": {"type": "boolean", "description": "Taken and ignored: the user decides."},
        },
        ["patch"],
    ),
    "string_edits": _object(
        {
            "file_path": _string("The file to change."),
            **_EDIT,
            "edits": {
                "type": "array",
                "description": "Several replacements, in order.",
                "items": _object(_EDIT, ["old_string", "new_string"]),
            },
        },
        ["file_path"],
    ),
}


class ApplyPatch(Tool):
    """`apply_patch`: takes every form; the model's family decides which one is offered."""

    name = "apply_patch"
    group: Group = "edit"
    capability = "change files"
    icon: Icon = "edit"
    exec_item: ExecItem = ""
    needs = ("include_apply_patch_tool",)
    typical = Effects(writes=("<paths>",))
    takes_any_payload = True
    checks_grammar = False

    def __init__(self, form: PatchForm = "freeform") -> None:
        self.form = form
        self.description = _TEXTS[form]
        if form == "freeform":
            from toolrest.patch.codex_grammar import GRAMMAR

            self.kind = "custom"
            self.grammar = Grammar("lark", GRAMMAR)

    @classmethod
    def build(cls, ground: Ground) -> Tool:
        """Make the tool with the form that the model's family knows."""
        family = ground.config.family
        as_function = family.patch == "freeform" and family.prefer_function_tools
        return cls("function" if as_function else family.patch)

    @property
    def parameters(self) -> JSONObject:
        """The schema of the form that is offered."""
        return _SCHEMAS[self.form]

    def decode(self, raw: str | Mapping[str, Any]) -> arguments.Decoded:
        """Take any of the forms."""
        return arguments.Decoded(arguments.parse_object(raw))

    def begin(self, args: str | Mapping[str, Any], ctx: Context) -> ToolCall:
        """The patch, read in whichever form it came."""
        return PatchCall(self, args, ctx, read(args), ctx.cwd)

    def rejected_text(self, message: str) -> str:
        """The message of a denied patch."""
        return "patch rejected by user" if message == "rejected by user" else message


def read(args: str | Mapping[str, Any]) -> Request:
    """Read the model's input as a patch request; RespondToModel when it is none."""
    from toolrest.patch.errors import PatchError
    from toolrest.patch.request import read as read_any

    try:
        return read_any(args)
    except PatchError as error:
        raise failed(error) from None


class PatchCall(ToolCall):
    """A patch: what it asks for, where it may write, and what the user was shown of it."""

    records: Sequence[Record] = ()
    """The verified changes, for the question."""
    plan: Plan | None = None
    """What is written, if the files are then still as they were judged."""

    def __init__(self, tool: Tool, args: Any, ctx: Context, request: Request, cwd: str) -> None:
        from toolrest.patch import run as summary

        self.request = request
        self.cwd = cwd
        paths = request.paths(cwd)
        if not paths:
            raise Rejected(summary.EMPTY)
        self._places: frozenset[str] | None = None
        self._blocked: list[str] = []
        if request.dry_run:
            effects = Effects(reads=tuple(paths))
        else:
            self._places = frozenset(place for path in paths for place in _places(path, ctx))
            self._blocked = _not_ours(paths, ctx)
            effects = _writes(paths, self._blocked, ctx)
        super().__init__(tool, args, ctx, effects)

    async def prepare(self) -> None:
        """Verify the patch; in a mode that never asks, deny one that leaves the project."""
        ctx = self.ctx
        checked = await ctx.in_thread(self._check)
        self.records, self.plan = checked.records, checked.plan
        if self._blocked and ctx.session.approval_policy in ("never", "dangerous"):
            reason = READ_ONLY if ctx.files.mode == "read-only" else OUTSIDE
            raise Rejected(f"patch rejected: {reason}")

    def _check(self) -> Checked:
        """The patch, verified and planned on the files as they are; RespondToModel if it fails."""
        from toolrest.patch.errors import PatchError

        request = self.request
        with self._files() as files:
            try:
                return request.check(files, self.cwd, self.ctx.session.settings.legacy_encoding)
            except PatchError as error:
                raise failed(error, request.error_prefix) from None

    def _files(self) -> PolicyFiles:
        from toolrest.patch.files.policy_files import PolicyFiles

        return PolicyFiles(self.ctx.writable_files, self._places)

    def question(self) -> ToolQuestion:
        """The diff of every file that the patch changes, nothing left out."""
        from toolrest.patch.report.changes import changes

        found = list(changes(self.records))
        kept = self.ctx.session.settings.checkpoints.max_file_size
        lost = [record.path for record in self.records if record.unread > kept]
        title = self._title()
        return ToolQuestion(
            cwd=self.cwd,
            title=title,
            notes=(
                *(["This session is read-only."] if title else []),
                *(f"Undo does not keep {path}." for path in lost),
            ),
            diff="\n".join(map(_shown, found)),
            changes={change.path: change.to_event() for change in found},
        )

    def _title(self) -> str:
        """The question of a session that may write nowhere."""
        if not self._blocked or self.ctx.files.mode != "read-only":
            return ""
        paths = self.effects.writes
        name = os.path.relpath(paths[0], self.cwd) if len(paths) == 1 else f"{len(paths)} files"
        return f"Change {name}?"

    async def run(self) -> ToolOutput:
        """Write all of the patch, or nothing; a dry run shows what would change."""
        return await self.ctx.in_thread(self.work)

    def work(self) -> ToolOutput:
        """Do the work, in a thread."""
        return self.dry_run() if self.request.dry_run else self.present(self.apply())

    def present(self, output: ToolOutput) -> ToolOutput:
        """The result in the tool's own words."""
        return output

    def dry_run(self) -> ToolOutput:
        """Show what edits would change, without writing."""
        return ToolOutput(fenced_diff(self.records, self.ctx) if self.records else NO_CHANGES)

    def apply(self) -> ToolOutput:
        """Write the patch, all or nothing, and return the result."""
        with self._files() as files:
            return self._apply(files)

    def _apply(self, files: OsFiles) -> ToolOutput:
        from toolrest.patch.errors import PatchError
        from toolrest.patch.record import PatchRecord
        from toolrest.patch.report.changes import changes
        from toolrest.patch.run import PatchOutcome, carry_out
        from toolrest.patch.text import diagnose

        ctx = self.ctx
        started = time.monotonic()
        plan = self.plan
        if plan is None or not plan.holds(files):
            try:
                plan = self.request.plan(files, self.cwd, ctx.session.settings.legacy_encoding)
            except PatchError as error:
                # Verification passed, so this problem shows only when the patch is written.
                return _ran(PatchOutcome(None, error, diagnose.notes(error)), started)
            self._refuse_other(plan)
        if plan is None:
            return ToolOutput(NO_CHANGES)
        listed = {
            change.path: change.to_event()
            for change in changes(plan.records, ctx.session.settings.legacy_encoding)
        }
        begin = PatchApplyBegin(call_id=ctx.call_id, auto_approved=not ctx.outside, changes=listed)
        ctx.emit(begin)
        diff = ctx.turn_diff()
        diff.watch(plan, files)
        record = PatchRecord(patch_records(ctx.session.config.home), ctx.files.workspace)
        outcome = carry_out(plan, files, record)
        ctx.emit(
            PatchApplyEnd(
                call_id=ctx.call_id,
                stdout=outcome.stdout,
                stderr=outcome.stderr,
                success=outcome.exit_code == 0,
                changes=listed,
            )
        )
        ctx.emit(TurnDiff(unified_diff=diff.text(files)))
        return _ran(outcome, started)

    def _refuse_other(self, plan: Plan | None) -> None:
        """Raise Changed when files differ from those that the user was shown: it is asked anew."""
        judged, now = _contents(self.plan), _contents(plan)
        differ = {
            key.partition("\0")[0] for key in {*judged, *now} if judged.get(key) != now.get(key)
        }
        if differ:
            raise Changed(f"{', '.join(sorted(differ)[:3])} changed meanwhile")


def _writes(paths: list[str], blocked: list[str], ctx: Context) -> Effects:
    """The writes of a patch; it asks to leave when the session may not write one of them."""
    if not blocked:
        return Effects(writes=tuple(paths), judged=True)
    shown = ", ".join(blocked[:3]) + (f" and {len(blocked) - 3} more" if blocked[3:] else "")
    why = (
        "the session is read-only, and it writes"
        if ctx.files.mode == "read-only"
        else "it writes outside of the project, or where nothing may be changed"
    )
    return Effects(writes=tuple(paths), judged=True, escalates=f"{why}: {shown}")


def _places(path: str, ctx: Context) -> tuple[str, str]:
    """The real path and the path as named: removing a link does not touch its target."""
    folder, name = os.path.split(ctx.files.resolve(path))
    return ctx.files.canonical(path), os.path.join(ctx.files.canonical(folder), name)


def _not_ours(paths: list[str], ctx: Context) -> list[str]:
    """Paths that this session may not write, by name; the patch engine checks links."""
    if ctx.files.mode == "danger-full-access":
        return []
    return [path for path in paths if ctx.files.write_denied(path, follow=False) is not None]


def _contents(plan: Plan | None) -> dict[str, bytes | None]:
    """Old and new content of every file of a plan, by its path, and which of them are new."""
    if plan is None:
        return {}
    after = {f"{change.path}\0after": change.content for change in plan.changes}
    new = {f"{path}\0new": b"" for path in after if plan.seen.get(path[:-6]) is None}
    return {**plan.sources, **after, **new}


def _shown(change: Change) -> str:
    from toolrest.patch.text.diff import unified_diff

    moved = f" -> {change.move_path}" if change.move_path else ""
    body = change.text
    if change.type != "update":
        body = unified_diff("", body) if change.type == "add" else unified_diff(body, "")
    return f"{change.type} {change.path}{moved}\n{body}"


def fenced_diff(records: Sequence[Record], ctx: Context) -> str:
    """The change as a unified diff in a fence that nothing in it can close."""
    from toolrest.patch.report.changes import changes

    parts = []
    for change in changes(records, ctx.session.settings.legacy_encoding):
        parts.append(f"--- {change.path}\n+++ {change.path}\n{change.text}")
    text = "".join(parts)
    fence = "```"
    while fence in text:
        fence += "`"
    ending = "" if text.endswith("\n") else "\n"
    return f"{fence}diff\n{text}{ending}{fence}"


def _ran(outcome: PatchOutcome, started: float) -> ToolOutput:
    from toolrest.patch import run as summary

    seconds = time.monotonic() - started
    text = summary.ran(outcome.exit_code, seconds, outcome.stdout + outcome.stderr)
    output = ToolOutput(text, success=outcome.exit_code == 0, notes=outcome.notes)
    output.metadata["exit_code"] = outcome.exit_code
    if outcome.exit_code:
        output.failure = Failure("execution_failed", outcome.stderr)
    return output


def failed(error: Any, refusal: str | None = None) -> RespondToModel:
    """The error for a patch that cannot be read or does not apply, with the diagnosis."""
    from toolrest.patch import run as summary
    from toolrest.patch.text import diagnose

    refused = refusal or summary.REFUSED
    notes = (f"[toolrest] {note}" for note in diagnose.notes(error))
    text = "\n".join([summary.refused(error, refused), *notes])
    fields = ("input",) if refused == summary.REFUSED else ()
    return RespondToModel(text, kind="input_invalid", fields=fields)
