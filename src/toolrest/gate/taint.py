"""Could what a call sends out carry something away? After somebody else's words and private files.

A page or a server's answer may tell the model to send what it has read. So once a session holds
both, a call that reaches outside is asked about, even where it would be allowed (S20).
"""

from __future__ import annotations

from dataclasses import dataclass

from toolrest.gate.decide import Decision
from toolrest.items import ToolOutput
from toolrest.policy.effects import Effects

SETTING = "tool_security.ask_after_external_content"


@dataclass(slots=True)
class Taint:
    """What a session has seen so far."""

    enabled: bool = True
    external: str = ""
    """The tool that first brought somebody else's words."""
    private: bool = False

    def note(self, tool: str, effects: Effects, output: ToolOutput) -> None:
        """A call is over: remember whose words it brought."""
        if output.failure is not None and output.provenance != "external":
            return
        if output.provenance == "external":
            self.external = self.external or tool
        elif effects.reads or effects.runs or effects.is_unknown:
            self.private = True

    def judge(self, effects: Effects, decision: Decision, mode: str) -> Decision:
        """The decision, or a question in its place."""
        if decision.verdict != "allow" or not self._risky(effects):
            return decision
        sent = ", ".join((*effects.connects, *effects.calls))
        reason = (
            f"it reaches {sent} after this session has read external content ({self.external}) "
            f"and files of yours, which that content may want sent out ({SETTING} = false allows)"
        )
        if mode == "dangerous":
            return decision
        if mode != "never":
            return Decision("ask", "external.content", reason)
        # Nobody can be asked. A server that the user has set up for this goes on.
        return Decision("deny", "external.content", reason) if effects.connects else decision

    def _risky(self, effects: Effects) -> bool:
        if not (self.enabled and self.external and self.private):
            return False
        # A sub-agent's call stays here; what it does in turn is judged where it does it.
        return bool(effects.connects or (effects.calls and not effects.confined))
