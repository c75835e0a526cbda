"""What holds where no command is looked at: tools without a rule, and asking to escalate."""

from __future__ import annotations

from toolrest.policy.verdict.outcome import NeedsApproval, Requirement, Setting, Skip

_VARIANTS = {
    "untrusted": "UnlessTrusted",
    "on-failure": "OnFailure",
    "on-request": "OnRequest",
    "never": "Never",
}


def default_requirement(setting: Setting) -> Requirement:
    """The requirement of a tool that has no rule of its own."""
    if setting.mode in ("never", "on-failure"):
        return Skip()
    if setting.mode == "on-request" and not setting.limited:
        return Skip()
    return NeedsApproval()


def escalation_refused(mode: str, *, tool: str = "shell") -> str | None:
    """The answer to a call that asks to leave the sandbox in a mode that cannot ask; or None."""
    if mode == "on-request":
        return None
    variant = _VARIANTS.get(mode, mode)
    verb = "cannot" if tool == "exec_command" else "should not"
    return (
        f"approval policy is {variant}; reject command — you {verb} ask for escalated permissions "
        f"if the approval policy is {variant}"
    )
