"""Taint: approval for calls that could send out private files after external content.

A page or a server's answer may instruct the model to send what it has read. So once a session
holds both, a call that reaches outside is asked about, even where it would be allowed (S20).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolrest.answer import Answer
from toolrest.gate.decision.decide import Decision
from toolrest.items import ToolOutput

if TYPE_CHECKING:
    from toolrest.gate.tool.call import ToolCall

SETTING = "tool_security.ask_after_external_content"


class Taint(Struct):
    """Whether a session has read external content and private files."""

    enabled: bool = True
    external: str = ""
    """The tool that first returned external content."""
    private: bool = False

    def note_external(self, source: str) -> None:
        """Record that the session has read external content."""
        if self.enabled:
            self.external = self.external or source

    def note_private(self) -> None:
        """Record that the session has read files of the user's."""
        self.private = self.private or self.enabled

    def note(self, call: ToolCall, output: ToolOutput) -> None:
        """Record whether a call that ran returned external content or read private files."""
        if not self.enabled or (self.external and self.private):
            return
        effects = call.effects
        asks_elsewhere = effects.runs and call.reaches()
        if output.provenance == "external" or asks_elsewhere:
            self.external = self.external or call.tool.name
        elif effects.reads or effects.runs or effects.is_unknown:
            self.private = True

    def judge(self, call: ToolCall, decision: Decision, mode: str) -> Decision:
        """The decision, or ASK (DENY where the mode never asks) in place of ALLOW."""
        if not (self.enabled and self.external and self.private) or mode == "dangerous":
            return decision
        if decision.verdict != Answer.ALLOW or decision.by_name or call.tool.only_reads:
            return decision
        reached = call.reaches()
        if not reached:
            return decision
        reason = (
            f"it reaches {', '.join(reached)} after this session has read external content "
            f"({self.external}) and files of yours, which that content may want sent out "
            f"({SETTING} = false allows){' (it runs outside the sandbox)' * decision.leaves}"
        )
        if mode != "never":
            # Grants from before do not count: they were given by someone who did not know this.
            keys = call.reach_keys()
            note = (
                f"It reaches {', '.join(reached)}, after this session has read your files and "
                f"content from outside ({self.external})."
            )
            return replace(
                decision,
                verdict=Answer.ASK,
                rule="external.content",
                reason=reason,
                keys=keys,
                notes=(note,),
            )
        # This mode never asks. Calls of servers that the user has configured stay allowed.
        own = call.effects.calls and not call.effects.connects
        return decision if own else Decision(Answer.DENY, "external.content", reason)
