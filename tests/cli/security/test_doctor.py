"""`toolrest doctor`: the verdict first, in five lines; it stops at nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from tests.cli.conftest import Ran
from tests.forked import TOOLREST
from tests.machine import REPOSITORY

from toolrest.sandbox.weak import WEAK_FACTS

KEY = {"OPENAI_API_KEY": "sk-a-key-0123456789"}
NAMES = ["sandbox:", "model:", "folder:", "programs:", "to do:"]


def contained(desk: Any, *arguments: str, landlock: bool = True) -> Ran:
    """Run `toolrest` with the rights of a plain container."""
    options = [] if landlock else ["--no-landlock"]
    container = (str(REPOSITORY / "tests/plain_container.py"), *options)
    done = subprocess.run(
        [sys.executable, *container, "--", TOOLREST, *arguments],
        cwd=desk.workspace,
        env={**os.environ, **KEY},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def rows(ran: Ran) -> dict[str, str]:
    """The five lines by their names."""
    lines = ran.out.splitlines()
    assert [line.split(" ")[0].replace("to", "to do:") for line in lines[:5]] == NAMES, ran.out
    return {name: line.removeprefix(name).strip() for name, line in zip(NAMES, lines, strict=False)}


@pytest.mark.needs("namespaces")
@pytest.mark.slow
def test_five_lines_where_all_is_well(desk: Any) -> None:
    """Failed before: a hundred lines, the verdict among the last of them."""
    assert desk.run("trust", str(desk.workspace)).code == 0
    ran = desk.run("doctor", env=KEY)
    said = rows(ran)
    assert len(ran.out.splitlines()) == 5
    assert ran.code == 0, ran.out
    assert said["sandbox:"].startswith("bubblewrap (")
    assert "key: OpenAI, from OPENAI_API_KEY" in said["model:"]
    assert said["folder:"] == f"{desk.workspace} is trusted"
    assert said["to do:"] == "nothing"
    more = desk.run("doctor", "-v", env=KEY).out
    assert more.startswith(ran.out)
    assert "a session uses: bubblewrap" in more


@pytest.mark.slow
def test_a_search_that_nobody_would_answer_is_named(desk: Any) -> None:
    """Such a tool is not offered; the line names the settings that it lacks."""
    line = "web_search: not offered: web_search is not configured: set search.backend"
    words = ("doctor", "-v", "-c", "model=anthropic:claude-sonnet-4-5", "-c", "web_search=live")
    assert line in desk.run(*words, env=KEY).out
    own = ("-c", "search.backend=searxng", "-c", "search.url=https://search.example")
    assert "web_search: not offered" not in desk.run(*words, *own, env=KEY).out


@pytest.mark.needs("landlock")
@pytest.mark.slow
def test_a_weak_sandbox_is_its_first_line_and_the_way_out_its_last(desk: Any) -> None:
    """Failed before: the words "landlock works" and a hint far below."""
    ran = contained(desk, "doctor")
    said = rows(ran)
    assert said["sandbox:"] == WEAK_FACTS
    assert "--security-opt seccomp=unconfined" in said["to do:"]
    assert ran.code == 0, "a session can start"


@pytest.mark.slow
def test_where_no_sandbox_works_the_way_out_comes_first(desk: Any) -> None:
    ran = contained(desk, "doctor", landlock=False)
    said = rows(ran)
    assert ran.code == 1
    assert said["sandbox:"].startswith("none works here, so commands are refused (bubblewrap")
    assert "--security-opt seccomp=unconfined" in said["to do:"]
    assert "danger-full-access" not in ran.out


def test_without_a_key_no_session_can_start(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ran = desk.run("doctor")
    assert "Missing environment variable: `OPENAI_API_KEY`" in rows(ran)["model:"]
    assert "toolrest setup" in ran.out
    assert ran.code == 1


def test_a_broken_settings_file_does_not_stop_it(desk: Any) -> None:
    """Failed before: one line about the file, and nothing else."""
    (desk.home / "config.toml").write_text("model = [\n")
    ran = desk.run("doctor", env=KEY)
    said = rows(ran)
    assert ran.code == 1
    assert said["model:"] == "unknown"
    assert f"{desk.home}/config.toml" in said["to do:"]
    assert "not valid TOML" in said["to do:"]


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="no sysfs")
def test_a_home_that_cannot_be_written_does_not_stop_it(desk: Any) -> None:
    """Failed before: exit code 0, although no session could start. Not even root writes there."""
    ran = desk.run("doctor", env={**KEY, "TOOLREST_HOME": "/sys/toolrest"})
    said = rows(ran)
    assert ran.code == 1
    assert said["to do:"].startswith("cannot write to /sys/toolrest")
    assert "works" in said["sandbox:"] or WEAK_FACTS in said["sandbox:"] or "none" in ran.out
