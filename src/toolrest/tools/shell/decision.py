"""The decision on a command, by the rules, the mode, the sandbox and earlier grants."""

from __future__ import annotations

import fnmatch
import os
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolrest.answer import Answer
from toolrest.gate.decision.decide import Decision
from toolrest.policy.grants.command_keys import RunsHow, command_keys, granted_by
from toolrest.policy.grants.key import GrantKey
from toolrest.policy.launch import Executables
from toolrest.policy.modes import Row
from toolrest.policy.verdict.outcome import (
    Granted,
    Outcome,
    Setting,
    outcome,
)
from toolrest.policy.verdict.verdict import CommandClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolrest.gate.context import Context
    from toolrest.policy.launch import Launch
    from toolrest.policy.verdict.verdict import Judgement
    from toolrest.tools.shell.command_tool import CommandCall


def _executables(launch: Launch, ctx: Context) -> Executables:
    return Executables(launch.path or "", ctx.workspace, launch.suspects)


_GRAVE: dict[str, Row] = {"dangerous": "critical", "unknown": "unread"}


def setting_of(launch: Launch, ctx: Context) -> Setting:
    """What the session and the call say, for the table."""
    return Setting(
        ctx.session.approval_policy,
        ctx.files.mode,
        network=launch.network != "off",
        permissions="require_escalated" if launch.escalated else "use_default",
    )


def decision_on(call: CommandCall) -> Decision:
    """The decision on a command line."""
    verdict, launch, ctx = call.verdict, call.launch, call.ctx
    setting = setting_of(launch, ctx)
    refused = closed(verdict, ctx, confined=launch.confined and not launch.escalated)
    if refused is not None:
        return refused
    found = outcome(verdict, ctx.session.known.rules, setting, prefix_rule=call.args.prefix_rule)
    required = found.requirement
    if required.answer == Answer.DENY:
        reason = required.reason or ""
        if required.detail:
            reason = f"{reason} ({required.detail})"
        return Decision(Answer.DENY, f"command.{_row(found)}", reason)
    if required.answer == Answer.ALLOW:
        # Only where rules allow every single command does the first attempt leave the sandbox.
        # Nor does it where a name means a file that the project or a tool has put there.
        # Nor where a command is a file that a tool can have written: a rule knows no content.
        leaves = (
            required.bypass_sandbox
            and launch.confined
            and not call.planted
            and not _executables(launch, ctx).is_writable(verdict.segments)
        )
        return Decision(Answer.ALLOW, f"command.{_row(found)}", leaves=leaves)
    return _asked(call, found, setting)


_ALWAYS = ("/dev/", "/proc/", "/tmp/", "/var/tmp/")  # noqa: S108 - the sandbox's own
"""What a confined command has for itself, whatever may be read."""
_MOST_ENTRIES = 10_000


def closed(verdict: Judgement, ctx: Context, *, confined: bool) -> Decision | None:
    """The denial of a command that names a hidden path or one outside `read_roots`, or that would
    write a protected one where no sandbox keeps it from doing so.
    """
    files = ctx.files
    for path in verdict.reads if files.read_roots is not None else ():
        rule = files.read_roots_rule(files.canonical(path))
        if rule is not None and not path.startswith(_ALWAYS):
            return Decision(Answer.DENY, "path.read", f"{path} cannot be read: {rule}")
    wild = () if confined else verdict.wild
    found = (path for pattern in wild for path in _matching(pattern))
    for path in (*verdict.reads, *verdict.writes, *found):
        rule = files.hidden_rule(path)
        if rule is not None:
            return Decision(Answer.DENY, "path.hidden", rule)
    for path in verdict.writes if files.mode == "danger-full-access" else ():
        rule = files.protected_rule(path, command=True)
        if rule is not None:
            return Decision(Answer.DENY, "path.protected", rule)
    return None


def _matching(pattern: str) -> list[str]:
    """What a wildcard in the last name finds; like a shell's, it finds a dot only by a dot."""
    folder, name = os.path.split(pattern)
    try:
        with os.scandir(folder) as listing:
            names = [entry.name for entry in islice(listing, _MOST_ENTRIES)]
    except OSError:
        return []
    names = [found for found in names if found[:1] != "." or name[:1] == "."]
    return [f"{folder}/{found}" for found in fnmatch.filter(names, name)]


def _asked(call: CommandCall, found: Outcome, setting: Setting) -> Decision:
    verdict, launch, ctx = call.verdict, call.launch, call.ctx
    required = found.requirement
    rows = [decided.row for decided in found.decided]
    leaves = launch.confined and found.leaves
    justified = call.args.justification if setting.escalated else None
    words = justified or required.reason or required.detail or "it asks to run"
    where = " (it would run outside the sandbox)" if leaves and not setting.escalated else ""
    question = Decision(
        Answer.ASK,
        f"command.{_row(found)}",
        words + where,
        leaves=leaves,
        what=next((_GRAVE[row] for row in rows if row in _GRAVE), "execute"),
        prefix=_lasting(found, required.amendment or ()),
        keys=(),
    )
    memory = ctx.session.memory
    if not memory.consults(question) or setting.mode == "auto":
        return question  # in `auto`, whatever runs something asks every time

    def real(cwds: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(ctx.files.canonical, cwds))

    def allowed(granted: Granted) -> bool:
        again = outcome(verdict, ctx.session.known.rules, setting, granted=granted)
        return again.answer == Answer.ALLOW

    # A grant for a folder does not cover the target of a link in it.
    def stored(need: GrantKey, cwds: Sequence[str]) -> bool:
        return memory.grants.covering(need, real(cwds)) is not None

    files = _executables(launch, ctx)
    suspect = leaves and files.is_writable(verdict.segments)
    kept = not suspect and not (leaves and call.planted)
    shell = launch.argv[0] if isinstance(launch.judged, str) else ""
    how = RunsHow(leaves, files.path, shell)
    if kept and allowed(granted_by(stored, how)):
        return Decision(Answer.ALLOW, "grant", "granted before", leaves=leaves)
    if suspect:
        return question  # its content may be another one next time
    keys = command_keys(found, how, workspace=ctx.workspace)
    # What is offered must be what lets the same line through next time, or it is not offered.
    offered = granted_by(lambda need, cwds: any(k.covers(need, real(cwds)) for k in keys), how)
    return replace(question, keys=keys if allowed(offered) else ())


def retry_key(call: CommandCall) -> tuple[GrantKey, ...]:
    """The grant of a command's retries outside; none where its program may change unseen."""
    verdict, launch, ctx = call.verdict, call.launch, call.ctx
    grave = verdict.worst is not None and verdict.worst.kind >= CommandClass.DANGEROUS
    suspect = _executables(launch, ctx).is_writable(verdict.segments)
    if grave or suspect or call.planted:
        return ()
    program = "" if launch.program is None else launch.program.path
    root = ctx.files.canonical(launch.cwd)
    return (GrantKey("run", launch.argv, root, exact=True, outside=True, program=program),)


def _lasting(found: Outcome, prefix: tuple[str, ...]) -> tuple[str, ...]:
    """The prefix that may become a rule: not of a command whose next word is one more file."""
    touching = {d.segment.argv for d in found.decided if d.segment.kind == CommandClass.TOUCHES}
    return () if any(argv[: len(prefix)] == prefix for argv in touching) else prefix


def _row(found: Outcome) -> str:
    """The row or rule that decided: of the strictest segments the first."""
    worst = max(found.decided, key=lambda decided: decided.decision, default=None)
    return worst.row if worst is not None else "nothing"
