"""A session's mode only narrows: no call is decided more freely than the settings decide it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.answer import Answer
from toolrest.gate.decision.mode_limit import offered_modes
from toolrest.policy.modes import MODES, Mode

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("exec_command", {"cmd": "ls"}),
    ("exec_command", {"cmd": "echo x > inside"}),
    ("exec_command", {"cmd": "touch /etc/x"}),
    ("exec_command", {"cmd": "curl https://example.com"}),
    ("exec_command", {"cmd": "rm -rf /"}),
    ("exec_command", {"cmd": "eval $X"}),
    ("exec_command", {"cmd": "ls", "sandbox_permissions": "require_escalated"}),
    ("read_file", {"file_path": "a"}),
    ("read_file", {"file_path": "~/.ssh/id_rsa"}),
    ("write_file", {"file_path": "a", "content": "x"}),
    ("write_file", {"file_path": "/etc/x", "content": "x"}),
    ("webfetch", {"url": "https://example.com"}),
    ("save_memory", {"text": "x", "scope": "global"}),
    ("spawn_agent", {"message": "x"}),
    ("update_plan", {"plan": [{"step": "x", "status": "pending"}]}),
]
READS = {"ls", "read_file", "webfetch", "spawn_agent", "update_plan"}


@pytest.mark.parametrize("sandbox", ["read-only", "workspace-write", "danger-full-access"])
@pytest.mark.parametrize("policy", MODES)
async def test_no_mode_widens_anything(tmp_path: Path, policy: Mode, sandbox: str) -> None:
    async with Toolrest(
        tmp_path, tools=["all"], approval_policy=policy, sandbox_mode=sandbox
    ) as rest:
        limit = rest.session.mode
        before = [rest.explain(*call).verdict for call in CALLS]
        for mode in offered_modes(policy, sandbox):
            limit.name = mode
            for (name, arguments), usual in zip(CALLS, before, strict=True):
                found = rest.explain(name, arguments)
                assert found.verdict >= usual, (mode, name, arguments, found)
                if mode == "read-only" and found.verdict != Answer.DENY:
                    assert {name, arguments.get("cmd")} & READS, (name, arguments)
        limit.name = "auto"
        assert [rest.explain(*call).verdict for call in CALLS] == before
