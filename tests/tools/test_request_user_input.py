"""`request_user_input`: who answers, and what only the model reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.events import Event, RequestUserInput
from toolrest.gate.approval.user_questions import UserQuestions

OPTIONS = [
    {"label": "Blue", "description": "like the sky"},
    {"label": "Red", "description": "like rust"},
]


def question(**more: Any) -> dict[str, Any]:
    fields = {"id": "colour", "header": "Colour", "question": "Which one?", "options": OPTIONS}
    return {**fields, **more}


def asks(*questions: dict[str, Any]) -> dict[str, Any]:
    return {"questions": list(questions or (question(),))}


async def ask(workspace: Path, arguments: Any, **options: Any) -> tuple[Any, list[Event]]:
    events: list[Event] = []
    async with Toolrest(workspace, **options) as rest:
        rest.subscribe(events.append)
        output = await rest.call("request_user_input", arguments)
    return output, events


async def test_answers_are_compact_json_by_id(tmp_path: Path) -> None:
    seen: list[UserQuestions] = []

    async def answer(asked: UserQuestions) -> Mapping[str, Any]:
        seen.append(asked)
        return {"colour": ["Blue"], "why": "because"}

    arguments = asks(question(), question(id="why"))
    output, events = await ask(tmp_path, arguments, on_question=answer)
    assert (
        output.text == '{"answers":{"colour":{"answers":["Blue"]},"why":{"answers":["because"]}}}'
    )
    assert [one.id for one in seen[0].questions] == ["colour", "why"]
    (told,) = [event for event in events if isinstance(event, RequestUserInput)]
    assert told.questions[0] == {**question(), "isOther": True, "isSecret": False}


async def test_a_front_end_for_approvals_may_take_questions_too(tmp_path: Path) -> None:
    class FrontEnd:
        def __call__(self, request: object) -> bool:
            return False

        async def ask_user(self, asked: UserQuestions) -> dict[str, str]:
            return {"colour": "Green"}

    output, _ = await ask(tmp_path, asks(), on_ask=FrontEnd())
    assert json.loads(output.text) == {"answers": {"colour": {"answers": ["Green"]}}}


async def test_nobody_there(tmp_path: Path) -> None:
    output, _ = await ask(tmp_path, asks())
    assert output.text.startswith("request_user_input is unavailable in Default mode")
    assert "user_input.answers" in output.text
    assert output.failure is not None


async def test_answers_from_the_settings(tmp_path: Path) -> None:
    settings = {"user_input": {"answers": {"colour": "Red", "db_*": "postgres"}}}
    arguments = asks(question(), question(id="db_kind"))
    output, _ = await ask(tmp_path, arguments, settings=settings)
    assert json.loads(output.text)["answers"] == {
        "colour": {"answers": ["Red"]},
        "db_kind": {"answers": ["postgres"]},
    }
    output, _ = await ask(tmp_path, asks(question(id="other")), settings=settings)
    assert "unavailable" in output.text


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (asks(question(options=[])), "requires non-empty options for every question"),
        (asks(question(), question()), "each with an id of its own"),
        ({"questions": []}, "at least one"),
        ({"questions": [{"id": "x"}]}, "failed to parse function arguments: "),
        ({}, "questions"),
    ],
)
async def test_what_cannot_be_asked(tmp_path: Path, arguments: Any, part: str) -> None:
    output, _ = await ask(tmp_path, arguments, on_question=lambda _: {})
    assert part in output.text
    assert output.failure is not None
    assert output.failure.kind == "input_invalid"


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (None, "request_user_input was cancelled before receiving a response"),
        ({"colour": 3}, "returned no text"),
        (["x"], "returned no text"),
    ],
)
async def test_a_front_end_that_gives_no_answer(tmp_path: Path, given: Any, part: str) -> None:
    output, _ = await ask(tmp_path, asks(), on_question=lambda _: given)
    assert part in output.text


async def test_a_front_end_that_fails(tmp_path: Path) -> None:
    def broken(asked: UserQuestions) -> None:
        raise RuntimeError("no screen")

    output, _ = await ask(tmp_path, asks(), on_question=broken)
    assert "asking the user failed: RuntimeError: no screen" in output.text


async def test_it_is_offered_only_where_somebody_answers(tmp_path: Path) -> None:
    async with Toolrest(tmp_path, tools=["plan"]) as rest:
        assert "request_user_input" not in [tool.name for tool in rest.tools]
    async with Toolrest(tmp_path, tools=["plan"], on_question=lambda _: None) as rest:
        names = [tool.name for tool in rest.tools]
        assert names.index("request_user_input") + 1 == names.index("update_plan")
        (spec,) = [s for s in rest.specs("responses") if s["name"] == "request_user_input"]
    items = spec["parameters"]["properties"]["questions"]["items"]
    assert sorted(items["required"]) == ["header", "id", "options", "question"]
    assert sorted(items["properties"]["options"]["items"]["required"]) == ["description", "label"]
    assert spec["parameters"]["required"] == ["questions"]


async def test_only_the_model_reads_a_secret(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, toolrest_home: Path
) -> None:
    secret = 'hunter"22\\hunter'
    log = tmp_path_factory.mktemp("hook") / "log"
    copy = ["/bin/sh", "-c", f"cat >> {log}"]
    events: list[Event] = []
    async with Toolrest(
        tmp_path,
        on_question=lambda _: {"token": secret},
        settings={"hooks": {"PostToolUse": [{"command": copy}]}},
        env={"PATH": "/usr/bin:/bin", "TOOLREST_HOME": str(toolrest_home)},
        home=toolrest_home,
    ) as rest:
        rest.subscribe(events.append)
        arguments = asks(question(id="token", options=[], isSecret=True))
        output = await rest.call("request_user_input", arguments)
        assert json.loads(output.text) == {"answers": {"token": {"answers": [secret]}}}
        later = await rest.call("exec_command", {"cmd": "cat", "workdir": secret})
        assert "hunter" not in later.text
    told = json.dumps([event.to_json() for event in events], default=str)
    assert "hunter" not in told
    assert "[redacted:token]" in told
    assert "hunter" not in log.read_text()
    files = (path for path in toolrest_home.rglob("*") if path.is_file())
    written = b"".join(path.read_bytes() for path in files if os.access(path, os.R_OK))
    assert b"hunter" not in written


@pytest.mark.parametrize("value", ["1234", "/etc/passwd"])
async def test_a_secret_that_could_not_be_kept_is_dropped(tmp_path: Path, value: str) -> None:
    arguments = asks(question(id="pin", options=[], isSecret=True))
    output, events = await ask(tmp_path, arguments, on_question=lambda _: {"pin": value})
    assert "was dropped" in output.text
    assert value not in json.dumps([event.to_json() for event in events], default=str)
