"""What goes wrong when a command cannot be confined."""

from __future__ import annotations

from toolrest.errors import ToolrestError


class SandboxUnavailable(ToolrestError):
    """Nothing on this machine can enforce the policy; the command was not run.

    `remedy` is one line that says what to do; `tried` has one reason per backend.
    """

    def __init__(self, message: str, *, remedy: str = "", tried: tuple[str, ...] = ()) -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.remedy = remedy
        self.tried = tried


class SandboxBusy(SandboxUnavailable):
    """Not while another command of the session runs; later the same command may be confined."""


def unseen(path: str) -> SandboxUnavailable:
    """For what must be protected, and cannot even be looked at."""
    return SandboxUnavailable(
        f"sandbox: {path} cannot be looked at, so nobody could protect it.",
        remedy="Give yourself the right to (`chmod u+rwx` on its folder), or remove it.",
    )
