"""`request_user_input` through the clients of our servers: MCP's forms, and an editor's."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from acp import spawn_agent_process
from acp.helpers import text_block
from acp.schema import (
    AcceptElicitationResponse,
    ClientCapabilities,
    DeclineElicitationResponse,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.client.client import Client

from toolrest.gate.approval.user_questions import UserOption, UserQuestion, UserQuestions
from toolrest.serve import user_form
from toolrest.serve.server import ToolServer
from toolrest.testing import Call, Say
from toolrest.testing.server import ScriptedServer

Make = Callable[..., ToolServer]
ERAS = ["legacy", "auto"]
TOOL = "request_user_input"
OPTIONS = [
    {"label": "Blue", "description": "like the sky"},
    {"label": "Red", "description": "like rust"},
]
COLOUR = {"id": "colour", "header": "Colour", "question": "Which one?", "options": OPTIONS}
SIZE = {**COLOUR, "id": "size", "header": "Size", "question": "How big?"}
ASKED: dict[str, Any] = {"questions": [COLOUR, SIZE]}


def filling(content: dict[str, Any] | None, action: str = "accept") -> tuple[Any, list[Any]]:
    """A person who fills in every form like this, and the forms that they saw."""
    seen: list[Any] = []

    async def callback(context: Any, params: Any) -> types.ElicitResult:
        seen.append(params)
        return types.ElicitResult.model_validate({"action": action, "content": content})

    return callback, seen


def said(result: Any) -> str:
    return "".join(part.text for part in result.content)


@pytest.mark.parametrize("mode", ERAS)
async def test_an_mcp_clients_person_answers(make_server: Make, mode: Any) -> None:
    callback, seen = filling({"choice_1": "Red", "choice_2": "Blue", "other_2": " huge "})
    tools = make_server(approval_policy="never")
    async with Client(tools.server(), mode=mode, elicitation_callback=callback) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert TOOL in listed
        result = await client.call_tool(TOOL, ASKED)
        again = await client.call_tool(TOOL, ASKED)
    await tools.aclose()
    assert json.loads(said(result)) == {
        "answers": {"colour": {"answers": ["Red"]}, "size": {"answers": ["huge"]}}
    }
    assert said(again) == said(result)
    form = seen[0]
    for text in ("Colour: Which one?", "- Red: like rust", "Size: How big?"):
        assert text in form.message
    fields = form.requested_schema["properties"]
    assert list(fields) == ["choice_1", "other_1", "choice_2", "other_2"]
    assert fields["choice_1"]["enum"] == ["Blue", "Red"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_who_would_rather_not_answer(make_server: Make, mode: Any, action: str) -> None:
    callback, _ = filling(None, action)
    tools = make_server(approval_policy="never")
    async with Client(tools.server(), mode=mode, elicitation_callback=callback) as client:
        result = await client.call_tool(TOOL, ASKED)
    await tools.aclose()
    assert result.is_error
    assert "cancelled before receiving a response" in said(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_without_forms_is_told_in_words(make_server: Make, mode: Any) -> None:
    tools = make_server(approval_policy="never")
    async with Client(tools.server(), mode=mode) as client:
        assert TOOL not in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool(TOOL, ASKED)
    await tools.aclose()
    assert result.is_error
    assert "no user can answer here" in said(result)


async def test_answers_in_the_settings_count_where_nobody_is(make_server: Make) -> None:
    tools = make_server(user_input={"answers": {"*": "Blue"}})
    async with Client(tools.server()) as client:
        assert TOOL in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool(TOOL, ASKED)
    await tools.aclose()
    assert json.loads(said(result))["answers"]["size"] == {"answers": ["Blue"]}


async def test_a_secret_is_asked_in_no_form(make_server: Make) -> None:
    callback, seen = filling({"other_1": "sk-1234567890"})
    tools = make_server(approval_policy="never")
    secret = {**COLOUR, "options": [], "isSecret": True}
    async with Client(tools.server(), elicitation_callback=callback) as client:
        result = await client.call_tool(TOOL, {"questions": [secret]})
    await tools.aclose()
    assert result.is_error
    assert "a secret cannot be asked for through this client" in said(result)
    assert seen == []


@pytest.mark.slow
async def test_the_real_command_asks_too(stdio: Any) -> None:
    callback, _ = filling({"choice_1": "Red", "choice_2": "Red"})
    async with stdio(elicitation_callback=callback) as client:
        result = await client.call_tool(TOOL, ASKED)
    assert json.loads(said(result))["answers"]["colour"] == {"answers": ["Red"]}


class Editor:
    """Fills in forms, or declines them."""

    def __init__(self, content: dict[str, Any] | None) -> None:
        self.content = content
        self.forms: list[Any] = []

    async def session_update(self, **_: Any) -> None:
        pass

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append((message, mode))
        if self.content is None:
            return DeclineElicitationResponse(action="decline")
        return AcceptElicitationResponse(action="accept", content=self.content)

    def on_connect(self, conn: Any) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forms", "content", "told"),
    [
        (True, {"choice_1": "Red", "other_2": "huge"}, '"size":{"answers":["huge"]}'),
        (True, None, "cancelled before receiving a response"),
        (False, None, "no user can answer here"),
    ],
)
async def test_an_editors_person_answers(
    workspace: Path,
    toolrest_home: Path,
    forms: bool,
    content: dict[str, Any] | None,
    told: str,
) -> None:
    editor = Editor(content)
    client: Any = editor
    able = ElicitationCapabilities(form=ElicitationFormCapabilities()) if forms else None
    async with ScriptedServer([Call(TOOL, ASKED), Say("ok")]) as server:
        row = server.settings()["model_providers"]["scripted"]
        (toolrest_home / "config.toml").write_text(
            'model = "gpt-5.5"\nmodel_provider = "scripted"\n[model_providers.scripted]\n'
            f'base_url = {json.dumps(row["base_url"])}\nwire_api = "responses"\n'
        )
        env = {"TOOLREST_HOME": str(toolrest_home), "PATH": "/usr/bin:/bin"}
        command = (sys.executable, "-m", "toolrest", "acp")
        async with spawn_agent_process(client, *command, env=env, use_unstable_protocol=True) as (
            agent,
            _,
        ):
            await agent.initialize(
                protocol_version=1, client_capabilities=ClientCapabilities(elicitation=able)
            )
            session = await agent.new_session(cwd=str(workspace), mcp_servers=[])
            done = await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        bodies = [request.body for request in server.requests]
    assert done.stop_reason == "end_turn"
    offered = {tool.get("name") for tool in bodies[0]["tools"]}
    assert (TOOL in offered) == forms
    assert told in bodies[1]["input"][-1]["output"]
    assert len(editor.forms) == int(forms)
    if forms:
        message, mode = editor.forms[0]
        assert "Colour: Which one?" in message
        assert (mode.session_id, bool(mode.tool_call_id)) == (session.session_id, True)
        assert mode.requested_schema.properties["choice_1"].enum == ["Blue", "Red"]


some_text = st.text(max_size=20)
some_questions = st.lists(
    st.builds(
        UserQuestion,
        some_text,
        some_text,
        some_text,
        st.lists(st.builds(UserOption, some_text, some_text), min_size=1, max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda question: question.id,
)
some_value = st.none() | some_text | st.integers() | st.booleans() | st.lists(some_text, max_size=2)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    some_questions,
    st.dictionaries(st.sampled_from(["choice_1", "other_1", "choice_2", "x"]), some_value),
    st.integers(min_value=0, max_value=2),
)
def test_whatever_comes_back_is_an_option_or_somebodys_own_words(
    questions: list[UserQuestion], content: dict[str, Any], pick: int
) -> None:
    asked = UserQuestions("c", "t", tuple(questions))
    for question, texts in zip(questions, user_form.answers(asked, content).values(), strict=True):
        labels = {option.label for option in question.options}
        own = {value.strip() for value in content.values() if isinstance(value, str)}
        assert len(texts) <= 1
        assert set(texts) <= labels | own
    # Every choice that is shown leads back to a label as the model wrote it.
    shown = user_form.schema(asked)["properties"]["choice_1"]["enum"]
    chosen = user_form.answers(asked, {"choice_1": shown[min(pick, len(shown) - 1)]})
    (label,) = chosen[questions[0].id]
    assert label in {option.label for option in questions[0].options}
