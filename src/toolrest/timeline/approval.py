"""The words of an approval, for every front end: chat, page, editor, forms and plain terminals.

`approval_form` is the one place that makes them: a sentence that ends in "?", what would run, the
model's reason set apart from ours, and the answers. Front ends draw the form and invent no words.
What is shown is what will run, escaped so that it cannot deceive; what a choice stores is in
`details`, exactly.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from toolrest.gate.approval.request import ONCE, ApprovalRequest, Choice, Scope
from toolrest.gate.approval.user_questions import UserQuestion
from toolrest.items import JSONObject
from toolrest.policy.effects import Risk
from toolrest.policy.grants.key import GrantKey
from toolrest.policy.terminal_safe import display_safe
from toolrest.timeline.calls import arguments_of, command_line, file_diffs, shorter
from toolrest.timeline.cells import FileDiff
from toolrest.timeline.text import BAR, short_path, shown

STOPS = "Esc stops the turn"
DENY = "No, and say what to do instead"
_LETTERS: dict[Scope, str] = {
    "once": "y",
    "session": "s",
    "project": "p",
    "user": "a",
    "rule": "r",
}
_YES: dict[Scope, str] = {
    "once": "Yes",
    "session": "Yes, for this session",
    "project": "Yes, always in this project",
    "user": "Yes, always in every project",
    "rule": "Yes, always in every project",
}
_OTHERS = ("hook", "approvals.", "mcp_servers.")
"""Rules that ask whatever the tool itself says."""
_TOUCHES = {"write": "Writes", "run": "Runs", "connect": "Connects to", "call": "Calls"}


class AnswerOption(Struct, frozen=True):
    """One answer to choose from, as every front end words it."""

    key: str
    """The scope of the approval (`once`, `session`, …), or `deny`."""
    letter: str
    """The key on a keyboard."""
    label: str
    """Its words: `Yes, for this session`."""
    grants: str = ""
    """Exactly what choosing it allows and stores; empty for `deny`."""


class ApprovalForm(Struct, frozen=True):
    """One approval as a person reads it, top to bottom; every text is safe to show.

    Of `command`, `call`, `diff` only what the request has is filled. A front end that draws
    `files` itself (their texts are raw) may leave `diff` out; `command` keeps its line breaks.
    """

    sentence: str
    """The question, in one sentence that ends in "?"."""
    says: str
    """The model's own reason, one line: show it marked `The model says:`, in italics."""
    notes: tuple[str, ...]
    """Our reasons and facts, a sentence each: why it asks, its folder, who asks."""
    command: str
    """The command as it would be typed."""
    call: tuple[str, ...]
    """Of another call its arguments, line by line."""
    diff: str
    """The change as a unified diff."""
    files: tuple[FileDiff, ...]
    """The same for each file; empty where only the text is known. Paths are relative."""
    options: tuple[AnswerOption, ...]
    """The answers in order, numbered from 1; the last one denies."""
    more: tuple[AnswerOption, ...]
    """Answers that are offered beside the details only, by their letter."""
    is_critical: bool
    """A single key or click is not enough: let the person type `yes`."""
    details: tuple[str, ...]
    """Everything, with exactly what each answer stores: behind `e` or a fold."""

    def to_json(self) -> JSONObject:
        """The form for a front end in another process."""
        return {
            "sentence": self.sentence,
            "says": self.says,
            "notes": list(self.notes),
            "command": self.command,
            "call": list(self.call),
            "diff": self.diff,
            "files": [to_builtins(file) for file in self.files],
            "options": [to_builtins(option) for option in self.options],
            "more": [to_builtins(option) for option in self.more],
            "critical": self.is_critical,
            "details": list(self.details),
        }


def approval_form(
    request: ApprovalRequest, workspace: str = "", *, diff: bool = True
) -> ApprovalForm:
    """The form of a request; paths below `workspace` are shown without it.

    With `diff=False` the front end draws the changes itself: the details leave them out.
    """
    says, notes = _reasons(request, workspace)
    patched = bool(request.diff or request.changes)
    options, more = _options(request, workspace)
    command = "\n".join(_safe_lines(command_line(request.command))) if request.command else ""
    call = () if request.command or patched else tuple(_arguments(request))
    form = ApprovalForm(
        sentence=_sentence(request, workspace),
        says=says,
        notes=notes,
        command=command,
        call=call,
        diff="\n".join(_safe_lines(request.diff.rstrip("\n"))) if request.diff else "",
        files=_files(request, workspace),
        options=options,
        more=more,
        is_critical=request.risk >= Risk.CRITICAL,
        details=(),
    )
    return _with_details(form, request, diff=diff)


def _safe_lines(text: str) -> list[str]:
    """Lines of others' text in which nothing acts or hides."""
    return display_safe(text, keep_newlines=True).split("\n")


# The sentence


def _sentence(request: ApprovalRequest, workspace: str) -> str:
    where = " outside the sandbox" if request.leaves else ""
    if request.retry_reason and request.command:
        return "Run this command again, outside the sandbox?"
    if request.title:
        return shown(request.title)
    if request.command:
        grave = " dangerous" if request.risk >= Risk.CRITICAL else ""
        return f"Run this{grave} command{where}?"
    if request.changes:
        return _change(request, workspace)
    return f"{_action(request, workspace)}{where}?"


def _change(request: ApprovalRequest, workspace: str) -> str:
    files = file_diffs(request.changes)
    kinds = {file.kind for file in files}
    verb = {"add": "Create", "delete": "Delete"}.get(next(iter(kinds), ""), "Change")
    verb = verb if len(kinds) == 1 else "Change"
    many = f"{len(files)} files"
    name = shown(_near(files[0].path, workspace or request.cwd)) if len(files) == 1 else many
    outside = " outside the project" if request.leaves and len(files) > 1 else ""
    return f"{verb} {name}{outside}?"


def _action(request: ApprovalRequest, workspace: str) -> str:
    """The verb and object of a call that is neither a command nor a patch."""
    tool = _tool_name(request.tool)
    keys = [key.partition(":") for key in request.keys]
    if not _is_named(request):
        return f"Run {tool}"
    if keys[0][0] == "write":
        return f"Let {tool} change {shown(_near(keys[0][2], workspace or request.cwd))}"
    return f"Let {tool} connect to {', '.join(shown(rest) for _, _, rest in keys)}"


def _is_named(request: ApprovalRequest) -> bool:
    """Whether the sentence of such a call says all that it touches."""
    kinds = {key.partition(":")[0] for key in request.keys}
    return kinds == {"connect"} or (kinds == {"write"} and len(request.keys) == 1)


def _tool_name(name: str) -> str:
    if name.startswith("mcp__") and name.count("__") >= 2:
        _, server, tool = name.split("__", 2)
        return f"{shown(tool)} of the MCP server {shown(server)}"
    return shown(name)


def _near(path: str, workspace: str) -> str:
    return short_path(shorter(path, workspace))


# What would run


def _arguments(request: ApprovalRequest) -> Iterator[str]:
    """The arguments of a call by name; as they are where they are no object of JSON."""
    values = arguments_of(request.arguments)
    if not values:
        yield from _safe_lines(request.arguments) if request.arguments not in ("", "{}") else ()
    for name, value in values.items():
        plain = isinstance(value, str) and value.isprintable() and not _JSON_LIKE.match(value)
        yield shown(f"{name}: {value if plain else json.dumps(value, ensure_ascii=False)}")


_JSON_LIKE = re.compile(r'\s|["\[{\d-]|(true|false|null)$|$')


def _files(request: ApprovalRequest, workspace: str) -> tuple[FileDiff, ...]:
    root = workspace or request.cwd
    return tuple(
        FileDiff(_near(file.path, root), file.kind, file.text, _near(file.moved_to, root))
        for file in file_diffs(request.changes)
    )


# The reasons


def _reasons(request: ApprovalRequest, workspace: str) -> tuple[str, tuple[str, ...]]:
    """The model's reason, and ours."""
    says, notes = request.purpose, list(request.notes)
    if not notes or request.rule.startswith(_OTHERS):
        ours = request.reason
        if request.rule == "command.escalated" and not says:
            says, ours = ours, ""  # of a version that had the model's words here alone
        notes += _reason(request, ours)
    if request.retry_reason:
        notes.insert(0, "The sandbox stopped it the first time.")
    if request.agent:
        notes.append(f"The sub-agent {request.agent} asks.")
    notes += _touched(request, workspace)
    if request.cwd and request.command and os.path.normpath(request.cwd) != workspace:
        notes.append(f"In {_near(request.cwd, workspace)}.")
    return shown(says), tuple(map(shown, notes))


def _reason(request: ApprovalRequest, reason: str) -> Iterator[str]:
    """The gate's reason as a sentence, where the question does not say it."""
    known = request.title and request.reason.startswith(request.title)
    if request.retry_reason or known or request.rule.startswith("command.mode."):
        return
    if "unknown" in request.keys:
        yield "It may change anything: it does not say what it touches."
    elif reason.startswith("critical: "):
        yield _sentence_of(reason.removeprefix("critical: "))
    elif request.rule.startswith("hook"):
        yield f"A hook asks: {reason}"
    elif request.rule.startswith(_OTHERS):
        yield f"Your setting: {reason}."
    elif reason and not (
        (request.rule.startswith("table.") and request.keys)
        or (request.purpose and reason.startswith(request.purpose))
    ):
        yield _sentence_of(reason)


def _sentence_of(reason: str) -> str:
    words = reason.strip()
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith(('.', '?', '!')) else '.'}"


def _touched(request: ApprovalRequest, workspace: str) -> Iterator[str]:
    """What it touches besides the command, the files of the diff and what the sentence names.

    Never read off the diff's text: a changed line could pass for the name of a file.
    """
    changed = request.changes if request.diff else {}
    if not (request.title or request.command or changed) and _is_named(request):
        return
    for key in request.keys:
        kind, _, rest = key.partition(":")
        seen = (kind == "run" and request.command) or (kind == "write" and rest in changed)
        if not seen and kind not in ("unknown", "call"):
            near = _near(rest, workspace or request.cwd) if kind == "write" else rest
            yield f"{_TOUCHES.get(kind, kind)} {near}."


# The answers


def _options(
    request: ApprovalRequest, workspace: str
) -> tuple[tuple[AnswerOption, ...], tuple[AnswerOption, ...]]:
    """The answers of the short form, and those that only the details have."""
    choices = request.choices or (Choice("once", ONCE),)
    scopes = {choice.scope for choice in choices}
    options: list[AnswerOption] = []
    more: list[AnswerOption] = []
    for choice in choices:
        label = _label(choice, request, workspace)
        option = AnswerOption(choice.scope, _LETTERS[choice.scope], label, shown(choice.sentence))
        wide = choice.scope == "user" and "project" in scopes
        (more if wide else options).append(option)
    return (*options, AnswerOption("deny", "n", DENY)), tuple(more)


def _label(choice: Choice, request: ApprovalRequest, workspace: str) -> str:
    label = _YES[choice.scope]
    if choice.prefix:
        words = shlex.join(choice.prefix)
        is_whole = bool(request.command) and words == command_line(request.command)
        begins = "commands that start like this" if is_whole else f"`{shown(words)} …`"
        return f"{label}: {begins}"
    if choice.scope == "once":
        more = choice.sentence.removeprefix(ONCE).lstrip("; ")
        more = more.removesuffix(" without another question")  # the details say it
        return f"{label}: {shown(more)}" if more else label
    covers = _covers(choice, request, workspace)
    return f"{label}: {covers}" if covers else label


def _covers(choice: Choice, request: ApprovalRequest, workspace: str) -> str:
    """What a choice covers in short, where that is not just this very call."""
    keys = choice.stores
    if not keys:
        return ""
    kinds = {key.kind for key in keys}
    if kinds == {"run"}:
        return _commands(keys, choice.scope, request, workspace)
    if kinds == {"write"}:
        return "this file" if len(keys) == 1 else f"these {len(keys)} files"
    if kinds == {"connect"}:
        return f"connecting to {', '.join(shown(key.words[0]) for key in keys)}"
    if kinds <= {"call", "reach"}:
        later = " after reading from outside" if kinds == {"reach"} else ""
        names = dict.fromkeys(_tool_name(key.words[0]) for key in keys)
        return f"every call of {', '.join(names)}{later}"
    if kinds == {"tool"}:
        tool = shown(keys[0].words[0])
        return f"every call of {tool}" if len(keys[0].words) == 1 else "this very call"
    return "; ".join(shown(key.sentence()) for key in keys)


def _commands(
    keys: Sequence[GrantKey], scope: Scope, request: ApprovalRequest, workspace: str
) -> str:
    """Commands that are kept: only their beginnings are named, exact ones are those shown."""
    begins = [f"`{shown(shlex.join(key.words))} …`" for key in keys if not key.exact]
    exact = len(begins) < len(keys)
    roots = {key.root for key in keys}
    root = roots.pop() if len(roots) == 1 else ""
    if not begins and (scope != "session" or root in (request.cwd, workspace)):
        return ""
    named = ", ".join([*(["this command"] if exact else []), *begins])
    if scope != "session" or not root:
        return named
    return f"{named} in {'this folder' if root == request.cwd else _near(root, '')}"


# All of it


def describe(request: ApprovalRequest, workspace: str = "") -> Iterator[str]:
    """Everything a person needs to decide, line by line, nothing left out."""
    yield from _lines(approval_form(request, workspace))


def _lines(form: ApprovalForm, *, diff: bool = True) -> Iterator[str]:
    yield form.sentence
    if form.says:
        yield f"  The model says: {form.says}"
    yield from (f"  {note}" for note in form.notes)
    for text in (form.command, "\n".join(form.call), form.diff if diff else ""):
        if text:
            yield from (f"{BAR}{line}" for line in text.split("\n"))


def _with_details(form: ApprovalForm, request: ApprovalRequest, *, diff: bool) -> ApprovalForm:
    details = list(_lines(form, diff=diff))
    if request.command and command_line(request.command) != shlex.join(request.command):
        details.append(f"  Started as: {shown(shlex.join(request.command))}")
    details += [f"  Folder: {shown(request.cwd)}"] if request.cwd else []
    outside = ", outside the sandbox" if request.leaves and request.command else ""
    details.append(f"  Risk: {request.risk.label}{outside}")
    answers = (*form.options[:-1], *form.more)
    details += [f"  [{option.letter}] {option.grants}" for option in answers]
    return replace(form, details=tuple(details))


def request_json(request: ApprovalRequest, workspace: str = "") -> JSONObject:
    """An approval request for a front end in another process: all that a person is shown."""
    return {
        "tool": request.tool,
        "risk": request.risk.label,
        "critical": request.risk >= Risk.CRITICAL,
        "leaves": request.leaves,
        "form": approval_form(request, workspace).to_json(),
        "lines": list(describe(request)),
        "choices": [choice.to_json() for choice in request.choices],
    }


_NUMBERS = re.compile(r"\d{1,3}(?:[ ,]+\d{1,3})*", re.ASCII)


def picked_answer(text: str, question: UserQuestion) -> tuple[str, ...]:
    """The labels of the numbers that were typed, or the text itself; nothing for nothing."""
    if question.options and _NUMBERS.fullmatch(text):
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        if all(1 <= number <= len(question.options) for number in numbers):
            return tuple(question.options[number - 1].label for number in dict.fromkeys(numbers))
    return (text,) if text else ()
