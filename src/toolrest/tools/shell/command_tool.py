"""Base of the command tools: sandbox description, escalation, sandbox denials, notes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from toolrest.errors import Failure, RespondToModel, SandboxDenied
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, extra_of, param
from toolrest.gate.tool.call import ToolCall, ToolQuestion
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group, JSONObject, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.policy.launch import Changed, GitArmed, Launch, RunFiles, refuse_changed
from toolrest.sandbox.denial import ASK
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.tools.files.apply_patch import PatchCall, failed, read
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

    async def start(self, call: CommandCall, launch: Launch) -> ToolOutput:
        """Start the command."""
        raise NotImplementedError

    def begin(self, args: Any, ctx: Context, git_armed: str = "") -> ToolCall:
        """A command, or a patch that is applied by us."""
        launch = self.plan(args, ctx)
        if launch.escalated:
            self._refuse_escalation(ctx)
        patch = patch_in(launch)
        if patch is not None:
            return ShellPatchCall(self, args, ctx, *patch)
        return CommandCall(self, args, ctx, launch, git_armed)

    def _refuse_escalation(self, ctx: Context) -> None:
        """Only on-request lets a model ask to leave the sandbox, and not with every tool."""
        from toolrest.policy.verdict.outcome import escalation_refused

        refusal = escalation_refused(ctx.session.approval_policy, self.escalation_verb)
        if refusal is None and not self.may_ask_to_leave:
            refusal = f"{self.name} cannot be run outside the sandbox"
        if refusal is not None:
            raise RespondToModel(refusal, kind="policy_denied", fields=("sandbox_permissions",))

    def hook_names(self, effects: Effects) -> tuple[str, ...]:
        """Hooks see a command that applies a patch as a patch."""
        names = super().hook_names(effects)
        # Hooks' matchers know patches by the name of Codex's tool.
        return names if effects.runs else (*names, "apply_patch")

    def wrap_patch(self, text: str) -> str:
        """Put the result of a patch into this tool's layout."""
        return text


class CommandCall(ToolCall):
    """A command: what it will start, what each part of its line does, and what was asked about."""

    tool: CommandTool
    launch: Launch
    """The launch record: what is judged and shown is what runs."""
    verdict: Judgement
    """The judgement of each part of the line."""
    asked_files: RunFiles = ()
    """The files that an approval is tied to besides the program: scripts of the line."""

    def __init__(
        self, tool: CommandTool, args: Escalation, ctx: Context, launch: Launch, git_armed: str
    ) -> None:
        self.args, self.ctx = args, ctx
        self.runner = ctx.session.runner()
        self.launch = self.planned = launch
        self._judge(git_armed)
        super().__init__(tool, args, ctx, self._effects())

    def _judge(self, git_armed: str) -> None:
        from toolrest.policy.verdict.command import judge
        from toolrest.policy.verdict.verdict import CommandClass

        launch = self.launch
        program = launch.program
        self._planted: bool | None = None
        verdict = self.verdict = judge(
            launch.judged,
            cwd=launch.cwd,
            writable_roots=(*self.ctx.files.writable_roots, *PRIVATE),
            known_shell=program is None or not program.writable,
            shell=launch.shell,
        )
        if git_armed:
            verdict.arm_git(git_armed)
        # Commands judged harmless by name count for more where a planted file may shadow them.
        if any(segment.kind < CommandClass.RUNS for segment in verdict.segments):
            _ = self.planted

    @property
    def planted(self) -> bool:
        """Whether a planted file may shadow one of the commands; their class is raised then."""
        if self._planted is None:
            from toolrest.policy.verdict.path_hijack import expose_hijacks

            self._planted = expose_hijacks(self.verdict, self.launch)
        return self._planted

    def _effects(self) -> Effects:
        """One program, in the sandbox unless the model asks otherwise.

        Only a command that is proven to read and nothing else may share its turn.
        """
        from toolrest.policy.verdict.verdict import CommandClass

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
        return self.tool.begin(self.args, self.ctx, git_armed)

    def known_writes(self) -> tuple[str, ...]:
        """The paths that the command line names as written."""
        return self.verdict.writes

    def reaches(self) -> tuple[str, ...]:
        """The hosts that the command line names, and programs whose purpose is to send."""
        launch, verdict = self.launch, self.verdict
        if launch.confined and launch.network == "off" and self.effects.escalates is None:
            return ()
        from toolrest.policy.commands.network import senders_in

        return verdict.connects or senders_in(segment.argv for segment in verdict.segments)

    def decide(self) -> Decision:
        """Decide by what the command line does."""
        from toolrest.tools.shell.decision import decision_on

        return decision_on(self)

    def retry_keys(self, fingerprint: str) -> tuple[GrantKey, ...]:
        """The key of exactly this command here; none if a tool could have written its program."""
        if self.effects.critical is not None:
            return ()
        from toolrest.tools.shell.decision import retry_key

        return retry_key(self)

    def question(self) -> ToolQuestion:
        """The argument vector and the folder, with the files that an approval is tied to."""
        from toolrest.policy.verdict.run_files import run_files

        launch = self.launch
        files = self.asked_files = run_files(self.verdict, launch)
        if launch.program is not None:
            files = ((launch.program.path, launch.program.stamp), *files)
        purpose = getattr(self.args, "description", None) or ""
        return ToolQuestion(
            launch.argv, launch.cwd, purpose=purpose, parsed=self.parsed, files=files
        )

    @cached_property
    def parsed(self) -> tuple[JSONObject, ...]:
        """The purpose of each part of the command, for requests and events."""
        from toolrest.policy.commands.purpose import parsed_command

        return parsed_command(self.launch.judged, self.verdict.scripts)

    async def prepare(self) -> None:
        """Read the login profile that sets the command's environment."""
        # A profile is a program: outside the sandbox it is read only after the decision.
        if not self.planned.confined or self.planned.escalated:
            return
        runner = self.runner
        try:
            settled = await runner.settle(self.planned, outside=False)
        except SandboxBusy as error:
            raise runner.enclosure.refusal(error) from error
        except SandboxUnavailable:
            return  # the start says so, after the decision
        if self._settle(settled):
            self.touch(self._effects())

    def _settle(self, settled: Launch) -> bool:
        """Put a new environment into the launch record; True when its PATH finds other programs."""
        before, self.launch = self.launch, settled
        if settled.path == before.path:
            return False
        self._planted = None
        return self.planted

    async def run(self) -> ToolOutput:
        """Run the command."""
        launch = await self._ready()
        try:
            return await self.tool.start(self, launch)
        except SandboxDenied as denied:
            raise _without_advice(denied, self.ctx) from None

    async def _ready(self) -> Launch:
        """The launch record to start; raises Changed when it differs from what was judged."""
        ctx, runner = self.ctx, self.runner
        cwd = runner.workdir(self.args.workdir)
        # The person may have switched the sandbox off since it was planned.
        outside = ctx.outside or not (self.planned.confined and runner.is_confined)
        if outside and self._settle(await runner.settle(self.planned, outside=True)):
            raise Changed("outside the sandbox PATH finds other programs than were judged")
        launch, folders = self.launch, self.verdict.git_folders
        more: dict[str, str] = {}
        if folders:
            from toolrest.tools.shell.git_settings import disarm

            more = await disarm((cwd, *folders), ctx)
        runner.compare(launch)
        refuse_changed(self.asked_files)
        runner.count()
        return replace(launch, env={**launch.env, **more}) if more else launch


class ShellPatchCall(PatchCall):
    """A command that is a patch: it is judged, shown and applied as one."""

    tool: CommandTool

    def present(self, output: ToolOutput) -> ToolOutput:
        """The result of the patch in the tool's layout."""
        output.content = self.tool.wrap_patch(output.text)
        output.notes.append(f"apply_patch was requested via {self.tool.name}; use the tool itself")
        return output


def patch_in(launch: Launch) -> tuple[Request, str] | None:
    """The patch that a command is, and the folder that its paths start from; or None.

    RespondToModel when it is a broken one.
    """
    text = "\n".join(launch.argv)
    if not any(mark in text for mark in _PATCH_MARKS):
        return None
    from toolrest.patch.errors import PatchError
    from toolrest.patch.forms.shell_command import recognise

    try:
        found = recognise(launch.argv)
    except PatchError as error:
        raise failed(error) from None
    return None if found is None else (read(found.text), found.cwd(launch.cwd))


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
