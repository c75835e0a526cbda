"""`write_stdin`: type into a command that still runs, or poll it."""

from __future__ import annotations

from toolrest.answer import Answer
from toolrest.errors import RespondToModel
from toolrest.events import TerminalInteraction
from toolrest.gate.context import Context
from toolrest.gate.decision.decide import Decision
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import ExecItem, Icon, Tool, ToolQuestion
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.shell.command_tool import PRIVATE
from toolrest.tools.shell.exec_command import DEFAULT_TOKENS, answer, outputs_of

_LOOKS = ("", "\x03", "\x04")
"""Nothing, Ctrl-C and Ctrl-D: input that cannot do harm."""
_OUTSIDE = "it types into a program that runs outside the sandbox"


def _danger(chars: str, ctx: Context) -> str | None:
    """Why the input would be dangerous, or too long to judge, in a shell; else None."""
    if chars in _LOOKS:
        return None
    from toolrest.policy.verdict.command import judge
    from toolrest.policy.verdict.verdict import CommandClass

    roots = (*ctx.files.writable_roots, *PRIVATE)
    worst = judge(chars, cwd=ctx.cwd, writable_roots=roots).worst
    if worst is None or (worst.kind < CommandClass.DANGEROUS and worst.rule != "unknown.budget"):
        return None
    return f"{worst.rule}: {worst.why}"


class WriteStdin(Tool):
    """`write_stdin`. Calls on one command session run one after the other."""

    name = "write_stdin"
    group: Group = "shell"
    icon: Icon = "execute"
    exec_item: ExecItem = "command_execution"
    capability = "run commands/input"
    needs = ("shell:unified_exec",)
    description = (
        "Type characters into a command that exec_command left running, then return what it "
        "printed. Without chars it only waits and looks. Sessions started with tty=false take no "
        "input, except \\u0003 to interrupt."
    )
    typical = Effects(
        runs=(("<session>",),), serial=("exec:<session_id>",), exclusive=False, confined=True
    )
    polling = True
    slow_effects = True

    class Args(Parameters):
        """Parameters."""

        session_id: int = param(description="The number that exec_command returned.")
        chars: str = param(default="", description="What to type; \\u0003 is Ctrl-C.")
        yield_time_ms: int = param(
            default=250, ge=0, description="How long to wait for output, 250 to 30000."
        )
        max_output_tokens: int = param(
            default=DEFAULT_TOKENS, ge=0, description="How much of the output to return."
        )

    def effects(self, args: Args, ctx: Context) -> Effects:
        """The effects of what is typed; the command itself was decided on when it started."""
        outside = args.chars not in _LOOKS and ctx.runner.left_sandbox(args.session_id)
        return Effects(
            runs=(("write_stdin", str(args.session_id)),),
            serial=(f"exec:{args.session_id}",),
            exclusive=False,
            confined=not outside,
            escalates=_OUTSIDE if outside else None,
            critical=_danger(args.chars, ctx),
        )

    def decide(self, args: Args, effects: Effects, ctx: Context) -> Decision | None:
        """Allow polling or ending a command without asking: the command itself was approved."""
        if args.chars in _LOOKS and ctx.approval_policy != "strict":
            return Decision(Answer.ALLOW, "session.poll")
        return None

    def question(self, args: Args, ctx: Context) -> ToolQuestion:
        """The input, and the command that gets it."""
        return ToolQuestion(("write_stdin", str(args.session_id), args.chars))

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Type, wait, and return the output."""
        collector = outputs_of(ctx).get(args.session_id)
        # The event belongs to the command, as its begin and end do.
        started_by = ctx.runner.sessions.call_of(args.session_id)
        try:
            done = await ctx.runner.write(
                args.session_id, args.chars, yield_ms=args.yield_time_ms, on_delta=ctx.output
            )
        except RespondToModel as error:
            message = f"write_stdin failed: {error.message}"
            raise RespondToModel(message, kind=error.kind, fields=error.fields) from None
        ctx.emit(
            TerminalInteraction(
                call_id=started_by,
                process_id=str(args.session_id),
                stdin=ctx.redact(args.chars),
            )
        )
        return answer(done, args.max_output_tokens, collector)
