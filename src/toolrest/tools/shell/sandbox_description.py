"""The description of the sandbox, for models, in the command tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from toolrest.policy.modes import network_of
from toolrest.policy.verdict.outcome import ASKING

if TYPE_CHECKING:
    from toolrest.gate.session import Ground


class SandboxDescription(Struct, frozen=True):
    """What commands may do in the session's sandbox."""

    mode: str
    roots: tuple[str, ...]
    network: str
    approval: str

    @classmethod
    def of(cls, ground: Ground) -> SandboxDescription:
        """The sandbox of a session."""
        settings, roots = ground.settings, ground.files.writable_roots
        policy = settings.approval_policy
        network = network_of(settings)
        if network == "allowlist" and not settings.tool_security.allowed_network_domains:
            network = "off"
        return cls(settings.sandbox_mode, roots, network, policy)

    @property
    def may_escalate(self) -> bool:
        """Whether asking to run outside the sandbox makes sense here."""
        return self.approval in ASKING and self.mode != "danger-full-access"

    def words(self) -> str:
        """Two or three sentences for a tool's description."""
        if self.mode == "danger-full-access":
            return "Commands run without a sandbox, with the user's own rights."
        writes = (
            "nothing can be written"
            if self.mode == "read-only"
            else "only " + ", ".join(self.roots) + " and the private /tmp can be written"
        )
        reach = {
            "on": "The network can be reached.",
            "allowlist": "Only the hosts that the user listed can be reached.",
        }.get(self.network, "There is no network.")
        ask = (
            "If that blocks something the task needs, call again with sandbox_permissions "
            'set to "require_escalated" and a justification; the user is asked.'
            if self.may_escalate
            else "Do not ask to leave the sandbox: in this session that is refused."
        )
        return f"Commands run in a sandbox: {writes}. {reach} {ask}"
