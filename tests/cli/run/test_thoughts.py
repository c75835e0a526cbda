"""What `toolrest exec` shows of a model's thoughts, and the program that hears of a turn's end."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from toolrest.testing import Call, Say, Think

THINKS = [[Think("hm, let me see"), Say("the answer")]]


@pytest.mark.parametrize(
    ("wire", "flags", "shown"),
    [
        ("responses", (), True),
        ("responses", ("hide_agent_reasoning=true",), False),
        ("anthropic", ("hide_agent_reasoning=true",), False),
        ("chat", (), False),
        ("chat", ("show_raw_agent_reasoning=true",), True),
        ("chat", ("show_raw_agent_reasoning=true", "hide_agent_reasoning=true"), False),
    ],
)
def test_thoughts_are_shown_as_the_settings_say(
    desk: Any, serve: Any, wire: str, flags: tuple[str, ...], shown: bool
) -> None:
    serve(THINKS * 2, wire)
    options = [word for flag in flags for word in ("-c", flag)]
    ran = desk.run("exec", "--json", *options, "go")
    assert (ran.code, ran.result["status"]) == (0, "completed")
    thoughts = [item["text"] for item in ran.items("reasoning")]
    assert thoughts == (["hm, let me see"] if shown else [])
    ran = desk.run("exec", *options, "go")
    assert ran.out == "the answer\n"
    assert ("hm, let me see" in ran.err) == shown


@pytest.mark.slow
def test_a_program_hears_of_the_end_and_sub_agents_do_not_count(
    desk: Any, serve: Any, tmp_path: Path
) -> None:
    script = tmp_path / "tell.py"
    script.write_text(
        "import os, sys, time\n"
        "time.sleep(0.3)\n"  # longer than the command that started it lives
        f"with open({str(tmp_path / 'told')!r}, 'a') as file:\n"
        "    file.write(sys.argv[1] + '\\n')\n"
    )
    argv = json.dumps([sys.executable, "-I", "-S", str(script)])
    serve([Call("spawn_agent", {"message": "look"}), Call("wait", {}), Say("end"), Say("end")])
    ran = desk.run("exec", "--json", "-c", f"notify={argv}", "go")
    assert ran.code == 0
    told_to = tmp_path / "told"
    deadline = time.monotonic() + 60
    while not (told_to.exists() and told_to.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (line,) = told_to.read_text().splitlines()
    told = json.loads(line)
    assert told["thread-id"] == ran.lines[0]["thread_id"]
    assert (told["input-messages"], told["last-assistant-message"]) == (["go"], "end")
    assert told["cwd"] == str(desk.workspace)


def test_a_project_names_no_program(desk: Any, serve: Any, tmp_path: Path) -> None:
    serve(["done"])
    (desk.workspace / ".toolrest").mkdir()
    pwned = tmp_path / "pwned"
    (desk.workspace / ".toolrest" / "config.toml").write_text(f'notify = ["touch", "{pwned}"]\n')
    assert desk.run("exec", "go").code == 0, "an untrusted folder's file is not read"
    assert desk.run("trust").code == 0
    ran = desk.run("exec", "go")
    assert ran.code == 2
    assert "a project's file may not set notify" in ran.err
    assert not pwned.exists()
