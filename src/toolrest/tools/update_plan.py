"""`update_plan`: the model writes down its steps, and whoever watches sees them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from toolrest.events import PlanUpdate
from toolrest.gate.context import Context
from toolrest.gate.tool import Group, Tool
from toolrest.policy.effects import Effects


class Step(BaseModel):
    """One step of the plan."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    step: str = Field(description="What is to be done, in a few words.")
    status: Literal["pending", "in_progress", "completed"] = Field(
        description="Where this step stands."
    )


class UpdatePlan(Tool):
    """Keeps the plan in the session and tells listeners about it."""

    name = "update_plan"
    description = (
        "Write down or change your plan for the task, so that the user can follow it. "
        "Send the whole list of steps each time, with at most one of them in_progress."
    )
    group: Group = "plan"
    # Plans replace one another, so two updates in one reply must land in the order they came.
    typical = Effects(serial=("plan",))
    rejects_unknown_fields = True
    polling = True

    class Args(BaseModel):
        """Parameters."""

        model_config = ConfigDict(extra="forbid", defer_build=True)

        explanation: str | None = Field(
            default=None, description="Why the plan changed, if that is not plain."
        )
        plan: list[Step] = Field(description="Every step, in order.")

    async def run(self, args: Args, ctx: Context) -> str:
        """Remember the plan and emit it."""
        plan = [step.model_dump() for step in args.plan]
        ctx.state["plan"] = {"explanation": args.explanation, "plan": plan}
        ctx.emit(PlanUpdate(explanation=args.explanation, plan=plan))
        return "Plan updated"
