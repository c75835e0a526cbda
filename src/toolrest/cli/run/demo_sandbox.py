"""The demo's sandbox: the one that works on this machine, and what it does not enforce."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from toolrest.agent.path_policy import path_policy
from toolrest.policy.modes import network_of
from toolrest.sandbox.backends.engine import gaps
from toolrest.sandbox.backends.probe import SLOW
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.policy import SandboxPolicy

if TYPE_CHECKING:
    from toolrest.config import Config


class DemoSandbox(Struct, frozen=True):
    """The backend found, or none; whether it hides `.env`; and lines to print about it."""

    backend: str
    hides: bool
    lines: tuple[str, ...]


def find_sandbox(config: Config, folder: str, *, live: bool = False) -> DemoSandbox:
    """Try the sandboxes as a session would; what that needs is put into `folder`.

    Raises SandboxUnavailable where one works on this machine but not here, or did not answer: that
    is no machine without a sandbox.
    """
    settings = config.value
    network = network_of(settings)
    policy = SandboxPolicy.from_paths(
        path_policy(config, config.workspace or folder),
        os.path.join(folder, "probe"),
        # The proxy of an allow list is not running yet; a sandbox without network stands for it.
        network="off" if network == "allowlist" else network,
        require=settings.sandbox.require,
    )
    try:
        probe, engine = SessionSandbox(
            policy, registry=os.path.join(folder, "mountpoints")
        ).choose()
    except SandboxUnavailable as error:
        if not error.tried or any(SLOW in row for row in error.tried):
            raise
        return DemoSandbox("", False, (*_rows("none works here", error.tried), _END[live]))
    missing = gaps(probe.controls)
    summary = "not everything is enforced" if missing else "every control is enforced in full"
    hides = probe.controls["reads"].level == "full"
    return DemoSandbox(engine.name, hides, _rows(f"{engine.name}; {summary}", missing))


def _rows(head: str, rows: tuple[str, ...]) -> tuple[str, ...]:
    return (f"sandbox: {head}{':' * bool(rows)}", *(f"  {row}" for row in dict.fromkeys(rows)))


_END = {
    False: "so the demo's commands run unconfined (external mode), in a folder of its own that is"
    " removed afterwards. In a session of yours commands are refused, unless its settings say"
    ' sandbox_mode = "danger-full-access": for a container or machine that may be harmed.\n',
    True: "so the model's commands will be refused.\n",
}
"""By whether a live model is asked: its commands are unknown, the demo's are not."""
