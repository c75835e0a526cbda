"""Login shells: read once, exact, and never worse than reading the profile each time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import run
from toolrest.process.shells import login_env as login
from toolrest.process.shells.environment import EnvironmentPolicy
from toolrest.process.shells.login_env import LoginShells, LoginStart, stamp_of
from toolrest.process.shells.shells import Shell

BASH = Shell("bash", "/bin/bash")
LIMIT = login.CAPTURE_LIMIT


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a shell takes to start is the machine's affair; one test is about the limit."""
    monkeypatch.setattr(login, "CAPTURE_LIMIT", 60)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "PAGER": "cat", "LC_ALL": "C.UTF-8"}


@asynccontextmanager
async def unconfined(command: Command) -> AsyncIterator[Command]:
    yield command


@pytest.fixture
def prepare(owner: Owner, home: Path, env: dict[str, str]) -> Callable[..., object]:
    shells = LoginShells(owner, unconfined)

    async def prepared(
        profile: str | None = None, shell: Shell = BASH, line: str = "x"
    ) -> LoginStart:
        if profile is not None:
            (home / ".profile").write_text(profile)
        return await shells.prepare(shell, "x", env, str(home), forced=("PAGER",))

    return prepared


class Counted:
    """Confines nothing, and counts the commands."""

    count = 0

    @asynccontextmanager
    async def __call__(self, command: Command) -> AsyncIterator[Command]:
        self.count += 1
        yield command


async def test_the_profile_s_variables_without_the_profile(
    owner: Owner, home: Path, env: dict[str, str]
) -> None:
    profile = "echo noise; export GREETING='hello\nworld' PATH=$HOME/bin:$PATH; unset PAGER"
    (home / ".profile").write_text(profile)
    calls = Counted()
    shells = LoginShells(owner, calls)
    for _ in range(3):
        argv, found, _ = await shells.prepare(BASH, "echo", env, str(home), forced=("PAGER",))
        assert argv == ("/bin/bash", "-c", "echo")
        assert found["GREETING"] == "hello\nworld"
        assert found["PATH"].startswith(f"/usr/bin:/bin:{home}/bin:")
        assert found["PAGER"] == "cat", "what is forced stays"
    assert calls.count == 3, "without a shell, as a login shell, and to compare"


async def test_the_same_as_a_real_login_shell(
    owner: Owner, home: Path, env: dict[str, str]
) -> None:
    (home / ".bash_profile").write_text(
        "export A=1 B='two words' PATH=/opt/x:$PATH; greet() { echo hi; }\n"
        "get_token() { greet | cat; }; PROMPT_COMMAND=greet; alias ll=ls; [[ a =~ a ]]\n"
    )
    line = "get_token; printenv A B PATH PAGER; umask; pwd; set -o; echo $#; ll 2>&1; echo $?"
    argv, found, _ = await LoginShells(owner, unconfined).prepare(BASH, line, env, "/")
    assert argv[1] == "-c"
    ours = await run(owner, Command(argv, "/", found))
    theirs = await run(owner, Command(BASH.argv(f"PATH={found['PATH']}; {line}"), "/", env))
    assert ours.stdout == theirs.stdout
    assert "hi\n" in ours.stdout


@pytest.mark.parametrize(
    "profile",
    [
        "exit 3",
        "umask 077",
        "shopt -s expand_aliases; alias ll=ls",
        "shopt -s extglob",
        "set -o noglob",
        "cd /",
        "UNEXPORTED=1",
        "ulimit -S -n 100",
        "trap 'echo bye' EXIT",
        "exec sh -c 'echo gone'",
        "kill -9 $$",
        "exec >/dev/null",
        "yes | head -c 3000000",
    ],
)
async def test_what_only_a_login_shell_can_do_is_left_to_it(
    prepare: Callable[..., asyncio.Future[LoginStart]], env: dict[str, str], profile: str
) -> None:
    argv, found, _ = await prepare(f"PATH=/usr/bin:/bin\n{profile}")
    assert argv[:2] == ("/bin/bash", "-lc")
    assert argv[2] in ("x", "export PATH=/usr/bin:/bin${PATH:+:$PATH}; x")
    assert found == env


@pytest.mark.parametrize(
    "profile", ["echo noise; echo more >&2", "read x </dev/tty", "read x", "syntax error (", ""]
)
async def test_odd_profiles_do_no_harm(
    prepare: Callable[..., asyncio.Future[LoginStart]], profile: str
) -> None:
    argv, _, _ = await prepare(f"export OK=1\n{profile}\nunset x")
    assert argv[1] == "-c"


@pytest.mark.slow
async def test_a_profile_that_hangs(
    owner: Owner, home: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LIMIT < 10
    monkeypatch.setattr(login, "CAPTURE_LIMIT", 0.5)
    (home / ".profile").write_text("sleep 900")
    calls = Counted()
    shells = LoginShells(owner, calls)
    line = "export PATH=/usr/bin:/bin${PATH:+:$PATH}; x"
    for _ in range(2):
        assert await shells.prepare(BASH, "x", env, "/") == (("/bin/bash", "-lc", line), env, None)
    assert calls.count == 1, "known to hang, so not tried again"


async def test_secrets_of_the_profile_are_withheld(
    owner: Owner, home: Path, env: dict[str, str]
) -> None:
    (home / ".profile").write_text("export GH_TOKEN=t OPENAI_API_KEY=k PLAIN=p EXTRA=e MINE=m")
    policy = EnvironmentPolicy(inherit="core", exclude=("EXTRA",))
    shells = LoginShells(owner, unconfined, policy, never=("MINE",))
    argv, found, _ = await shells.prepare(BASH, "x", env, "/")
    assert argv[1] == "-c"
    assert found["PLAIN"] == "p"
    assert not {"GH_TOKEN", "OPENAI_API_KEY", "EXTRA", "MINE"} & set(found)


async def test_a_changed_profile_is_read_again(
    prepare: Callable[..., asyncio.Future[LoginStart]], home: Path
) -> None:
    assert (await prepare("export V=1"))[1]["V"] == "1"
    assert (await prepare("export V=two"))[1]["V"] == "two"
    (home / ".bash_profile").write_text("export V=3")
    assert (await prepare())[1]["V"] == "3"
    os.replace(home / ".profile", home / ".bash_profile")
    assert (await prepare())[1]["V"] == "two"


async def test_another_environment_is_another_capture(
    owner: Owner, home: Path, env: dict[str, str]
) -> None:
    (home / ".profile").write_text("export PATH=/first:$PATH")
    shells = LoginShells(owner, unconfined)
    for path in ("/usr/bin:/bin", "/bin:/usr/bin"):
        _, found, _ = await shells.prepare(BASH, "x", env | {"PATH": path}, "/")
        assert found["PATH"].startswith(f"{path}:/first:")
    results = await asyncio.gather(*(shells.prepare(BASH, "x", env, "/") for _ in range(5)))
    assert all(result == results[0] for result in results)


async def test_forced_variables_may_change_without_a_new_look(
    owner: Owner, home: Path, env: dict[str, str]
) -> None:
    (home / ".profile").write_text("export V=1 PAGER=less")
    calls = Counted()
    shells = LoginShells(owner, calls)
    asking = env | {"GIT_TERMINAL_PROMPT": "0"}
    _, first, _ = await shells.prepare(
        BASH, "x", asking, "/", forced=("PAGER", "GIT_TERMINAL_PROMPT")
    )
    _, second, _ = await shells.prepare(BASH, "x", env | {"PAGER": "more"}, "/", forced=("PAGER",))
    assert calls.count == 3
    assert (first["PAGER"], first["GIT_TERMINAL_PROMPT"], first["V"]) == ("cat", "0", "1")
    assert (second["PAGER"], second.get("GIT_TERMINAL_PROMPT"), second["V"]) == ("more", None, "1")


async def test_without_login_nothing_is_read(owner: Owner, home: Path, env: dict[str, str]) -> None:
    (home / ".profile").write_text("export V=1")

    def never(_command: Command) -> AbstractAsyncContextManager[Command]:
        raise AssertionError("no shell should have been started")

    shells = LoginShells(owner, never)
    assert await shells.prepare(BASH, "x", env, "/", login=False) == (
        ("/bin/bash", "-c", "x"),
        env,
        env["PATH"],
    )
    powershell = Shell("powershell", "/usr/bin/pwsh")
    assert (await shells.prepare(powershell, "x", env, "/"))[0] == (
        "/usr/bin/pwsh",
        "-Command",
        "x",
    )


async def test_plain_sh(prepare: Callable[..., asyncio.Future[LoginStart]]) -> None:
    argv, found, _ = await prepare("export V='a b'; PATH=/x:$PATH", shell=Shell("sh", "/bin/sh"))
    assert argv == ("/bin/sh", "-c", "x")
    assert (found["V"], found["PATH"].split(":")[:3]) == ("a b", ["/usr/bin", "/bin", "/x"])


async def test_variables_of_the_confinement_do_no_harm(
    owner: Owner, home: Path, env: dict[str, str]
) -> None:
    @asynccontextmanager
    async def marked(command: Command) -> AsyncIterator[Command]:
        more = {"TOOLREST_SANDBOX": "x", "CACHE_DIR": "/c"}
        yield Command(command.argv, command.cwd, {**command.env, **more})

    (home / ".profile").write_text("export V=1")
    argv, found, _ = await LoginShells(owner, marked).prepare(BASH, "x", env, "/")
    assert (argv[1], found["V"]) == ("-c", "1")


async def test_a_failing_confinement_falls_back(owner: Owner, env: dict[str, str]) -> None:
    @asynccontextmanager
    async def broken(command: Command) -> AsyncIterator[Command]:
        yield Command(("/no/such/launcher", *command.argv), command.cwd, command.env)

    argv, found, _ = await LoginShells(owner, broken).prepare(BASH, "x", env, "/")
    assert (argv[1], found) == ("-lc", env)


async def seen(owner: Owner, start: LoginStart, *names: str) -> list[str]:
    """What a command really finds in these variables."""
    result = await run(owner, Command(start.argv, "/", start.env))
    values = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
    return [values.get(name, "") for name in names]


@pytest.mark.parametrize("state", ["", "UNEXPORTED=1", "umask 077", "exit_code=$(exit 3)"])
@pytest.mark.parametrize("shell", [BASH, Shell("sh", "/bin/sh")])
async def test_what_the_starting_shell_had_stays_and_the_profile_adds(
    owner: Owner, home: Path, env: dict[str, str], shell: Shell, state: str
) -> None:
    """conda's own start in a profile, which sets PATH anew, took an activated one away."""
    (home / ".profile").write_text(
        "PATH=/opt/conda/bin:/usr/bin:/bin\nexport PATH CONDA_PREFIX=/opt/conda NVM_DIR=/nvm\n"
        f"unset VIRTUAL_ENV\n{state}\n"
    )
    env |= {"PATH": "/w/.venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": "/w/.venv"}
    env |= {"CONDA_PREFIX": "/opt/conda/envs/tea", "FOO-BAR": "odd", "BASH_FUNC_f%%": "() { :; }"}
    start = await LoginShells(owner, unconfined).prepare(shell, "env", env, "/")
    assert start.path == "/w/.venv/bin:/usr/bin:/bin:/opt/conda/bin"
    assert start.argv[1] == ("-c" if not state else "-lc")
    names = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "NVM_DIR")
    expected = [start.path, "/w/.venv", "/opt/conda/envs/tea", "/nvm"]
    assert await seen(owner, start, *names) == expected


async def test_path_comes_first_even_where_the_profile_is_not_known(
    owner: Owner, home: Path, env: dict[str, str]
) -> None:
    profile = '[ -z "$SEEN" ] || exit 3; export SEEN=1 PATH=/opt/x:/bin'
    (home / ".profile").write_text(f"exec 3>&1; {profile}; yes | head -c 3000000\n")
    start = await LoginShells(owner, unconfined).prepare(BASH, "printenv PATH", env, "/")
    result = await run(owner, Command(start.argv, "/", start.env))
    assert start.path is None
    assert result.stdout.rstrip().endswith("/usr/bin:/bin:/opt/x:/bin")


async def test_a_secret_is_not_put_into_the_arguments(
    owner: Owner, home: Path, env: dict[str, str]
) -> None:
    policy = EnvironmentPolicy(ignore_default_excludes=True)
    (home / ".profile").write_text("umask 077; export MY_TOKEN=other EDITOR=vi PAGER=less")
    env |= {"MY_TOKEN": "sesame", "EDITOR": "nano"}
    start = await LoginShells(owner, unconfined, policy).prepare(BASH, "env", env, "/")
    assert "sesame" not in " ".join(start.argv)
    assert await seen(owner, start, "EDITOR", "PAGER") == ["nano", "cat"]


async def test_programs_that_are_not_the_hosts_have_their_own_path(
    owner: Owner, home: Path, env: dict[str, str]
) -> None:
    (home / ".profile").write_text("export PATH=/container/bin:/bin")
    shells = LoginShells(owner, unconfined, own_files=True)
    start = await shells.prepare(BASH, "printenv PATH", env, "/")
    assert (start.argv[1], start.path) == ("-c", "/container/bin:/bin")
    assert start.env["PATH"] == start.path


def test_the_files_that_are_watched(home: Path) -> None:
    before = stamp_of("zsh", {"HOME": str(home)})
    (home / ".zprofile").write_text("export A=1")
    assert stamp_of("zsh", {"HOME": str(home)}) != before
    elsewhere = home / "dots"
    elsewhere.mkdir()
    (elsewhere / ".zshenv").write_text("")
    found = stamp_of("zsh", {"HOME": str(home), "ZDOTDIR": str(elsewhere)})
    assert str(elsewhere / ".zshenv") in [row[0] for row in found]
