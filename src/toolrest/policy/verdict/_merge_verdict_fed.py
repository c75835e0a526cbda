"""Which commands run a script that they are given as input, and who may give it to them?"""

from __future__ import annotations

from toolrest.policy.dangerous.flow import is_descriptor, reads_program
from toolrest.policy.shell.script import Script, Simple
from toolrest.policy.shell.nested import SHELLS


def hands_on(script: Script) -> bool:
    """True when a command in it may read what another one is given or prints."""
    return any(
        simple.upstream >= 0 or any(r.kind in ("document", "string") for r in simple.redirects)
        for simple in script.commands
    )


def is_fed(simple: Simple, name: str) -> bool:
    """True for what runs a script that may stand in this very command line."""
    if name in ("source", ".") and len(simple.argv) > 1:
        return is_descriptor(simple.argv[1]) or bool(simple.mark(1))
    return name in SHELLS and reads_program(simple)
