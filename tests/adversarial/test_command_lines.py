"""Command lines of security reviews: what may write, run, connect or leak never runs unasked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from toolrest import Toolrest
from toolrest.policy.rules.rules import Rules
from toolrest.policy.shell.special_commands import WRAPPERS, XARGS
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.outcome import Setting, outcome

LINES = Path(__file__).parents[1] / "data" / "command_lines.jsonl"


def answer(line: str) -> str:
    verdict = judge(line, cwd="/home/u/proj", home="/home/u", shell="bash")
    return outcome(verdict, Rules(), Setting("untrusted", "workspace-write")).answer


def test_no_line_of_the_reviews_runs_unasked() -> None:
    rows = [json.loads(line) for line in LINES.read_text().splitlines()]
    asked = [row["line"] for row in rows if row["untrusted"] == "ask"]
    assert len(asked) > 800
    assert [line for line in asked if answer(line) == "allow"] == []


@pytest.mark.parametrize(
    "line",
    [
        "env --split='touch PWN' ls",
        "env --spl='touch PWN' ls",
        "timeout 5 env --split='touch PWN' ls",
        "bash -c \"env --split='touch PWN' ls\"",
        r"\time --output=PWN --format=T ls",
        "echo x | xargs --process-slot-var=PATH cat",
        "echo PWN | xargs --replace touch cat",
        "git rev-parse --help",
        "git --no-pager count-objects --help",
        "git branch --list --sort=signature",
        "git tag --list '--format=%(*signature)'",
        "git log --format=%+G?",
    ],
)
async def test_a_session_does_not_run_it_unasked(line: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    async with Toolrest(
        tmp_path / "work", approval_policy="untrusted", tools=["exec_command"]
    ) as rest:
        output = await rest.call("exec_command", {"cmd": line})
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"
    assert not (tmp_path / "work" / "PWN").exists()


NAMED = [
    "source .env",
    ". ./.env",
    "xargs -a .env echo",
    "xargs --arg-file=.env echo",
    "cat $'.env'",
    r"cat $'\x2eenv'",
    "cat .env{,}",
    "cat {a,.env}",
    "cat .e{m..o}v",
    "wc --files0-from=.env",
    "du --files0=.env",
    "grep -f .env a",
    "rg --file=.env a",
    "git diff --no-index a .env",
    "git grep --no-index x .env",
]


@pytest.mark.parametrize("line", NAMED)
async def test_a_hidden_file_that_is_named_is_refused_without_a_sandbox(
    line: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / ".env").write_text("KEY=much-too-secret\n")
    (work / "a").write_text("a\n")
    async with Toolrest(
        work, sandbox_mode="danger-full-access", approval_policy="never", tools=["exec_command"]
    ) as rest:
        output = await rest.call("exec_command", {"cmd": line})
    assert output.failure is not None
    assert output.failure.kind == "policy_denied"
    assert "much-too-secret" not in output.text


PROGRAMS = {**WRAPPERS, "xargs": XARGS}
SHOWN = [name for name, wrapper in PROGRAMS.items() if wrapper.transparent or name == "xargs"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(SHOWN) - {"builtin"}))
def test_an_option_of_a_wrapper_is_listed_or_makes_the_line_unreadable(name: str) -> None:
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    shown = subprocess.run(
        [program, "--help"], capture_output=True, text=True, timeout=30, check=False
    )
    options = set(re.findall(r"--[a-z0-9][a-z0-9-]+", shown.stdout + shown.stderr))
    options -= {"--help", "--version"}
    wrapper = PROGRAMS[name]
    listed = {*wrapper.longs, *wrapper.long_takes, *wrapper.long_may_take}
    assert listed <= options | {"--interactive"}, "a list is of what the program has"
    for option in options:
        for length in range(3, len(option) + 1):
            written = option[:length]
            if written in listed:
                continue
            for line in (f"{name} {written}=x ls", f"{name} {written} ls"):
                assert answer(line) != "allow", line
