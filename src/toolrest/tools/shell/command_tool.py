"""Base of the command tools: sandbox description, escalation, sandbox denials, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolrest.errors import Failure, RespondToModel, SandboxDenied
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, extra_of, param
from toolrest.gate.tool.tool import ExecItem, Icon, Tool, ToolQuestion
from toolrest.items import Group, JSONObject, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.policy.launch import Changed, GitArmed, Launch, RunFiles, refuse_changed
from toolrest.sandbox.denial import ASK
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.tools.files.apply_patch import (
    apply,
    failed,
    patch_effects,
    patch_question,
    prepare_patch,
    read,
)
from toolrest.tools.shell.sandbox_description import SandboxDescription

if TYPE_CHECKING:
    from toolrest.gate.decision.decide import Decision
    from toolrest.gate.output.collector import CollectedOutput
    from toolrest.gate.session import Ground
    from toolrest.patch.request import Request
    from toolrest.policy.grants.key import GrantKey
    from toolrest.policy.verdict.verdict import Judgement

Permissions: TypeAlias = Literal["use_default", "require_escalated"]

PRIVATE = ("/tmp", "/var/tmp")  # noqa: S108 - the sandbox gives every session its own
_PATCH_MARKS = ("apply_patch", "applypatch", "*** Begin Patch")


class Escalation(Parameters):
    """Parameters of every tool that runs commands."""

    justification: str | None = param(
        default=None,
        description="With require_escalated: the question for the user, in one sentence.",
    )
    prefix_rule: list[str] | None = param(
        default=None,
        description="With require_escalated: the first words of such commands that need not be "
        "asked about again.",
    )

    def asks_to_leave(self) -> bool:
        """Whether the model wants this run outside the sandbox."""
        return getattr(self, "sandbox_permissions", None) == "require_escalated" or bool(
            extra_of(self).get("with_escalated_permissions")
        )


def command_effects(launch: Launch, args: Escalation, verdict: Judgement) -> Effects:
    """The effects of a command: one program, in the sandbox unless the model asks otherwise.

    Only a command that is proven to read and nothing else may share its turn.
    """
    from toolrest.policy.verdict.verdict import CommandClass

    confined = launch.confined
    if confined and launch.escalated:
        return Effects(runs=(launch.argv,), escalates=args.justification or "")
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


class CommandTool(Tool):
    """Base class of tools that run commands. One that only applies a patch is run as a patch."""

    group: Group = "shell"
    capability = "run commands"
    icon: Icon = "execute"
    exec_item: ExecItem = "command_execution"
    may_ask_to_leave = True
    slow_effects = True
    introduction = ""
    escalation_verb = "should not"
    """The verb in the refusal of a mode that cannot ask; Codex has one for each tool."""

    def __init__(self, surroundings: SandboxDescription) -> None:
        self.description = self.introduction + surroundings.words()

    @classmethod
    def build(cls, ground: Ground) -> Tool:
        """Make the tool, with the session's sandbox in its description."""
        return cls(SandboxDescription.of(ground))

    def plan(self, args: Any, ctx: Context) -> Launch:
        """Plan what the call will start."""
        raise NotImplementedError

    def launch(self, args: Any, ctx: Context) -> Launch:
        """The launch record, made once a call: what is judged and shown is what runs."""
        found: Launch | None = ctx.memo.get("launch")
        if found is None:
            found = ctx.memo["launch"] = ctx.memo["planned"] = self.plan(args, ctx)
        return found

    def _patch_once(self, args: Any, ctx: Context) -> PatchCall | None:
        """The patch that the command applies, if it is one; read once a call."""
        memo = ctx.memo
        if "patch" not in memo:
            memo["patch"] = patch_in(self.launch(args, ctx))
        found: PatchCall | None = memo["patch"]
        return found

    async def start(self, launch: Launch, args: Any, ctx: Context) -> ToolOutput:
        """Start the command."""
        raise NotImplementedError

    def effects(self, args: Any, ctx: Context) -> Effects:
        """Runs one program, or writes the files of a patch."""
        launch = self.launch(args, ctx)
        if launch.escalated:
            self._refuse_escalation(ctx)
        patch = self._patch_once(args, ctx)
        if patch is not None:
            return patch_effects(patch.request, patch.cwd, ctx)
        return command_effects(launch, args, self.verdict(args, ctx))

    def _refuse_escalation(self, ctx: Context) -> None:
        """Only on-request lets a model ask to leave the sandbox, and not with every tool."""
        from toolrest.policy.verdict.outcome import escalation_refused

        refusal = escalation_refused(ctx.session.approval_policy, self.escalation_verb)
        if refusal is None and not self.may_ask_to_leave:
            refusal = f"{self.name} cannot be run outside the sandbox"
        if refusal is not None:
            raise RespondToModel(refusal, kind="policy_denied", fields=("sandbox_permissions",))

    def verdict(self, args: Any, ctx: Context) -> Judgement:
        """The judgement of each part of the command; made once a call."""
        found: Judgement | None = ctx.memo.get("verdict")
        if found is None:
            from toolrest.policy.verdict.command import judge
            from toolrest.tools.shell.decision import expose

            launch = self.launch(args, ctx)
            program = launch.program
            found = judge(
                launch.judged,
                cwd=launch.cwd,
                writable_roots=(*ctx.files.writable_roots, *PRIVATE),
                known_shell=program is None or not program.writable,
                shell=launch.shell,
            )
            changed = ctx.memo.get("changed")
            if isinstance(changed, GitArmed):
                found.arm_git(str(changed))
            expose(found, launch, ctx)
            ctx.memo["verdict"] = found
        return found

    def known_writes(self, args: Any, effects: Effects, ctx: Context) -> tuple[str, ...]:
        """The paths that the command line names as written."""
        return self.verdict(args, ctx).writes if effects.runs else ()

    def reaches(self, args: Any, effects: Effects, ctx: Context) -> tuple[str, ...]:
        """The hosts that the command line names, and programs whose purpose is to send."""
        if not effects.runs:
            return super().reaches(args, effects, ctx)
        launch = self.launch(args, ctx)
        if launch.confined and launch.network == "off" and effects.escalates is None:
            return ()
        from toolrest.policy.commands.network import senders_in

        verdict = self.verdict(args, ctx)
        return verdict.connects or senders_in(segment.argv for segment in verdict.segments)

    def decide(self, args: Any, effects: Effects, ctx: Context) -> Decision | None:
        """Decide by what the command line does; a patch is decided like any write."""
        if not effects.runs:
            return None
        from toolrest.tools.shell.decision import decision_on

        return decision_on(self.verdict(args, ctx), self.launch(args, ctx), args, ctx)

    def retry_keys(
        self, args: Any, effects: Effects, fingerprint: str, ctx: Context
    ) -> tuple[GrantKey, ...]:
        """The key of exactly this command here; none if a tool could have written its program."""
        if not effects.runs or effects.critical is not None:
            return ()
        from toolrest.tools.shell.decision import retry_key

        return retry_key(self.verdict(args, ctx), self.launch(args, ctx), ctx)

    def hook_names(self, effects: Effects) -> tuple[str, ...]:
        """Hooks see a command that applies a patch as a patch."""
        names = super().hook_names(effects)
        # Hooks' matchers know patches by the name of Codex's tool.
        return names if effects.runs else (*names, "apply_patch")

    def question(self, args: Any, ctx: Context) -> ToolQuestion:
        """The argument vector and the folder, or the patch as a diff."""
        patch = self._patch_once(args, ctx)
        if patch is not None:
            return patch_question(patch.cwd, ctx)
        launch = self.launch(args, ctx)
        purpose = getattr(args, "description", None) or ""
        return ToolQuestion(
            launch.argv,
            launch.cwd,
            purpose=purpose,
            parsed=self.parsed(args, ctx),
            files=self._asked_files(launch, args, ctx),
        )

    def _asked_files(self, launch: Launch, args: Any, ctx: Context) -> RunFiles:
        """The files that an approval is tied to: the program, and scripts of the command line."""
        from toolrest.policy.verdict.run_files import run_files

        found = ctx.memo["asked_files"] = run_files(self.verdict(args, ctx), launch)
        program = launch.program
        return found if program is None else ((program.path, program.stamp), *found)

    def parsed(self, args: Any, ctx: Context) -> tuple[JSONObject, ...]:
        """The purpose of each part of the command, for requests and events; made once a call."""
        found: tuple[JSONObject, ...] | None = ctx.memo.get("parsed")
        if found is None:
            from toolrest.policy.commands.purpose import parsed_command

            scripts = self.verdict(args, ctx).scripts
            found = ctx.memo["parsed"] = parsed_command(self.launch(args, ctx).judged, scripts)
        return found

    async def prepare(self, args: Any, ctx: Context) -> Effects | None:
        """Verify a patch; for a command, read the login profile that sets its environment."""
        patch = self._patch_once(args, ctx)
        if patch is not None:
            await prepare_patch(patch.request, patch.cwd, ctx)
            return None
        planned: Launch = ctx.memo["planned"]
        # A profile is a program: outside the sandbox it is read only after the decision.
        if planned.confined and not planned.escalated:
            runner = ctx.session.runner()
            try:
                settled = await runner.settle(planned, outside=False)
            except SandboxBusy as error:
                raise runner.enclosure.refusal(error) from error
            except SandboxUnavailable:
                return None  # the start says so, after the decision
            if self._settle(settled, args, ctx):
                return self.effects(args, ctx)
        return None

    def _settle(self, settled: Launch, args: Any, ctx: Context) -> bool:
        """Put a new environment into the launch record; True when its PATH finds other programs."""
        from toolrest.tools.shell.decision import path_hijack

        before = self.launch(args, ctx)
        ctx.memo["launch"] = settled
        if settled.path == before.path:
            return False
        ctx.memo.pop("path_hijack", None)
        return path_hijack(self.verdict(args, ctx), settled, ctx)

    async def _ready(self, args: Any, ctx: Context) -> Launch:
        """The launch record to start; raises Changed when it differs from what was judged."""
        runner = ctx.session.runner()
        cwd = runner.workdir(args.workdir)
        planned: Launch = ctx.memo["planned"]
        # The person may have switched the sandbox off since it was planned.
        if ctx.outside or not (planned.confined and runner.is_confined):
            settled = await runner.settle(planned, outside=True)
            if self._settle(settled, args, ctx):
                raise Changed("outside the sandbox PATH finds other programs than were judged")
        launch = self.launch(args, ctx)
        folders = self.verdict(args, ctx).git_folders
        more: dict[str, str] = {}
        if folders:
            from toolrest.tools.shell.git_settings import disarm

            more = await disarm((cwd, *folders), ctx)
        runner.compare(launch)
        refuse_changed(ctx.memo.get("asked_files", ()))
        runner.count()
        return replace(launch, env={**launch.env, **more}) if more else launch

    async def run(self, args: Any, ctx: Context) -> ToolOutput:
        """Run the command, or apply its patch."""
        patch = self._patch_once(args, ctx)
        if patch is None:
            launch = await self._ready(args, ctx)
            try:
                return await self.start(launch, args, ctx)
            except SandboxDenied as denied:
                raise _without_advice(denied, ctx) from None
        output = await ctx.in_thread(apply, patch.request, patch.cwd, ctx)
        output.content = self.wrap_patch(output.text)
        output.notes.append(f"apply_patch was requested via {self.name}; use the tool itself")
        return output

    def wrap_patch(self, text: str) -> str:
        """Put the result of a patch into this tool's layout."""
        return text


class PatchCall(Struct, frozen=True):
    """A patch in a command, and the folder that its paths start from."""

    request: Request
    cwd: str


def patch_in(launch: Launch) -> PatchCall | None:
    """The patch that a command is, or None; RespondToModel when it is a broken one."""
    text = "\n".join(launch.argv)
    if not any(mark in text for mark in _PATCH_MARKS):
        return None
    from toolrest.patch.errors import PatchError
    from toolrest.patch.forms.shell_command import recognise

    try:
        found = recognise(launch.argv)
    except PatchError as error:
        raise failed(error) from None
    if found is None:
        return None
    return PatchCall(read(found.text), found.cwd(launch.cwd))


def finish(
    text: str,
    *,
    code: int | None,
    signal: int | None = None,
    timed_out: bool = False,
    backend: str,
    notes: list[str],
    blocked: str | None,
    collected: CollectedOutput | None = None,
) -> ToolOutput:
    """The output of a command; SandboxDenied when the sandbox is what stopped it.

    A command that ended badly is a failure of the call: its kind is for events, audit and the
    wires that have a place for it, and the text is the same.
    """
    metadata: dict[str, Any] = {"exit_code": code, "sandbox": backend}
    failure = None
    if signal is None and backend == "bubblewrap" and code is not None and 128 < code <= 192:
        signal = code - 128  # as bubblewrap, like a shell, passes it on
    if timed_out:
        failure = Failure("timed_out", "the command timed out")
    elif signal is not None:
        metadata["signal"] = signal
        failure = Failure("execution_failed", f"the command was ended by signal {signal}")
    elif code:
        failure = Failure("execution_failed", f"the command ended with exit code {code}")
    if collected is not None:
        metadata["collected"] = collected.summary()
    output = ToolOutput(text, failure is None, failure, metadata=metadata, notes=notes)
    if blocked is not None:
        output.success = False
        output.failure = Failure("sandbox_denied", blocked)
        output.notes.append(blocked)
        raise SandboxDenied(blocked, output)
    return output


def _without_advice(denied: SandboxDenied, ctx: Context) -> SandboxDenied:
    """Drop the advice to ask for escalation where the mode does not let a model ask."""
    output = denied.output
    if ctx.session.approval_policy == "on-request" or not isinstance(output, ToolOutput):
        return denied
    output.notes = [note.removesuffix(f"; {ASK}") for note in output.notes]
    message = denied.message.removesuffix(f"; {ASK}")
    output.failure = Failure("sandbox_denied", message)
    return SandboxDenied(message, output)


def withheld_notes(withheld: tuple[str, ...], text: str) -> list[str]:
    """A note on withheld variables that the failing command's output names."""
    named = [name for name in withheld if name in text]
    if not named:
        return []
    return [f"withheld from the command: {', '.join(named[:8])} (shell_environment_policy)"]
