"""Views of a session: its settings, tools, rules and the decision on a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolrest.agent.offer import row
from toolrest.gate.tool.freeform import takes_raw
from toolrest.gate.tool.tool import Tool
from toolrest.items import CustomToolCall, FunctionCall

if TYPE_CHECKING:
    from toolrest.agent.setup.assemble import SessionParts
    from toolrest.config import Config, Settings
    from toolrest.gate.call.explain import Explanation
    from toolrest.gate.call.walk import Gate
    from toolrest.gate.hooks.hooks import Hooks
    from toolrest.policy.rules.rules import Rules
    from toolrest.tools.catalog import ToolParts


class SessionView:
    """The part of `Toolrest` that only looks: nothing here changes the session."""

    config: Config
    _gate: Gate
    _session: SessionParts

    @property
    def gate(self) -> Gate:
        """The gate that every call passes, for what is built on top: an agent or a server."""
        return self._gate

    @property
    def parts(self) -> ToolParts:
        """The session's parts that the built-in tools are made of."""
        return self._session.parts

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.config.value

    @property
    def tools(self) -> list[Tool]:
        """Every tool on offer, in the order models see them."""
        return self._gate.registry.listed()

    @property
    def quarantined(self) -> dict[str, str]:
        """Tools that were set aside, and why."""
        return dict(self._gate.registry.quarantined)

    def wire_name(self, tool: Tool) -> str:
        """The name under which models see this tool."""
        return self._gate.registry.wire_name(tool)

    def skills_index(self) -> str:
        """The index of the skills, for the model; empty when there are none."""
        skills = self._session.skills
        return "" if skills is None else skills.index()

    def supports_parallel(self, name: str) -> bool:
        """Whether a usual call of this tool may run beside others."""
        tool = self._gate.registry.get(name)
        if tool is None:
            raise KeyError(f"no tool named {name}")
        return tool.parallel

    def table(self) -> list[dict[str, object]]:
        """One row a tool: name, risk, mutating, parallel, kind and description."""
        return [row(tool) for tool in self.tools]

    def explain(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Explanation:
        """The decision on a call and its rule, without running it or asking for approval."""
        from toolrest.gate.call.explain import explain

        return explain(self._gate, self.item("explain", name, arguments))

    @property
    def rules(self) -> Rules:
        """The rules for commands that are in force."""
        return self._session.known.rules

    def rule_warnings(self) -> tuple[str, ...]:
        """Warnings about them; usually empty."""
        return self._session.known.warnings()

    def effective_policy(self) -> dict[str, Any]:
        """Mode, sandbox, overrides, rules and grants in force, each with where it came from."""
        from toolrest.agent.reports.policy import effective_policy

        return effective_policy(self.config, self._session)

    def item(
        self, call_id: str, name: str, arguments: Mapping[str, Any] | str | None
    ) -> FunctionCall | CustomToolCall:
        """The call of a tool with these arguments, or with this raw text."""
        if isinstance(arguments, str):
            tool = self._gate.registry.get(name)
            if tool is not None and takes_raw(tool, arguments):
                return CustomToolCall(call_id, name, arguments)
        return FunctionCall(call_id, name, arguments or {})

    @property
    def hooks(self) -> Hooks:
        """The user's hooks; a session's start and end run them through this."""
        from toolrest.gate.hooks.hooks import Hooks

        walks = self._gate.hooks
        return walks.hooks if walks is not None else Hooks.none()
