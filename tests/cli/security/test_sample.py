"""The sample of the mission, `[tool_security]`, as it was written down; `doctor` on settings."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

SAMPLE = """
[tool_security]
approval_policy = "required"
sandbox_policy = "docker"
max_shell_commands_per_session = 10
max_file_access_size = "100MB"
allowed_network_domains = ["api.github.com", "docs.rust-lang.org"]
audit_log_enabled = true
audit_log_path = "~/.codex/audit.log"
"""
WITHOUT_DOCKER = SAMPLE.replace('sandbox_policy = "docker"\n', "")


@pytest.mark.slow
def test_without_an_engine_the_sample_refuses_commands_and_says_why(
    desk: Any, user_home: str
) -> None:
    (desk.home / "config.toml").write_text(f'{SAMPLE}[sandbox]\nengine = "/no/such/engine"\n')
    ran = desk.run("call", "-c", "on_ask=allow", "shell_command", '{"command": "echo ran"}')
    assert ran.code == 1
    assert "no container engine answers [/no/such/engine: " in ran.out
    doctor = desk.run("doctor", "-v")
    assert doctor.code == 1
    assert "a session uses: nothing; commands are refused" in doctor.out
    assert "/no/such/engine" in doctor.out


@pytest.mark.slow
def test_the_missions_sample_works_as_written(desk: Any, user_home: str) -> None:
    (desk.home / "config.toml").write_text(SAMPLE)
    log = Path(user_home, ".codex", "audit.log")
    shutil.rmtree(log.parent, ignore_errors=True)  # of another test
    read = ("call", "list_dir", '{"dir_path": "."}')
    asked = desk.run(*read)
    assert (asked.code, "needs approval" in asked.out) == (1, True), "required asks about all"
    for _ in range(2):
        assert desk.run("call", "-c", "on_ask=allow", *read[1:]).code == 0
    assert log.is_file()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1)), "one chain"
    assert len({line["session"] for line in lines}) == 3
    checked = desk.run("audit", "verify")
    assert checked.code == 0
    assert checked.out.startswith(f"{log}: All {len(lines)} lines are intact.")
    shown = desk.run("audit", "show").out
    assert shown.count("list_dir") == 3
    assert shown.count("session_start") == 3


def test_doctor_says_what_a_session_with_these_settings_would_use(
    desk: Any, user_home: str
) -> None:
    (desk.home / "config.toml").write_text(WITHOUT_DOCKER)
    said = desk.run("doctor", "-v").out.splitlines()
    assert any(line.startswith("a session uses: ") for line in said)
    source = f"({desk.home}/config.toml (tool_security.approval_policy))"
    assert f'approval_policy = "strict"  {source}' in said
    reached = "commands reach only api.github.com, docs.rust-lang.org"
    assert (
        f"{reached} (tool_security.allowed_network_domains binds tools and MCP servers, too)"
        in said
    )
    assert "commands in a session: at most 10" in said
    assert "files: at most 100,000,000 bytes" in said
    assert f"audit log: {user_home}/.codex/audit.log" in said
    without = desk.run(
        "doctor", "-v", "-c", "tool_security.audit_log_enabled=false"
    ).out.splitlines()
    assert "audit log: off" in without


def test_gc_removes_old_audit_logs_and_leaves_open_ones(desk: Any) -> None:
    from toolrest.gate.audit.log import AuditLog

    folder = desk.home / "audit"
    with AuditLog(folder, "ended", home=desk.home) as log:
        log.open()
    with AuditLog(folder, "open", home=desk.home) as log:
        log.open()
        (folder / "notes.txt").write_text("mine")
        for file in folder.iterdir():
            os.utime(file, (time.time() - 40 * 86400,) * 2)
        assert "audit: 1 would be removed" in desk.run("gc", "-n").out
        assert (folder / "ended.jsonl").exists()
        assert "audit: 1 removed" in desk.run("gc").out
        assert sorted(p.name for p in folder.iterdir()) == [
            *("notes.txt", "open.jsonl", "open.jsonl.head")
        ]
