"""`request_user_input`: the model asks the user questions and waits for the answers."""

from __future__ import annotations

import json

from toolrest.errors import RespondToModel
from toolrest.gate.approval.user_questions import UserOption, UserQuestion
from toolrest.gate.context import Context
from toolrest.gate.output.secret_values import can_hide
from toolrest.gate.tool.args_class import Parameters, extra_of, param
from toolrest.gate.tool.tool import ExecItem, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects

NO_OPTIONS = "request_user_input requires non-empty options for every question"
_A_WEEK = 7 * 86_400.0


class Option(Parameters):
    """One answer to choose."""

    label: str = param(description="What the user picks, in one to five words.")
    description: str = param(description="What follows from picking it, in one sentence.")


class Asked(Parameters):
    """One question."""

    id: str = param(description="A name for the answer, in snake_case.")
    header: str = param(description="A title of a few words.")
    question: str = param(description="The question, in one sentence.")
    options: list[Option] = param(
        description="Two or three answers to choose from; the user may also write another one."
    )


class RequestUserInputTool(Tool):
    """`request_user_input`. The call waits until the user has answered; the session goes on."""

    name = "request_user_input"
    description = (
        "Ask the user one to three short questions and wait for the answers. Only ask what "
        "you cannot find out yourself and what changes what you will do."
    )
    group: Group = "plan"
    exec_item: ExecItem = ""
    small_window = False
    asks_user = True
    offered_when = ("session:questions",)
    # Two questions at once would mix on the user's screen.
    typical = Effects(serial=("user",))
    timeout = _A_WEEK

    class Args(Parameters):
        """Parameters."""

        questions: list[Asked] = param(description="The questions, in order.")

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Ask, and return the answers as compact JSON by the ids of the questions."""
        asked = [_question(one) for one in args.questions]
        ids = [question.id for question in asked]
        if not asked or len(set(ids)) < len(ids):
            raise RespondToModel(
                "`questions`: give at least one, each with an id of its own",
                kind="input_invalid",
                fields=("questions",),
            )
        answers = await ctx.ask_user(asked)
        by_id = {identity: {"answers": list(texts)} for identity, texts in answers.items()}
        text = json.dumps({"answers": by_id}, ensure_ascii=False, separators=(",", ":"))
        secrets = _secrets(asked, answers)
        shown = [name for name, value in secrets.items() if not can_hide(value.strip())]
        if shown:
            raise RespondToModel(
                f"the answer to {shown[0]} was dropped: a path, or text of fewer than 8 "
                "characters, cannot be kept out of logs"
            )
        return ToolOutput(text, provenance="trusted", secrets=secrets)


def _question(one: Asked) -> UserQuestion:
    extra = extra_of(one)
    secret = extra.get("isSecret") is True
    if not one.options and not secret:
        raise RespondToModel(NO_OPTIONS, kind="input_invalid", fields=("questions",))
    options = tuple(UserOption(option.label, option.description) for option in one.options)
    return UserQuestion(one.id, one.header, one.question, options, secret)


def _secrets(asked: list[UserQuestion], answers: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Secret answers, which only the model may read."""
    return {
        f"{question.id}.{number}" if number else question.id: text
        for question in asked
        if question.is_secret
        for number, text in enumerate(answers[question.id])
        if text
    }
