"""A hook as a program: the user's own, unconfined, without secrets, with a time limit.

Its standard output is its reply; one that is not understood is an error, never an approval.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from toolrest.answer import Answer
from toolrest.errors import ConfigError, ToolrestError
from toolrest.items import JSONObject
from toolrest.mcp.sources import is_by_name, kind_of
from toolrest.own_code import child_environment
from toolrest.process.command import Command
from toolrest.process.shells.environment import EnvironmentPolicy, build

if TYPE_CHECKING:
    from toolrest.policy.paths.policy import PathPolicy
    from toolrest.process.owner import Owner
    from toolrest.process.run import RunResult


HookEvent: TypeAlias = Literal[
    "PreToolUse", "PostToolUse", "PermissionRequest", "SessionStart", "Stop"
]
_SPELLINGS = {
    "allow": Answer.ALLOW,
    "approve": Answer.ALLOW,
    "deny": Answer.DENY,
    "block": Answer.DENY,
    "ask": Answer.ASK,
}


class BadReply(ValueError):
    """A hook's output that is not a valid reply."""


class HookReply(Struct, frozen=True):
    """A hook's reply. An empty one means: go on."""

    choice: Answer | None = None
    reason: str = ""
    updated_input: JSONObject | None = None
    updated_output: str | None = None
    context: str = ""
    notice: str = ""
    """A message for the user, not the model."""
    ends_turn: bool = False


def read_reply(event: HookEvent, stdout: str) -> HookReply:
    """The reply in a hook's output; BadReply when it is not valid."""
    text = stdout.strip()
    if not text:
        return HookReply()
    if event == "SessionStart" and not text.startswith("{"):
        return HookReply(context=text)
    fields = _ReplyFields(_object(text), event)
    ends_turn = fields.flag("continue", default=True) is False or fields.interrupts
    choice = fields.choice
    if ends_turn and choice is None:
        choice = Answer.DENY
    return HookReply(
        choice,
        fields.text("permissionDecisionReason", "reason", "message", "stopReason"),
        fields.table("updatedInput", "updated_input"),
        fields.optional("updatedToolOutput", "updated_output"),
        fields.text("additionalContext", "additional_context"),
        fields.text("systemMessage"),
        ends_turn,
    )


def _object(text: str) -> JSONObject:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadReply(f"its output is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadReply("its output is not a JSON object")
    return value


class _ReplyFields:
    """The fields of a reply, in either of the two dialects; a wrong type is an error."""

    def __init__(self, value: JSONObject, event: HookEvent) -> None:
        inner = value.get("hookSpecificOutput") or {}
        if not isinstance(inner, dict):
            raise BadReply("`hookSpecificOutput` is not an object")
        named = inner.get("hookEventName", event)
        if named != event:
            raise BadReply(f"`hookEventName` is {named!r}, but the event is {event}")
        decisions = (place.get("decision") for place in (inner, value))
        self._places = [*(d for d in decisions if isinstance(d, dict)), inner, value]

    def _find(self, *names: str) -> tuple[str, Any]:
        for place in self._places:
            for name in names:
                if place.get(name) is not None:
                    return name, place[name]
        return names[0], None

    def optional(self, *names: str) -> str | None:
        name, value = self._find(*names)
        if value is not None and not isinstance(value, str):
            raise BadReply(f"`{name}` is not a text")
        return value

    def text(self, *names: str) -> str:
        return self.optional(*names) or ""

    def flag(self, name: str, *, default: bool) -> bool:
        _, value = self._find(name)
        if value is not None and not isinstance(value, bool):
            raise BadReply(f"`{name}` is not true or false")
        return default if value is None else value

    def table(self, *names: str) -> JSONObject | None:
        name, value = self._find(*names)
        if value is not None and not isinstance(value, dict):
            raise BadReply(f"`{name}` is not an object")
        return value

    @property
    def interrupts(self) -> bool:
        return self.flag("interrupt", default=False)

    @property
    def choice(self) -> Answer | None:
        """The strictest of the answers, in any of their spellings."""
        found: list[Answer] = []
        for place in self._places:
            for name in ("permissionDecision", "behavior", "decision"):
                value = place.get(name)
                if value is None or isinstance(value, dict):
                    continue
                if not isinstance(value, str) or value not in _SPELLINGS:
                    raise BadReply(f"`{name}` is {value!r}, not one of allow, deny, ask")
                found.append(_SPELLINGS[value])
        return max(found, default=None)


OnError: TypeAlias = Literal["block", "continue", "ask"]

_BLOCK = 2
_MOST_OUTPUT = 256 * 1024
_MOST_REASON = 2000
_SCRIPTS = (
    ".py",
    ".sh",
    ".bash",
    ".zsh",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".rb",
    ".pl",
    ".php",
    ".lua",
)


class Hook(Struct, frozen=True):
    """A program that is run at an event, for the tools that its matcher names."""

    event: HookEvent
    command: tuple[str, ...]
    matcher: str = "*"
    timeout: float = 60.0
    on_error: OnError = "block"

    @property
    def label(self) -> str:
        """The hook's name in messages."""
        return f"{self.event} hook `{' '.join(self.command)[:200]}`"

    def matches(self, names: Iterable[str]) -> bool:
        """Whether the matcher matches one of a call's names, as a regex or a glob, in any case.

        A guard that is silently never run is worse than one that is run too often.
        """
        glob = self.matcher.lower()
        return any(fnmatchcase(name.lower(), glob) or self._regex_matches(name) for name in names)

    def _regex_matches(self, name: str) -> bool:
        try:
            return re.fullmatch(self.matcher, name, re.IGNORECASE) is not None
        except re.error:
            return False  # then it is a glob


class HookResult(Struct, frozen=True):
    """The result of running a hook: its reply, or what was wrong with it."""

    reply: HookReply
    problem: str | None = None
    exit_code: int | None = None
    duration: float = 0.0


class HookPrograms:
    """The runner of hooks. The helper process that owns them is started with the first one."""

    def __init__(self, cwd: str, env: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._env = dict(env)
        self._owner: Owner | None = None

    async def run(self, hook: Hook, payload: JSONObject) -> HookResult:
        """Run it to its end or its time limit; never raises for anything the hook does."""
        from toolrest.process.run import run

        if self._owner is None:
            from toolrest.process.owner import Owner

            self._owner = Owner()
        data = json.dumps(payload, default=str).encode("utf-8", "replace")
        env = without_modules_here(hook.command, self._env)
        command = Command(hook.command, self._cwd, env, files=((0, data),))
        try:
            ran = await run(self._owner, command, time_limit=hook.timeout, limit=_MOST_OUTPUT)
        except ToolrestError as error:
            return HookResult(HookReply(), str(error))
        return _judged(hook, ran)

    async def aclose(self) -> None:
        """End what hooks left running."""
        if self._owner is not None:
            await self._owner.aclose()


def _judged(hook: Hook, ran: RunResult) -> HookResult:
    code, seconds = ran.exit_code, ran.duration
    if ran.state == "failed_to_start":
        return HookResult(HookReply(), ran.error or "it could not be started", None, seconds)
    if ran.timed_out:
        return HookResult(HookReply(), f"it did not end within {hook.timeout:g} s", code, seconds)
    reason = ran.stderr.strip()[:_MOST_REASON]
    if ran.state == "exited" and code == _BLOCK:
        return HookResult(
            HookReply(Answer.DENY, reason or "it gave no reason"), None, code, seconds
        )
    if ran.state != "exited" or code != 0:
        how = f"signal {ran.signal} ended it" if ran.signal else f"it exited with {code}"
        return HookResult(HookReply(), f"{how}{f': {reason}' if reason else ''}", code, seconds)
    if ran.stdout_piece.omitted:
        problem = f"it printed more than {_MOST_OUTPUT // 1024} KiB"
        return HookResult(HookReply(), problem, code, seconds)
    try:
        return HookResult(read_reply(hook.event, ran.stdout), None, code, seconds)
    except BadReply as error:
        return HookResult(HookReply(), str(error), code, seconds)


def hook_environment(
    environ: Mapping[str, str], files: PathPolicy, exclude: tuple[str, ...] = ()
) -> dict[str, str]:
    """The user's variables without secrets, and none that could bring a tool's code or program."""
    variables = build(EnvironmentPolicy(exclude=exclude), environ).variables
    env = child_environment(variables, files.tool_roots)
    env["PATH"] = os.pathsep.join(_safe_path(env.get("PATH", os.defpath), files))
    env["TOOLREST_PROJECT_DIR"] = files.workspace
    return env


def without_modules_here(argv: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Variables for a program that runs in the workspace: `python -m` finds no module there."""
    by_name = kind_of(argv) == "python" and is_by_name(argv)
    return {**env, **({"PYTHONSAFEPATH": "1"} if by_name else {})}


def _safe_path(path: str, files: PathPolicy) -> list[str]:
    entries = [entry for entry in path.split(os.pathsep) if entry.startswith("/")]
    if files.mode == "danger-full-access":
        return entries
    return [entry for entry in entries if not _is_writable(entry, files)]


def refuse_unsafe(hooks: Sequence[Hook], files: PathPolicy) -> None:
    """Raise ConfigError for a hook that a tool or a cloned project could replace.

    With full access tools can rewrite everything, and there is no sandbox to leave.
    """
    for hook in hooks:
        refuse_program(f"hooks.{hook.event}", hook.command, files)


def refuse_program(setting: str, argv: Sequence[str], files: PathPolicy) -> None:
    """The same for one program that the user's settings name."""
    named = any(os.path.isfile(word) for word in argv[1:])
    kind = kind_of(argv) if files.mode != "danger-full-access" else None
    alone = named and ("--script" in argv or "--no-project" in argv)  # as uv has it
    if kind == "fetched" or (kind == "project" and not alone) or (kind == "node" and not named):
        raise ConfigError(
            f"{setting}: {argv[0]} runs files of the workspace, where tools may write; "
            "name a program or a script outside of it"
        )
    for index, word in enumerate(argv):
        path = os.path.join(files.workspace, word)
        reason = _unsafe(word, path, index == 0, files)
        if reason is not None:
            raise ConfigError(f"{setting}: {word}: {reason}")


def _unsafe(word: str, path: str, first: bool, files: PathPolicy) -> str | None:
    absolute = os.path.isabs(word)
    if first and not absolute and "/" not in word:
        return None  # looked up on the PATH of `hook_environment`
    if not (first or _is_program(path)):
        return None
    if not absolute:
        return "a project could bring its own; write the whole path, or start it with ~/"
    if files.mode != "danger-full-access" and _is_writable(path, files):
        return (
            "tools may write there, so a model could change what it does; "
            "keep it in a .toolrest folder or outside of the workspace"
        )
    return None


def _is_program(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    return path.endswith(_SCRIPTS) or os.access(path, os.X_OK)


def _is_writable(path: str, files: PathPolicy) -> bool:
    return files.write_denied(path) is None
