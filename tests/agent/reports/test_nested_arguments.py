"""Arguments nested as deep as they like: every call has its item in `exec --json`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from toolrest.agent.conversation.conversation import Conversation
from toolrest.cli.run.exec_output import ExecOutput
from toolrest.testing import Call


@pytest.mark.parametrize("depth", [90, 950, 985, 2000, 100_000])
@pytest.mark.parametrize("name", ["exec_command", "list_dir", "nobody_knows_it"])
async def test_every_call_has_an_item(
    agent: Callable[..., Conversation],
    capfdbinary: pytest.CaptureFixture[bytes],
    name: str,
    depth: int,
) -> None:
    for opening, closing in (('{"a":', "}"), ("[", "]")):
        text = '{"a":' + opening * depth + "1" + closing * depth + "}"
        session = agent([[Call(name, text)], "done"])
        session.rest.subscribe(ExecOutput(as_json=True).thread)
        assert (await session.run("go")).text == "done"
        out, err = capfdbinary.readouterr()
        assert b"Traceback" not in err
        assert sum(b'"item.completed"' in line for line in out.splitlines()) == 2
        assert json.loads(out.splitlines()[-1])["type"] == "turn.completed"
