"""Overrides: the user's settings for single tools, servers and folders, over the mode's table.

The strictest of all that fit counts. `allow` lifts an ordinary question, never a denial, the
dangerous list or the border of the sandbox; `ask` and `deny` always count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from msgspec import Struct

from toolrest.answer import Answer
from toolrest.policy.effects import Effects
from toolrest.policy.paths.names import inside


class OverrideMatch(NamedTuple):
    """An override that fits a call, and the setting that it comes from."""

    say: Answer
    setting: str


class Overrides(Struct, frozen=True):
    """The tables of `[approvals]`, but for commands: those are rules."""

    tools: Mapping[str, Answer]
    servers: Mapping[str, Answer]
    paths: Mapping[str, Answer]
    """Absolute paths; each stands for all that is beneath it."""

    def on(
        self, names: Sequence[str], server: str | None, effects: Effects
    ) -> OverrideMatch | None:
        """The strictest that fits a call of a tool with these names."""
        fitting = [*self._by_name(names), *self._by_server(server), *self._by_path(effects)]
        return max(fitting, key=lambda match: match.say, default=None)

    def _by_name(self, names: Sequence[str]) -> Iterable[OverrideMatch]:
        for pattern, say in self.tools.items():
            if any(fnmatchcase(name, pattern) for name in names):
                yield OverrideMatch(say, f'approvals.tools."{pattern}"')

    def _by_server(self, server: str | None) -> Iterable[OverrideMatch]:
        if server is not None and server in self.servers:
            yield OverrideMatch(self.servers[server], f'approvals.mcp_servers."{server}"')

    def _by_path(self, effects: Effects) -> Iterable[OverrideMatch]:
        allowed = []
        for path in effects.writes:
            fitting = {root: say for root, say in self.paths.items() if inside(path, root)}
            for root, say in fitting.items():
                if say != Answer.ALLOW:
                    yield OverrideMatch(say, f'approvals.paths."{root}"')
            allowed += [root for root, say in fitting.items() if say == Answer.ALLOW][:1]
        # Allowing a folder allows writing in it, and nothing else that a call does.
        only = not (effects.runs or effects.connects or effects.calls or effects.is_unknown)
        if allowed and only and len(allowed) == len(effects.writes):
            yield OverrideMatch(Answer.ALLOW, f'approvals.paths."{allowed[0]}"')
