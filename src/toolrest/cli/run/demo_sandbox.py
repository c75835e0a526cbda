"""Which sandbox does this machine give the demo, and what does that one not enforce?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from toolrest.records import dataclass

if TYPE_CHECKING:
    from toolrest.config import Config


@dataclass(frozen=True)
class DemoSandbox:
    """What was found: a backend or none, whether it hides `.env`, and lines that say so."""

    backend: str
    hides: bool
    lines: tuple[str, ...]


def find_sandbox(config: Config, folder: str, *, live: bool = False) -> DemoSandbox:
    """Try the sandboxes as a session would; what that needs is put into `folder`."""
    from toolrest.agent.path_policy import path_policy
    from toolrest.sandbox.backends.engine import gaps
    from toolrest.sandbox.confine import Sandbox
    from toolrest.sandbox.errors import SandboxUnavailable
    from toolrest.sandbox.policy import SandboxPolicy

    files = path_policy(config, config.workspace or folder)
    policy = SandboxPolicy.from_paths(files, os.path.join(folder, "probe"))
    try:
        probe, engine = Sandbox(policy, registry=os.path.join(folder, "mountpoints")).choose()
    except SandboxUnavailable as error:
        return DemoSandbox("", False, (*_rows("none works here", error.tried), _END[live]))
    missing = gaps(probe.controls)
    words = "not everything is enforced" if missing else "every control is enforced in full"
    hides = probe.controls["reads"].level == "full"
    return DemoSandbox(engine.name, hides, _rows(f"{engine.name}; {words}", missing))


def _rows(head: str, rows: tuple[str, ...]) -> tuple[str, ...]:
    return (f"sandbox: {head}{':' * bool(rows)}", *(f"  {row}" for row in dict.fromkeys(rows)))


_END = {
    False: "so the demo's commands run unconfined (external mode), in a folder of its own that is"
    ' removed afterwards. Your own commands would be refused; sandbox_mode = "danger-full-access"'
    " allows them where the machine itself is the sandbox, such as a container.\n",
    True: 'so commands are refused; sandbox_mode = "danger-full-access" allows them.\n',
}
"""By whether a real model is asked, whose commands nobody has seen yet."""
