"""Could what a call sends out carry something away? After somebody else's words and private files.

A page or a server's answer may tell the model to send what it has read. So once a session holds
both, a call that reaches outside is asked about, even where it would be allowed (S20).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.answer import Answer
from toolrest.gate.decision.decide import Decision
from toolrest.items import ToolOutput
from toolrest.records import dataclass, replace

if TYPE_CHECKING:
    from toolrest.gate.call.understand import ResolvedCall

SETTING = "tool_security.ask_after_external_content"


@dataclass(slots=True)
class Taint:
    """What a session has seen so far."""

    enabled: bool = True
    external: str = ""
    """The tool that first brought somebody else's words."""
    private: bool = False

    def note(self, call: ResolvedCall, output: ToolOutput) -> None:
        """A call that ran is over: remember whose words it brought."""
        if not self.enabled or (self.external and self.private):
            return
        effects = call.effects
        asks_elsewhere = effects.runs and call.tool.reaches(call.args, effects, call.ctx)
        if output.provenance == "external" or asks_elsewhere:
            self.external = self.external or call.tool.name
        elif effects.reads or effects.runs or effects.is_unknown:
            self.private = True

    def judge(self, call: ResolvedCall, decision: Decision, mode: str) -> Decision:
        """The decision, or a question in its place."""
        if not (self.enabled and self.external and self.private) or mode == "dangerous":
            return decision
        if decision.verdict != Answer.ALLOW or call.tool.only_reads:
            return decision
        reached = call.tool.reaches(call.args, call.effects, call.ctx)
        if not reached:
            return decision
        reason = (
            f"it reaches {', '.join(reached)} after this session has read external content "
            f"({self.external}) and files of yours, which that content may want sent out "
            f"({SETTING} = false allows){' (it runs outside the sandbox)' * decision.leaves}"
        )
        if mode != "never":
            # A yes is for this very call: no key is offered to remember it by.
            return replace(
                decision, verdict=Answer.ASK, rule="external.content", reason=reason, keys=()
            )
        # Nobody can be asked. A server that the user has set up for this goes on.
        own = call.effects.calls and not call.effects.connects
        return decision if own else Decision(Answer.DENY, "external.content", reason)
