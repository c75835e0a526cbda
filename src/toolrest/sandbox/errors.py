"""Errors of the sandbox: a command cannot be confined."""

from __future__ import annotations

from toolrest.errors import ToolrestError


class SandboxUnavailable(ToolrestError):
    """Nothing on this machine can enforce the policy; the command was not run.

    `tried` has one reason per backend.
    """

    def __init__(self, reason: str, *, remedy: str = "", tried: tuple[str, ...] = ()) -> None:
        super().__init__(reason, hints=(remedy,) if remedy else ())
        self.tried = tried


class SandboxBusy(SandboxUnavailable):
    """The command cannot be confined while another one of the session runs; later it may be."""


class SandboxChanged(SandboxBusy):
    """What the command may see changed while it was starting; it can be started again at once."""


class FolderNotShown(SandboxUnavailable):
    """The folder to run a command in is not in the sandbox; commands in another one can be run."""


def unseen(path: str) -> SandboxUnavailable:
    """The error for a path that must be protected, and cannot even be looked at."""
    return SandboxUnavailable(
        f"sandbox: {path} cannot be looked at, so it cannot be protected.",
        remedy="Give yourself the right (`chmod u+rwx` on its folder), or remove it.",
    )
