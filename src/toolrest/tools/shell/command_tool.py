"""Base of the command tools: sandbox description, escalation, sandbox denials, notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from toolrest.errors import Failure, RespondToModel, SandboxDenied
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, extra_of, param
from toolrest.gate.tool.call import ToolCall
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.policy.launch import Launch
from toolrest.policy.verdict.outcome import escalation_refused
from toolrest.tools.files.apply_patch import ApplyPatch, PatchCall, failed, read
from toolrest.tools.shell.command_call import CommandCall
from toolrest.tools.shell.sandbox_description import SandboxDescription

if TYPE_CHECKING:
    from toolrest.gate.output.collector import CollectedOutput
    from toolrest.gate.session import Ground
    from toolrest.patch.request import Request
    from toolrest.sandbox.denial import Denied

Permissions: TypeAlias = Literal["use_default", "require_escalated"]

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
            if ApplyPatch.name not in ctx.session.registry:
                off = f"{ApplyPatch.name} is switched off here, in commands too"
                raise RespondToModel(off, kind="policy_denied")
            return ShellPatchCall(self, args, ctx, *patch)
        return CommandCall(self, args, ctx, launch, git_armed)

    def _refuse_escalation(self, ctx: Context) -> None:
        """Some modes let a model ask to leave the sandbox, and not with every tool."""
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
    blocked: Denied | None,
    advice: str,
    collected: CollectedOutput | None = None,
) -> ToolOutput:
    """The output of a command; SandboxDenied when the sandbox is what stopped it.

    `advice` follows the sentence on what was `blocked`.

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
        words = blocked.words + advice
        output.notes.append(words)
        if blocked.shown:
            said = blocked.words.replace(f"the sandbox ({backend})", "the sandbox", 1)
            output.success = False
            output.failure = Failure("sandbox_denied", words, said=said)
            raise SandboxDenied(words, output, blocked.subjects, ended_well=code == 0)
    return output


def way_out(ctx: Context, tool: str = "") -> str:
    """Tell how to ask for a run outside the sandbox; nothing where that would be refused."""
    session = ctx.session
    silent = session.approvals.silent is not None or session.mode.name == "read-only"
    if silent or escalation_refused(session.approval_policy, "cannot") is not None:
        return ""
    again = f"{tool} again" if tool else "again"
    asked = 'sandbox_permissions="require_escalated" and a justification'
    return f"; to run it outside, call {again} with {asked}"


def withheld_notes(withheld: tuple[str, ...], text: str) -> list[str]:
    """A note on withheld variables that the failing command's output names."""
    named = [name for name in withheld if name in text]
    if not named:
        return []
    return [f"withheld from the command: {', '.join(named[:8])} (shell_environment_policy)"]
