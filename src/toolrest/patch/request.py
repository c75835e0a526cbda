"""A patch request in any form: one handler takes all of them, whatever schema was advertised.

A text's form is known by its beginning, arguments' by their names; where nothing fits, the error
names all the forms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from toolrest.patch import codex_grammar as grammar
from toolrest.patch.codex_grammar import Patch
from toolrest.patch.errors import ParseError, PatchError
from toolrest.patch.files.file_system import FileSystem
from toolrest.patch.files.paths import resolve, targets
from toolrest.patch.forms import unified
from toolrest.patch.forms.string_edits import (
    EditPlan,
    EditRequest,
    from_arguments,
    is_edit,
    plan_edits,
)
from toolrest.patch.forms.unified import UnifiedFile
from toolrest.patch.forms.unified_plan import paths as diff_paths
from toolrest.patch.forms.unified_plan import plan_diff
from toolrest.patch.forms.whole_file import WriteRequest, plan_write
from toolrest.patch.overlay import OverlayView
from toolrest.patch.plan import Plan, Record, plan, verify
from toolrest.patch.run import REFUSED

Form: TypeAlias = Literal["codex", "unified", "edit", "write"]

FORMS = (
    "apply_patch takes one of these forms:",
    "a patch between '*** Begin Patch' and '*** End Patch', with '*** Add File: ', "
    "'*** Delete File: ' or '*** Update File: ' sections",
    "a unified diff that starts with 'diff --git ' or '--- '",
    "string edits: {file_path, old_string, new_string, replace_all?} or {file_path, edits}",
)
_TEXTS = ("input", "patch")


class Checked(Struct, frozen=True):
    """A patch that can be applied: its changes, for the question, and its plan.

    The plan is None where nothing would change, and for a patch in Codex's language that passes
    its verification and yet cannot be planned: writing it will say why.
    """

    records: Sequence[Record]
    plan: Plan | None


class Request(Struct, frozen=True):
    """A parsed patch, in its own form."""

    form: Form
    body: Patch | list[UnifiedFile] | EditRequest | WriteRequest
    error_prefix: str = REFUSED
    """Beginning of the message for a patch that is refused before it is tried."""

    @property
    def dry_run(self) -> bool:
        """Whether it only asks for what would change."""
        return isinstance(self.body, EditRequest) and self.body.dry_run

    def paths(self, cwd: str) -> list[str]:
        """Every absolute path that it would write or remove, each once; links not followed."""
        if isinstance(self.body, Patch):
            return targets(cwd, self.body)
        if isinstance(self.body, EditRequest | WriteRequest):
            named = [self.body.path]
        else:
            named = diff_paths(self.body)
        return list(dict.fromkeys(resolve(cwd, name, literal=True).path for name in named))

    def check(self, files: FileSystem, cwd: str, legacy: str | None = None) -> Checked:
        """Verify and plan it before approval is asked for. PatchError if it cannot be applied."""
        if not isinstance(self.body, Patch):
            planned = self.plan(files, cwd, legacy)
            return Checked([] if planned is None else planned.records, planned)
        view = OverlayView(files)
        records = verify(self.body, view, cwd, legacy)
        try:
            return Checked(records, plan(self.body, files, cwd, legacy, view, records))
        except PatchError:
            return Checked(records, None)

    def plan(self, files: FileSystem, cwd: str, legacy: str | None = None) -> Plan | None:
        """Plan it. None when it would change nothing; PatchError when it cannot be applied."""
        if isinstance(self.body, Patch):
            return plan(self.body, files, cwd, legacy)
        if isinstance(self.body, EditRequest):
            edits: EditPlan = plan_edits(self.body, files, cwd, legacy)
            return edits.plan
        if isinstance(self.body, WriteRequest):
            return plan_write(self.body, files, cwd, legacy)
        return plan_diff(self.body, files, cwd, legacy)


def read(value: str | Mapping[str, Any]) -> Request:
    """Parse what a model sent: raw text, or a call's arguments. PatchError names what is wrong."""
    if isinstance(value, str):
        return read_text(value)
    given = [name for name in _TEXTS if value.get(name) is not None]
    if given and is_edit(value):
        raise PatchError(f"give either {given[0]} or old_string/new_string/edits", list(FORMS))
    if is_edit(value):
        return Request("edit", from_arguments(value))
    texts = [value[name] for name in given]
    if not texts or not isinstance(texts[0], str):
        problem = f"{given[0]} must be a string" if given else "no patch was given"
        raise PatchError(problem, list(FORMS))
    if any(text != texts[0] for text in texts):
        raise PatchError("input and patch are the same field and differ", list(FORMS))
    return read_text(texts[0])


def read_text(text: str) -> Request:
    """Parse a patch text. What is in neither form gets the parse error of Codex's language."""
    if unified.looks_like_diff(text):
        return Request("unified", unified.parse(text))
    try:
        return Request("codex", grammar.parse(text))
    except ParseError as error:
        if error.line is None and text.lstrip().startswith(("{", "[", '"')):
            error.notes.append("this is JSON: send only the patch text")
        elif error.line is None and grammar.BEGIN not in text:
            error.notes += FORMS
        raise
