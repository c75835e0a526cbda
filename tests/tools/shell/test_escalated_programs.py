"""An escalated command: the programs that are shown and granted are those that start outside."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import solid_ground

from toolrest import Toolrest
from toolrest.gate.approval.request import ApprovalRequest
from toolrest.items import ToolOutput
from toolrest.process.shells import login_env

pytestmark = [pytest.mark.needs("sandbox"), pytest.mark.slow]

OUTSIDE = {"sandbox_permissions": "require_escalated", "justification": "May I install tea?"}
UNKNOWN = "which programs it starts is not known"


class Person(list[ApprovalRequest]):
    """Remembers what it was asked, does what the test has it do meanwhile, and answers."""

    def __init__(self, *answers: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.answers = [*answers]
        self.meanwhile = meanwhile

    def __call__(self, request: ApprovalRequest) -> str:
        self.append(request)
        self.meanwhile()
        return self.answers.pop(0) if self.answers else "approved"

    @property
    def offered(self) -> list[str]:
        """What the last question offers besides this one call, in its words."""
        return [choice.sentence for choice in self[-1].choices if choice.scope != "once"]


class Desk:
    """A home with a login profile, two folders with a `pip` each, and a workspace."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.workspace = home / "tea-shop"
        self.workspace.mkdir()
        for name in ("one", "two"):
            self.program(
                home / name / "pip", f"echo {name}s pip outside=$([ -w {home} ] && echo y)"
            )
        (home / "base").mkdir()  # programs of the system, and no pip
        for name in ("bash", "env", "nohup", "sh", "true"):
            (home / "base" / name).symlink_to(Path("/usr/bin", name))
        self.env = {**os.environ, "HOME": str(home), "PATH": f"{home}/base"}

    def program(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def profile(self, text: str) -> None:
        (self.home / ".bash_profile").write_text(text)

    def session(self, person: Any, **options: Any) -> Toolrest:
        return Toolrest(
            self.workspace, on_ask=person, env=self.env, sandbox_mode="workspace-write",
            tools=["all"], **options,
        )  # fmt: skip

    async def ask(self, rest: Toolrest, line: str, **more: Any) -> ToolOutput:
        return await rest.call("exec_command", {"cmd": line, "shell": "bash", **OUTSIDE, **more})


@pytest.fixture
def desk() -> Iterator[Desk]:
    with tempfile.TemporaryDirectory(dir=solid_ground()) as made:
        yield Desk(Path(made))


LINES = ["pip", "env pip", "sh -c pip", "true | pip", "cd . && nohup pip"]


@pytest.mark.parametrize("line", LINES)
async def test_a_profile_that_puts_another_folder_first(desk: Desk, line: str) -> None:
    """The question showed the pip of the starting shell's PATH, and the profile's ran."""
    desk.env["PATH"] = f"{desk.home}/one:/usr/bin:/bin"
    desk.profile(f"export PATH={desk.home}/two:$PATH\n")
    person = Person("approved")
    async with desk.session(person) as rest:
        output = await desk.ask(rest, line)
    assert "ones pip outside=y" in output.text
    assert f"({desk.home}/one/pip)" in person.offered[0]


@pytest.mark.parametrize("line", LINES)
async def test_what_the_profile_adds_is_shown_and_runs(desk: Desk, line: str) -> None:
    """Its PATH was not known before the start, so that nothing at all was shown."""
    desk.profile(f"export PATH={desk.home}/two:$PATH\n")
    person = Person("approved")
    async with desk.session(person) as rest:
        output = await desk.ask(rest, line)
    assert "twos pip outside=y" in output.text
    assert f"({desk.home}/two/pip)" in person.offered[0]


async def test_a_profile_that_differs_inside_and_outside_the_sandbox(desk: Desk) -> None:
    desk.profile(
        f"touch {desk.home}/outside 2>/dev/null && PATH={desk.home}/two:$PATH || "
        f"PATH={desk.home}/one:$PATH\nexport PATH\n"
    )
    person = Person("approved")
    async with desk.session(person) as rest:
        output = await desk.ask(rest, "pip")
    assert f"({desk.home}/one/pip)" in person.offered[0]
    assert "ones pip outside=y" in output.text
    assert not (desk.home / "outside").exists(), "no profile was read outside"


async def test_a_grant_for_the_session_holds_for_that_program(desk: Desk) -> None:
    desk.profile(f"export PATH={desk.home}/one:$PATH\n")
    person = Person("approved_for_session")
    async with desk.session(person) as rest:
        first = await desk.ask(rest, "pip")
        again = await desk.ask(rest, "pip")
        assert len(person) == 1
        desk.profile(f"export PATH={desk.home}/two:$PATH\n")
        other = await desk.ask(rest, "pip")
    assert ["ones" in first.text, "ones" in again.text, "twos" in other.text] == [True] * 3
    assert len(person) == 2
    assert f"({desk.home}/two/pip)" in person.offered[0]


async def test_another_profile_between_the_answer_and_the_start(desk: Desk) -> None:
    """As when a turn that had changed it is taken back."""
    desk.profile(f"export PATH={desk.home}/one:$PATH\n")
    person = Person(meanwhile=lambda: desk.profile(f"export PATH={desk.home}/two:$PATH\n"))
    async with desk.session(person) as rest:
        output = await desk.ask(rest, "pip")
    assert len(person) == 1
    assert "ones pip outside=y" in output.text


async def test_start_up_files_that_even_a_plain_shell_reads(desk: Desk) -> None:
    short = desk.home / "short"
    short.write_text("true\n")
    desk.env |= {"BASH_ENV": str(short), "PATH": f"{desk.home}/one:/usr/bin:/bin"}
    person = Person(meanwhile=lambda: short.write_text(f"PATH={desk.home}/two:$PATH\n"))
    async with desk.session(person) as rest:
        for login in (True, False):
            assert "ones pip" in (await desk.ask(rest, "pip", login=login)).text


async def test_undo_of_the_profile_in_between(desk: Desk, toolrest_home: Path) -> None:
    """A turn changed what the profile says; it is undone before the approved call is made."""
    desk.env["HOME"] = str(desk.workspace)
    settings = desk.workspace / ".bash_profile"
    settings.write_text(f"export PATH={desk.home}/one:$PATH\n")
    change = f"echo 'export PATH={desk.home}/two:$PATH' > {settings.name}"
    async with desk.session("defer", home=str(toolrest_home)) as rest:
        assert not (await rest.call("exec_command", {"cmd": change})).failed
        await desk.ask(rest, "pip")
        (first,) = rest.pending
        await rest.undo()
        assert "one" in settings.read_text()
        refused = await rest.resume(first, "approved")
        (second,) = rest.pending
        output = await rest.resume(second, "approved")
    assert refused.failed
    assert second.id != first.id
    assert "ones pip outside=y" in output.text


async def test_another_program_at_the_start_is_asked_about_with_both_paths(desk: Desk) -> None:
    desk.env["PATH"] = f"{desk.home}/new:{desk.home}/one:/usr/bin:/bin"

    def appear() -> None:
        desk.program(desk.home / "new" / "pip", "echo news pip")

    person = Person(meanwhile=appear)
    async with desk.session(person) as rest:
        output = await desk.ask(rest, "sh -c pip")
    changed = f"pip was {desk.home}/one/pip and is {desk.home}/new/pip now"
    assert [changed in request.reason for request in person] == [False, True]
    assert "news pip" in output.text


async def test_the_second_time_it_is_refused(desk: Desk) -> None:
    desk.env["PATH"] = f"{desk.home}/c:{desk.home}/b:{desk.home}/one:/usr/bin:/bin"
    folders = iter("bc")

    def appear() -> None:
        desk.program(desk.home / next(folders) / "pip", "echo ran")

    person = Person(meanwhile=appear)
    async with desk.session(person) as rest:
        output = await desk.ask(rest, "env pip")
    assert len(person) == 2
    assert output.failed
    assert f"pip was {desk.home}/b/pip and is {desk.home}/c/pip now" in output.text


@pytest.mark.parametrize(
    ("profile", "line", "why"),
    [
        ("umask 077", "pip", "the login profile chooses them while it runs"),
        ("sleep 900", "pip", "the login profile chooses them while it runs"),
        ("pip() { echo mine; }", "pip", "pip is a function of the login profile"),
        ("", "$PIP install", "a part of the line cannot be read"),
        ("", "pip; $PIP", "a part of the line cannot be read"),
        ("", "PATH=/x:$PATH pip", "the line has a PATH of its own"),
        ("", "env PA''TH=bin pip", "the line has a PATH of its own"),
        ("", "eval 'P''ATH=bin'; pip", "the line has a PATH of its own"),
        ("", 'export PAT""H=bin:$P; pip', "the line has a PATH of its own"),
        ("", "declare ${v}H=bin; pip", "declare may set PATH"),
        ("", r"env $'\x50ATH=bin' pip", "env may set PATH"),
        ("", "command -p pip", "command chooses the PATH of what it runs"),
        ("", ". ./activate; pip", ". reads a file that may change PATH"),
        ("", "bash -lc pip", "bash reads a profile of its own"),
        ("", "env -i pip", "env chooses the PATH of what it runs"),
        ("", "pip() { :; }; pip", "the line defines functions"),
        ("", "pipp", "pipp is not found"),
    ],
)
async def test_programs_that_are_not_known_are_never_granted(
    desk: Desk, profile: str, line: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in profile:
        monkeypatch.setattr(login_env, "CAPTURE_LIMIT", 0.5)
    desk.profile(f"export PATH={desk.home}/one:$PATH\n{profile}\n")
    person = Person("denied")
    async with desk.session(person) as rest:
        await desk.ask(rest, line)
    assert f"{UNKNOWN}: {why}" in person[0].reason
    assert person.offered == []


async def test_no_grant_covers_programs_that_are_not_known(desk: Desk) -> None:
    desk.profile(f"export PATH={desk.home}/one:$PATH\n")
    person = Person("approved_for_session", "denied")
    async with desk.session(person) as rest:
        await desk.ask(rest, "pip")
        desk.profile(f"export PATH={desk.home}/one:$PATH\numask 077\n")
        output = await desk.ask(rest, "pip")
    assert [UNKNOWN in request.reason for request in person] == [False, True]
    assert output.failed


async def test_a_program_of_the_project_is_shown_with_its_path(desk: Desk) -> None:
    pip = desk.program(desk.workspace / ".venv" / "bin" / "pip", "echo of the project")
    desk.env["PATH"] = f"{pip.parent}:/usr/bin:/bin"
    person = Person("denied")
    async with desk.session(person) as rest:
        await desk.ask(rest, "pip install tea")
    assert person[0].reason == f"May I install tea?; pip is {pip}"
    assert person.offered == []


@pytest.mark.parametrize("policy", ["never", "on-request"])
async def test_a_call_that_is_refused_reads_no_profile(desk: Desk, policy: str) -> None:
    """The mode never asks; or what the line names is hidden in every mode."""
    desk.env["HOME"] = str(desk.workspace)
    (desk.workspace / ".bash_profile").write_text("touch read\n")
    (desk.workspace / ".env").write_text("KEY=1")
    line = "pip" if policy == "never" else "cat .env"
    async with desk.session(Person(), approval_policy=policy) as rest:
        assert (await desk.ask(rest, line)).failed
    assert not (desk.workspace / "read").exists()


RESUME = """
import asyncio, sys
from toolrest import PendingApproval, Toolrest

async def main():
    async with Toolrest(
        sys.argv[1], on_ask="defer", sandbox_mode="workspace-write", tools=["all"], home=sys.argv[2]
    ) as rest:
        output = await rest.resume(PendingApproval.from_json(sys.stdin.read()), "approved")
        print(output.text)

asyncio.run(main())
"""


@pytest.mark.parametrize("changes", [False, True])
async def test_a_deferred_approval_that_another_process_runs(
    desk: Desk, toolrest_home: Path, changes: bool
) -> None:
    """The answer is for the programs that were shown; another PATH, and it is asked anew."""
    desk.profile(f"export PATH={desk.home}/one:$PATH\n")
    async with desk.session("defer", home=str(toolrest_home)) as rest:
        await desk.ask(rest, "env pip")
        waiting = rest.pending[0].to_json()
    if changes:
        desk.profile(f"export PATH={desk.home}/two:$PATH\n")
    argv = [sys.executable, "-c", RESUME, str(desk.workspace), str(toolrest_home)]
    done = subprocess.run(argv, env=desk.env, input=waiting, capture_output=True, text=True)
    assert ("ones pip outside=y" in done.stdout) == (not changes), done.stderr
    assert "twos" not in done.stdout
    assert ("is pending as" in done.stdout) == changes


SCRIPTS = ["bash ./e", "sh -x e", "bash < e", "python3 e", "cd . && bash e", "true; sh ./e", "./e"]
SCRIPTS += ["sh -e e", "bash -xp ./e"]


@pytest.mark.parametrize("line", SCRIPTS)
@pytest.mark.parametrize("there", [True, False])
async def test_a_script_of_the_workspace_is_asked_about_each_time(
    desk: Desk, line: str, there: bool
) -> None:
    """Failed before: a grant for the session held for what a command wrote into it later."""
    desk.env["PATH"] = "/usr/bin:/bin"
    script = desk.workspace / "e"
    if there:
        desk.program(script, "true")
    person = Person("approved_for_session", "denied")
    async with desk.session(person) as rest:
        await desk.ask(rest, line)
        assert person.offered == []
        desk.program(script, f"touch {desk.home}/escaped")
        output = await desk.ask(rest, line)
    assert len(person) == 2
    assert output.failure is not None
    assert not (desk.home / "escaped").exists()


@pytest.mark.parametrize("line", ["bash -c true", "sh -c 'env true'", "python3 -c 'pass'"])
async def test_a_text_for_an_interpreter_is_granted_as_before(desk: Desk, line: str) -> None:
    desk.env["PATH"] = "/usr/bin:/bin"
    person = Person("approved_for_session")
    async with desk.session(person) as rest:
        await desk.ask(rest, line)
        assert person.offered
        await desk.ask(rest, line)
    assert len(person) == 1


async def test_a_rule_for_a_script_of_the_workspace_does_not_let_it_out(desk: Desk) -> None:
    """A rule knows no content, as for programs of the workspace."""
    desk.env["PATH"] = "/usr/bin:/bin"
    desk.program(desk.workspace / "e", f"touch {desk.home}/out 2>/dev/null && echo outside; true")
    rules = Path(os.environ["TOOLREST_HOME"], "rules")
    rules.mkdir(parents=True, exist_ok=True)
    (rules / "default.rules").write_text('prefix_rule(pattern=["bash", "./e"], outside=True)\n')
    async with desk.session(Person()) as rest:
        output = await rest.call("exec_command", {"cmd": "bash ./e", "shell": "bash"})
    assert output.success
    assert "outside" not in output.text
