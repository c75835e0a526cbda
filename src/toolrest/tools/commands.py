"""What the command tools share: their surroundings in words, escalation, denials, notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from toolrest.errors import Failure, RespondToModel, SandboxDenied
from toolrest.gate.arguments import LAZY
from toolrest.gate.context import Context
from toolrest.items import ToolOutput
from toolrest.policy.effects import Effects

if TYPE_CHECKING:
    from toolrest.gate.limits import Collected

Permissions: TypeAlias = Literal["use_default", "require_escalated"]

_POLICY_NAMES = {
    "untrusted": "UnlessTrusted",
    "on-failure": "OnFailure",
    "on-request": "OnRequest",
    "never": "Never",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the session lets commands do, for descriptions that tell the model the truth."""

    mode: str
    roots: tuple[str, ...]
    network: str
    approval: str

    @property
    def may_escalate(self) -> bool:
        """Whether asking to run outside the sandbox makes sense here."""
        return self.approval == "on-request" and self.mode != "danger-full-access"

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


class Escalation(BaseModel):
    """Parameters of every tool that runs commands."""

    model_config = LAZY

    justification: str | None = Field(
        default=None,
        description="With require_escalated: the question for the user, in one sentence.",
    )
    prefix_rule: list[str] | None = Field(
        default=None,
        description="With require_escalated: the first words of such commands that need not be "
        "asked about again.",
    )

    def asks_to_leave(self) -> bool:
        """Whether the model wants this run outside the sandbox."""
        return getattr(self, "sandbox_permissions", None) == "require_escalated" or bool(
            (self.__pydantic_extra__ or {}).get("with_escalated_permissions")
        )


OptionalPermissions = Annotated[
    Permissions | None,
    Field(
        default=None,
        description="require_escalated asks to run outside the sandbox; needs a justification.",
    ),
]


def refuse_escalation(args: Escalation, ctx: Context, verb: str) -> None:
    """Only on-request lets a model ask to leave the sandbox."""
    policy = ctx.approval_policy
    if args.asks_to_leave() and policy != "on-request":
        name = _POLICY_NAMES.get(policy, policy)
        raise RespondToModel(
            f"approval policy is {name}; reject command — you {verb} ask for escalated "
            f"permissions if the approval policy is {name}",
            kind="policy_denied",
            fields=("sandbox_permissions",),
        )


def command_effects(argv: tuple[str, ...], args: Escalation, ctx: Context) -> Effects:
    """Runs one program; inside the sandbox unless the model asks otherwise."""
    confined = ctx.runner.is_confined
    if confined and args.asks_to_leave():
        return Effects(runs=(argv,), escalates=args.justification or "")
    return Effects(runs=(argv,), confined=confined)


def finish(
    text: str,
    *,
    code: int | None,
    success: bool,
    backend: str,
    notes: list[str],
    blocked: str | None,
    collected: Collected | None = None,
) -> ToolOutput:
    """The output of a command; SandboxDenied when the sandbox is what stopped it."""
    metadata: dict[str, Any] = {"exit_code": code, "sandbox": backend}
    if collected is not None:
        metadata["collected"] = collected.summary()
    output = ToolOutput(text, success=success, metadata=metadata, notes=notes)
    if blocked is not None:
        output.success = False
        output.failure = Failure("sandbox_denied", blocked)
        output.notes.append(blocked)
        raise SandboxDenied(blocked, output)
    return output


def withheld_notes(withheld: tuple[str, ...], text: str) -> list[str]:
    """Variables that were withheld, when the failing command's output speaks of them."""
    named = [name for name in withheld if name in text]
    if not named:
        return []
    return [f"withheld from the command: {', '.join(named[:8])} (shell_environment_policy)"]


def delta_listener(ctx: Context) -> Callable[[Literal["stdout", "stderr"], str], None]:
    """Shows output while it comes."""
    return lambda stream, text: ctx.output(text, stream)
