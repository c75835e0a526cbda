"""`write_stdin`: type into a command that still runs, or poll it."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from toolrest.answer import Answer
from toolrest.errors import RespondToModel
from toolrest.events import TerminalInteraction
from toolrest.gate.context import Context
from toolrest.gate.decision.decide import Decision
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.call import ToolCall, ToolQuestion
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.shell.command_call import closed, unlocked
from toolrest.tools.shell.command_tool import way_out
from toolrest.tools.shell.exec_command import DEFAULT_TOKENS, answer

if TYPE_CHECKING:
    from toolrest.policy.verdict.verdict import Judgement

_LOOKS = ("", "\x03", "\x04")
"""Nothing, Ctrl-C and Ctrl-D: input that cannot do harm."""
_OUTSIDE = "it types into a program that runs outside the sandbox"


_MOST_PENDING = 4096
_KEYS = re.compile("\x1b(?:\\[[0-9;?]*[@-~]|O?.)?", re.DOTALL)
_ENDS_LINE, _DROPS_LINE, _ERASES = "\r\n", "\x03\x04\x15", "\x08\x7f"


def as_typed(chars: str) -> str:
    """What a terminal makes of keys: Enter ends a line, others take characters back."""
    lines: list[str] = []
    line: list[str] = []
    for char in _KEYS.sub("", chars):
        if char in _ENDS_LINE:
            lines.append("".join(line))
            line.clear()
        elif char in _DROPS_LINE:
            line.clear()
        elif char in _ERASES:
            del line[-1:]
        elif char >= " " or char == "\t":
            line.append(char)
    return "\n".join([*lines, "".join(line)])


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

    def begin(self, args: Args, ctx: Context) -> ToolCall:
        """The input of a call, judged as a shell would read it."""
        return TypingCall(self, args, ctx)

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Type, wait, and return the output."""
        command = ctx.session.open_commands.get(args.session_id)
        if args.chars:
            typed = command.line + as_typed(args.chars) if args.chars not in _LOOKS else ""
            command.line = typed.rpartition("\n")[2][-_MOST_PENDING:]
        # The event belongs to the command, as its begin and end do.
        started_by = ctx.session.runner().sessions.call_of(args.session_id)
        try:
            done = await ctx.session.runner().write(
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
        return answer(done, args.max_output_tokens, command.output, way_out(ctx, "exec_command"))


class TypingCall(ToolCall):
    """The input of a call, judged as if a shell reads it."""

    args: WriteStdin.Args

    def __init__(self, tool: Tool, args: WriteStdin.Args, ctx: Context) -> None:
        self.args, self.ctx = args, ctx
        super().__init__(tool, args, ctx, self._effects())

    def _effects(self) -> Effects:
        args, ctx = self.args, self.ctx
        self._line = ctx.session.open_commands.get(args.session_id).line
        outside = args.chars not in _LOOKS and ctx.session.runner().left_sandbox(args.session_id)
        # The command itself was decided on when it started.
        return Effects(
            runs=(("write_stdin", str(args.session_id)),),
            serial=(f"exec:{args.session_id}",),
            exclusive=False,
            confined=not outside,
            escalates=_OUTSIDE if outside else None,
            critical=self._danger(),
        )

    async def prepare(self) -> None:
        """Judge the input again where an earlier call has typed the beginning of the line."""
        if self.ctx.session.open_commands.get(self.args.session_id).line != self._line:
            self.__dict__.pop("judged", None)
            self.touch(self._effects())

    @cached_property
    def judged(self) -> Judgement:
        """What a shell would do with the input."""
        from toolrest.policy.verdict.command import judge

        ctx = self.ctx
        text = self._line + as_typed(self.args.chars)
        return judge(text, cwd=ctx.cwd, writable_roots=ctx.files.command_roots)

    def _danger(self) -> str | None:
        """Why the input is dangerous, or too much to judge, if a shell reads it; else None."""
        if self.args.chars in _LOOKS:
            return None
        from toolrest.policy.verdict.verdict import CommandClass

        worst = self.judged.worst
        if worst is None:
            return None
        if worst.kind < CommandClass.DANGEROUS and worst.rule != "unknown.budget":
            return None
        return f"{worst.rule}: {worst.why}"

    def decide(self) -> Decision | None:
        """Allow polling or ending a command without asking: the command itself was approved."""
        ctx = self.ctx
        if self.args.chars in _LOOKS and ctx.session.approval_policy != "strict":
            return Decision(Answer.ALLOW, "session.poll")
        confined = self.effects.confined and ctx.files.mode != "danger-full-access"
        if confined and not ctx.session.runner().enclosure.weak:
            return None
        refused = closed(self.judged, ctx, confined=confined)
        return refused or (unlocked(self.judged, ctx) if confined else None)

    def known_writes(self) -> tuple[str, ...]:
        """The paths that the line names as written, if a shell reads it."""
        return () if self.args.chars in _LOOKS else self.judged.writes

    def question(self) -> ToolQuestion:
        """The input, and the command that gets it."""
        command = ("write_stdin", str(self.args.session_id), self.args.chars)
        title = f"Type this into the running command {self.args.session_id}?"
        return ToolQuestion(command, title=title)
