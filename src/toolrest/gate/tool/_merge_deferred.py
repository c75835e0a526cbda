"""A tool that is known by name and loaded when it is first called or offered.

A session that never runs a command should not pay for the code that could.
"""

from __future__ import annotations

from collections.abc import Callable

from toolrest.gate.tool.tool import Group, Tool


class Deferred(Tool):
    """Stands in for a tool until somebody needs it; the registry swaps it then."""

    def __init__(
        self,
        name: str,
        group: Group,
        load: Callable[[], Tool],
        *,
        aliases: tuple[str, ...] = (),
        offered: bool = True,
    ) -> None:
        self.name = name
        self.group = group
        self.aliases = aliases
        self.offered = offered
        self.load = load
