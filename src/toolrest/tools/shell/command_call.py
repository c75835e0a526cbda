"""`CommandCall`: one command, with its launch record, the judgement of its line and the decision.

The order of a command's life is that of the methods: it is planned and judged when it is begun,
`prepare` reads the login profile, in the sandbox even for a command that asks to leave it; `decide`
and `question` read what is known then, and `run` starts just that or raises Changed.
"""

from __future__ import annotations

import fnmatch
import os
import re
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolrest.answer import Answer
from toolrest.gate.decision.decide import Decision
from toolrest.gate.tool.call import ToolCall, ToolQuestion
from toolrest.items import JSONObject, ToolOutput
from toolrest.policy.commands.network import senders_in
from toolrest.policy.effects import Effects
from toolrest.policy.grants.command_keys import RunsHow, command_keys, granted_by
from toolrest.policy.grants.key import GrantKey
from toolrest.policy.launch import (
    Changed,
    Executables,
    GitArmed,
    Launch,
    RunFiles,
    refuse_changed,
)
from toolrest.policy.modes import Row
from toolrest.policy.paths.names import inside, unique
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.outcome import Granted, Outcome, Setting, named_outside, outcome
from toolrest.policy.verdict.path_hijack import expose_hijacks
from toolrest.policy.verdict.programs import Programs, programs_of
from toolrest.policy.verdict.verdict import CommandClass
from toolrest.policy.verdict.words import notes_of, title_of
from toolrest.running.pipeline import ANSWERS, reporting
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolrest.gate.context import Context
    from toolrest.policy.verdict.verdict import Judgement
    from toolrest.tools.shell.command_tool import CommandTool, Escalation

_GRAVE: dict[str, Row] = {"dangerous": "critical", "unknown": "unread"}
_MOST_ENTRIES = 10_000
_WILD = re.compile(r"[*?\[]")
_OWN_CODE = ("exit", "return", "false", "kill")
"""Commands that end a line with a code of its author's choice."""


class CommandCall(ToolCall):
    """A command: what it will start, what each part of its line does, and what was asked about."""

    tool: CommandTool
    launch: Launch
    """The launch record: what is judged and shown is what runs."""
    verdict: Judgement
    """The judgement of each part of the line."""
    asked_files: RunFiles = ()
    """The files that an approval is tied to besides the program: scripts of the line."""
    asked_names: tuple[str, ...] = ()
    """The protected names that an approval was asked for."""
    named: tuple[tuple[str, ...], ...] = ((), ())
    """The paths and hosts that the question said are reached outside the sandbox."""
    programs: Programs | None = None
    """The programs of the line as they were judged and shown, where it may leave the sandbox."""

    # Begin

    def __init__(
        self, tool: CommandTool, args: Escalation, ctx: Context, launch: Launch, git_armed: str
    ) -> None:
        self.args, self.ctx = args, ctx
        self.runner = ctx.session.runner()
        self.launch = self.planned = launch
        self._roots, self._git_armed = ctx.files.command_roots, git_armed
        self._judge()
        super().__init__(tool, args, ctx, self._effects())

    def _judge(self) -> None:
        launch = self.launch
        program = launch.program
        self._planted: bool | None = None
        verdict = self.verdict = judge(
            launch.judged,
            cwd=launch.cwd,
            writable_roots=self._roots,
            known_shell=program is None or not program.writable,
            shell=launch.shell,
        )
        if self._git_armed:
            verdict.arm_git(self._git_armed)
        # Commands judged harmless by name count for more where a planted file may shadow them.
        if any(segment.kind < CommandClass.RUNS for segment in verdict.segments):
            _ = self.planted

    @property
    def planted(self) -> bool:
        """Whether a planted file may shadow one of the commands; their class is raised then."""
        if self._planted is None:
            self._planted = expose_hijacks(self.verdict, self.launch)
        return self._planted

    def _effects(self) -> Effects:
        """One program, in the sandbox unless the model asks otherwise.

        Only a command that is proven to read and nothing else may share its turn.
        """
        launch, verdict = self.launch, self.verdict
        confined = launch.confined
        if confined and launch.escalated:
            return Effects(runs=(launch.argv,), escalates=self.args.justification or "")
        worst = verdict.worst
        critical = (
            f"{worst.rule}: {worst.why}" if worst and worst.kind >= CommandClass.DANGEROUS else None
        )
        looks_only = confined and verdict.kind == CommandClass.SAFE
        return Effects(
            runs=(launch.argv,),
            confined=confined,
            critical=critical,
            exclusive=False if looks_only else None,
            reads=verdict.reads if looks_only else (),
            looks=looks_only,
        )

    def again(self, changed: Changed) -> ToolCall:
        """The command, judged anew; git counts as armed where its settings name programs."""
        git_armed = str(changed) if isinstance(changed, GitArmed) else ""
        call = self.tool.begin(self.args, self.ctx, git_armed)
        if isinstance(call, CommandCall) and not self.planned.confined:
            call.take(self.launch)  # its profile was read after the decision
        return call

    def known_writes(self) -> tuple[str, ...]:
        """The paths that the command line names as written."""
        return self.verdict.writes

    def reaches(self) -> tuple[str, ...]:
        """The hosts that the command line names, and programs whose purpose is to send."""
        launch, verdict = self.launch, self.verdict
        if launch.confined and launch.network == "off" and self.effects.escalates is None:
            return ()
        return verdict.connects or senders_in(segment.argv for segment in verdict.segments)

    # Prepare

    async def prepare(self) -> None:
        """Find the kind of sandbox and whose /tmp it is; read the login profile's environment."""
        planned = self.planned
        if planned.confined:
            await self.runner.enclosure.is_weak()
        # A profile is a program: outside the sandbox it is read only after the decision, and for a
        # call that is refused not at all.
        if not planned.confined or (planned.escalated and self._is_refused()):
            return
        runner, own_tmp = self.runner, self.ctx.files.own_tmp
        named = any(inside(path, tmp) for path in self.verdict.writes for tmp in own_tmp)
        if named and not planned.escalated and not await runner.enclosure.has_own_tmp():
            self._roots = tuple(root for root in self._roots if root not in own_tmp)
            self._judge()
            self.touch(self._effects())
        try:
            settled = await runner.settle(planned, outside=False)
        except SandboxBusy as error:
            raise runner.enclosure.refusal(error) from error
        except SandboxUnavailable:
            if not planned.escalated:
                return  # the start says so, after the decision
            settled = runner.unsettled(planned)
        if self.take(settled):
            self.touch(self._effects())

    def _is_refused(self) -> bool:
        """Whether the command cannot be approved, whatever its profile says."""
        session = self.ctx.session
        silent = session.approvals.silent is not None or session.mode.name == "read-only"
        return silent or self.decide().verdict == Answer.DENY

    def take(self, settled: Launch) -> bool:
        """Put a new environment into the launch record; True when its PATH finds other programs."""
        before, self.launch = self.launch, settled
        if settled.path == before.path:
            return False
        self._planted = None
        return self.planted

    # Decide

    def decide(self) -> Decision:
        """Decide by closed paths, then by rules and mode for each part of the line, then grants.

        A write to a protected name that the sandbox does not hold is asked about whatever those say
        (but for rules and grants that let the command out of the sandbox).
        """
        launch, ctx = self.launch, self.ctx
        refused = closed(self.verdict, ctx, confined=launch.confined and not launch.escalated)
        if refused is not None:
            return refused
        decision = self._by_line()
        if decision.verdict == Answer.DENY:
            return decision
        if decision.verdict == Answer.ALLOW and decision.leaves:
            return decision
        return unlocked(self.verdict, ctx, leaves=decision.leaves) or decision

    def _by_line(self) -> Decision:
        """The decision by rules and mode for each part of the line, then by grants."""
        launch, ctx = self.launch, self.ctx
        setting = self._setting()
        if ctx.session.known.rules.by_program:
            self._executables().mark_planted(self.verdict.segments)
        found = self._outcome(setting, prefix_rule=self.args.prefix_rule)
        required = found.requirement
        if required.answer == Answer.DENY:
            reason = required.reason or ""
            if required.detail:
                reason = f"{reason} ({required.detail})"
            return Decision(Answer.DENY, f"command.{_row(found)}", reason)
        if required.answer == Answer.ALLOW:
            # Only rules for every single command let the first attempt leave the sandbox, and not
            # where a name may mean a planted file, nor where a tool can have written the program:
            # a rule knows no content.
            leaves = (
                required.bypass_sandbox
                and launch.confined
                and not self.planted
                and not self._is_suspect
            )
            if leaves:
                self._record()
            return Decision(Answer.ALLOW, f"command.{_row(found)}", leaves=leaves)
        return self._asked(found, setting)

    def _setting(self) -> Setting:
        launch, ctx = self.launch, self.ctx
        return Setting(
            ctx.session.approval_policy,
            ctx.files.mode,
            network=launch.network != "off",
            permissions="require_escalated" if launch.escalated else "use_default",
        )

    def _outcome(
        self,
        setting: Setting,
        *,
        prefix_rule: Sequence[str] | None = None,
        granted: Granted | None = None,
    ) -> Outcome:
        rules = self.ctx.session.known.rules
        return outcome(self.verdict, rules, setting, prefix_rule=prefix_rule, granted=granted)

    def _executables(self) -> Executables:
        launch = self.launch
        return Executables(launch.path or "", self.ctx.workspace, launch.suspects)

    def _record(self) -> Programs:
        """Keep the programs of the line as they are found now: `run` starts no others outside."""
        self.programs = self._found_now()
        return self.programs

    def _found_now(self) -> Programs:
        launch = self.launch
        if launch.login and launch.confined and launch is not self.planned:
            launch = replace(launch, path=None)  # its start reads the profile once more
        return programs_of(self.verdict, launch, self.ctx.workspace)

    @property
    def _is_suspect(self) -> bool:
        """Whether a tool can write a program or script of the line: another one, next time."""
        from toolrest.policy.verdict.run_files import runs_writable_script

        writable = self._executables().is_writable(self.verdict.segments)
        return writable or runs_writable_script(self.verdict, self.launch)

    def _asked(self, found: Outcome, setting: Setting) -> Decision:
        """The question with what may be granted, or ALLOW where that was granted before."""
        launch, ctx, files = self.launch, self.ctx, self._executables()
        files.mark_planted(self.verdict.segments)
        required = found.requirement
        rows = [decided.row for decided in found.decided]
        leaves = launch.confined and (found.leaves or setting.escalated)
        justified = self.args.justification if setting.escalated else None
        words = justified or required.reason or required.detail or "it asks to run"
        where = " (it would run outside the sandbox)" if leaves and not setting.escalated else ""
        tries_inside = not leaves and self._announces(setting)
        announced = []
        if tries_inside:
            reached = ", ".join(chain(*self.named))
            announced.append(f"Outside the sandbox it reaches only {reached}.")
            unsaid = [name for name in chain(*self.named) if name not in words]
            reached = f"; it reaches {', '.join(unsaid)}" if unsaid else ""
            where = f"{reached}; for that it runs outside the sandbox"
        programs = self._record()
        where += programs.words() if leaves or tries_inside else ""
        unknown = leaves and bool(programs.unknown)
        question = Decision(
            Answer.ASK,
            f"command.{_row(found)}",
            words + where,
            leaves=leaves or tries_inside,
            tries_inside=tries_inside,
            what=next((_GRAVE[row] for row in rows if row in _GRAVE), "execute"),
            prefix=() if unknown else _lasting(found, required.amendment or ()),
            keys=(),
            title=title_of(found),
            notes=(
                *notes_of(
                    found, () if setting.sandbox == "read-only" else self._roots, leaves=leaves
                ),
                *announced,
                *(programs.notes() if leaves or tries_inside else ()),
            ),
        )
        memory = ctx.session.memory
        if not memory.consults(question) or setting.mode == "auto":
            return question  # in `auto`, whatever runs something asks every time

        def real(cwds: Sequence[str]) -> tuple[str, ...]:
            return tuple(map(ctx.files.canonical, cwds))

        def allowed(granted: Granted) -> bool:
            return self._outcome(setting, granted=granted).answer == Answer.ALLOW

        # A grant for a folder does not cover the target of a link in it.
        def stored(need: GrantKey, cwds: Sequence[str]) -> bool:
            return memory.grants.covering(need, real(cwds)) is not None

        suspect = leaves and self._is_suspect
        kept = not suspect and not unknown and not (leaves and self.planted)
        shell = launch.argv[0] if isinstance(launch.judged, str) else ""
        how = RunsHow(leaves, files.path, shell)
        if kept and allowed(granted_by(stored, how)):
            return Decision(Answer.ALLOW, "grant", "granted before", leaves=leaves)
        if suspect or unknown:
            return question  # it may be another one next time, or have another content
        return replace(question, keys=self._grantable(found, setting, how))

    def _grantable(self, found: Outcome, setting: Setting, how: RunsHow) -> tuple[GrantKey, ...]:
        """The keys that let the same line through next time; none where they would not."""
        ctx = self.ctx
        keys = command_keys(found, how, workspace=ctx.workspace)

        def covers(need: GrantKey, cwds: Sequence[str]) -> bool:
            return any(key.covers(need, tuple(map(ctx.files.canonical, cwds))) for key in keys)

        again = self._outcome(setting, granted=granted_by(covers, how))
        return keys if again.answer == Answer.ALLOW else ()

    def _announces(self, setting: Setting) -> bool:
        """Whether an approval lets what the line names happen outside; `named` is that."""
        ctx, verdict = self.ctx, self.verdict
        self.named = named_outside(verdict, setting) if self.launch.confined else ((), ())
        if closed(verdict, ctx, confined=False) or any(map(self._is_kept, verdict.writes)):
            self.named = ((), ())
        return any(self.named)

    def _is_kept(self, path: str) -> bool:
        """Whether a path is hidden or protected: no announcement covers it."""
        files = self.ctx.files
        return bool(files.hidden_rule(path) or files.protected_rule(path, command=True))

    def covers_outside(self, subjects: Sequence[tuple[str, str]]) -> bool:
        """Whether all that was blocked is what the question named."""
        writes, hosts = self.named
        return bool(subjects) and all(
            subject.rpartition(":")[0] in hosts or (bool(hosts) and not subject)
            if what == "network"
            else not self._is_kept(subject) and any(inside(subject, path) for path in writes)
            for what, subject in subjects
        )

    def retry_keys(self, fingerprint: str) -> tuple[GrantKey, ...]:
        """Those of a question outside; none if a tool could have written one of its programs."""
        launch = self.launch
        worst = self.verdict.worst
        grave = worst is not None and worst.kind >= CommandClass.DANGEROUS
        if self._record().unknown or self._is_suspect or self.planted:
            return ()
        if self.effects.critical is not None or grave:
            return ()
        setting = replace(self._setting(), permissions="require_escalated")
        shell = launch.argv[0] if isinstance(launch.judged, str) else ""
        how = RunsHow(True, self._executables().path, shell)
        return self._grantable(self._outcome(setting), setting, how)

    # Ask

    def question(self) -> ToolQuestion:
        """The argument vector and the folder, with the files that an approval is tied to."""
        from toolrest.policy.verdict.run_files import run_files  # only where something is asked

        launch = self.launch
        self.asked_names = unique(
            spelling
            for path, _ in protected_writes(self.verdict, self.ctx)
            for spelling in (path, self.ctx.files.canonical(path))
        )
        files = self.asked_files = run_files(self.verdict, launch)
        found = [file for _, file in self.programs.files] if self.programs is not None else []
        started = (file for file in (launch.program, *found) if file is not None)
        files = (*dict.fromkeys((file.path, file.stamp) for file in started), *files)
        purpose = self.args.justification if launch.escalated else None
        purpose = purpose or getattr(self.args, "description", None) or ""
        return ToolQuestion(
            launch.argv, launch.cwd, purpose=purpose, parsed=self.parsed, files=files
        )

    @cached_property
    def parsed(self) -> tuple[JSONObject, ...]:
        """The purpose of each part of the command, for requests and events."""
        from toolrest.policy.commands.purpose import parsed_command  # while the program starts

        return parsed_command(self.launch.judged, self.verdict.scripts)

    # Run

    async def run(self) -> ToolOutput:
        """Run the command."""
        return await self.tool.start(self, await self._ready())

    async def _ready(self) -> Launch:
        """The launch record to start; raises Changed when it differs from what was judged."""
        ctx, runner = self.ctx, self.runner
        cwd = runner.workdir(self.args.workdir)
        # The person may have switched the sandbox off since it was planned.
        outside = ctx.outside or not (self.planned.confined and runner.is_confined)
        if not self.planned.confined and self.take(await runner.settle(self.launch, outside=True)):
            raise Changed("PATH finds other programs than were judged")
        launch, folders = self.launch, self.verdict.git_folders
        if outside and self.programs is not None:
            self.programs.refuse_others(self._found_now())
        if outside and self.planned.confined:
            launch = runner.without_profile(launch)
        if self.asked_names:
            launch = replace(launch, approved=self.asked_names)
        more: dict[str, str] = {}
        if folders:
            from toolrest.tools.shell.git_settings import disarm

            more = await disarm((cwd, *folders), ctx)
        runner.compare(launch)
        refuse_changed(self.asked_files)
        runner.count()
        launch = replace(launch, no_proof=self._no_proof())
        if pipeline := self._last_pipeline():
            start = reporting(launch.start, launch.shell)
            launch = replace(launch, start=start, pipeline=pipeline)
        return replace(launch, env={**launch.env, **more}) if more else launch

    def _last_pipeline(self) -> tuple[str, ...]:
        """The programs of the pipeline that ends the line; none where no shell reports on it."""
        launch = self.launch
        if launch.shell not in ("bash", "zsh") or not isinstance(launch.judged, str):
            return ()
        script = self.verdict.scripts.get(launch.judged)
        commands = [] if script is None or script.problems else [*script.commands]
        while commands and commands[-1].argv[:1] == ("exit",):
            commands.pop()
        if not commands or commands[-1].op != "|":
            return ()
        parts = [part for part in commands if part.group == commands[-1].group and part.argv]
        return tuple(part.argv[0].rpartition("/")[2] for part in parts)

    def _no_proof(self) -> range:
        """The exit codes that are not a program's failure, by the last command of the line."""
        last = self.verdict.segments[-1].program if self.verdict.segments else ""
        if last in _OWN_CODE:
            return range(1, 256)
        return range(1, 2) if last in ANSWERS else range(0)


def closed(verdict: Judgement, ctx: Context, *, confined: bool) -> Decision | None:
    """The denial of a command that names a hidden path or one outside `read_roots`, or that would
    write a protected one in full access.

    In a weak sandbox, as without one, a wildcard may name a hidden path.
    """
    files = ctx.files
    own = ("/dev", "/proc", *files.own_tmp)
    for path in verdict.reads if files.read_roots is not None else ():
        rule = files.read_roots_rule(files.canonical(path))
        if rule is not None and not any(inside(path, folder) for folder in own):
            return Decision(Answer.DENY, "path.read", f"{path} cannot be read: {rule}")
    held = confined and not ctx.session.runner().enclosure.weak
    found = () if held else (path for pattern in verdict.wild for path in _matching(pattern))
    for path in (*verdict.reads, *verdict.writes, *found):
        rule = files.hidden_rule(path)
        if rule is not None:
            return Decision(Answer.DENY, "path.hidden", rule)
    if files.mode == "danger-full-access":
        for _, rule in protected_writes(verdict, ctx):
            return Decision(Answer.DENY, "path.protected", rule)
    return None


def unlocked(verdict: Judgement, ctx: Context, *, leaves: bool = False) -> Decision | None:
    """The question about a write to a protected name that a weak sandbox does not hold.

    Nothing but an answer to it lets the command run: no grant, no setting, no hook's `allow`.
    """
    writes = protected_writes(verdict, ctx) if ctx.session.runner().enclosure.weak else ()
    if not writes:
        return None
    folder = f"{ctx.files.workspace}/"
    names = ", ".join(path.removeprefix(folder) for path, _ in writes)
    reason = f"it writes {names}: protected, and not locked in this weak sandbox"
    mode = ctx.session.approval_policy
    if mode in ("never", "dangerous"):
        reason = f'{reason}; approval_policy = "{mode}" never asks'
        return Decision(Answer.DENY, "path.protected", reason)
    where = " (it would run outside the sandbox)" if leaves else ""
    return Decision(
        Answer.ASK,
        "path.protected",
        reason + where,
        leaves=leaves,
        what="critical",
        keys=(),
        title=f"Change {names}?",
        notes=(
            "Protected, and not locked in this weak sandbox.",
            *(["The command runs outside the sandbox."] if leaves else []),
        ),
    )


def protected_writes(verdict: Judgement, ctx: Context) -> tuple[tuple[str, str], ...]:
    """The protected names that a command line writes, each with the rule that protects it."""
    rules = ((path, ctx.files.protected_rule(path, command=True)) for path in verdict.writes)
    return tuple((path, rule) for path, rule in rules if rule is not None)


def _matching(pattern: str) -> list[str]:
    """What a pattern's wildcards find; like a shell's, they find a dot only by a dot."""
    found, left = ["/"], _MOST_ENTRIES
    for name in pattern.strip("/").split("/"):
        if not _WILD.search(name):
            found = [os.path.join(folder, name) for folder in found]
            continue
        folders, found = found, []
        for folder in folders:
            names = _names(folder, left)
            left -= len(names)
            names = [one for one in names if one[:1] != "." or name[:1] == "."]
            found += [os.path.join(folder, one) for one in fnmatch.filter(names, name)]
    return found


def _names(folder: str, most: int) -> list[str]:
    try:
        with os.scandir(folder) as listing:
            return [entry.name for entry in islice(listing, most)]
    except OSError:
        return []


def _lasting(found: Outcome, prefix: tuple[str, ...]) -> tuple[str, ...]:
    """The prefix that may become a rule: not of a command whose next word is one more file, nor
    where a name means a file that a tool can have written.
    """
    if any(decided.segment.planted for decided in found.decided):
        return ()
    touching = {d.segment.argv for d in found.decided if d.segment.kind == CommandClass.TOUCHES}
    return () if any(argv[: len(prefix)] == prefix for argv in touching) else prefix


def _row(found: Outcome) -> str:
    """The row or rule that decided: of the strictest segments the first."""
    worst = max(found.decided, key=lambda decided: decided.decision, default=None)
    return worst.row if worst is not None else "nothing"
