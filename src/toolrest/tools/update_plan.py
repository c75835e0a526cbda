"""`update_plan`: the model's plan, shown to the user as events."""

from __future__ import annotations

from typing import Literal

from toolrest.events import PlanUpdate
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, as_json, param
from toolrest.gate.tool.tool import ExecItem, Icon, Tool
from toolrest.items import Group
from toolrest.policy.effects import Effects


class Step(Parameters, extra="forbid"):
    """One step of the plan."""

    step: str = param(description="What is to be done, in a few words.")
    status: Literal["pending", "in_progress", "completed"] = param(
        description="Where this step stands."
    )


class UpdatePlan(Tool):
    """`update_plan`: stores the plan in the session and emits it as an event."""

    name = "update_plan"
    description = (
        "Write down or change your plan for the task, so that the user can follow it. "
        "Send the whole list of steps each time, with at most one of them in_progress."
    )
    group: Group = "plan"
    icon: Icon = "think"
    exec_item: ExecItem = "todo_list"
    small_window = False
    needs = ("include_plan_tool",)
    # Plans replace one another, so two updates in one reply must land in the order they came.
    typical = Effects(serial=("plan",))
    rejects_unknown_fields = True
    polling = True

    class Args(Parameters, extra="forbid"):
        """Parameters."""

        explanation: str | None = param(
            default=None, description="Why the plan changed, if that is not plain."
        )
        plan: list[Step] = param(description="Every step, in order.")

    async def run(self, args: Args, ctx: Context) -> str:
        """Emit the plan."""
        plan = [as_json(step) for step in args.plan]
        ctx.emit(PlanUpdate(explanation=args.explanation, plan=plan))
        return "Plan updated"
