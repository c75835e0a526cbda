"""Containers: what the engine is asked, and which one answers; real ones: tests/sandbox/kinds."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolrest import Toolrest
from toolrest.process.command import Command
from toolrest.process.limits import Limits
from toolrest.sandbox.backends import container_mounts
from toolrest.sandbox.backends.container import (
    ContainerEngine,
    ContainerOptions,
    answering_engine,
    env_parts,
)
from toolrest.sandbox.backends.container_box import AROUND, CLEAR, READY, Client
from toolrest.sandbox.confine import Sandbox
from toolrest.sandbox.environment import with_shell
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.sandbox.kernel.mounts import Mounts
from toolrest.sandbox.policy import Mode, SandboxPolicy

IMAGE = "localhost/toolrest-test"


@pytest.fixture
def policy(tmp_path: Path) -> SandboxPolicy:
    (tmp_path / "ws/.git/hooks").mkdir(parents=True)
    (tmp_path / "ws/.git/HEAD").write_text("ref: x\n")
    (tmp_path / "ws/sub").mkdir()
    (tmp_path / "ws/.env").write_text("SECRET\n")
    return SandboxPolicy.build(
        str(tmp_path / "ws"), str(tmp_path / "session"), hidden=[str(tmp_path / "ws/.env")]
    )


ENGINE = """#!{python}
# Stands for docker: notes what it is asked, and runs commands where they are.
import json, os, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
if "inspect" in words:
    print('["PATH=/image/bin"]')
elif "run" in words:
    print("/bin/sh\\n" + {ready!r}, flush=True)
    sys.stdin.read()
elif "ps" in words:
    print({left!r})
elif {around!r} in words:
    os.chdir({folder!r})
    argv = words[words.index({around!r}) + 2 :]  # without the shell that kills around it
    os.execvp(argv[0], argv)
"""


class Docker:
    """A program in the engine's place, and what it was asked; `left` are containers it lists."""

    def __init__(self, folder: Path, workspace: str, left: str = "") -> None:
        self.program = str(folder / "docker")
        self._log = folder / "log"
        text = ENGINE.format(
            python=sys.executable,
            log=str(self._log),
            ready=READY,
            around=AROUND,
            folder=workspace,
            left=left,
        )
        Path(self.program).write_text(text)
        Path(self.program).chmod(0o755)

    def asked(self, verb: str) -> list[list[str]]:
        """The argument lists with this verb."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [words for words in map(json.loads, lines) if verb in words]


@pytest.fixture
def docker(tmp_path: Path, policy: SandboxPolicy) -> Docker:
    return Docker(tmp_path, policy.workspace)


def engine_for(policy: SandboxPolicy, docker: Docker, **values: Any) -> ContainerEngine:
    limits = values.pop("limits", None)
    registry = os.path.join(os.path.dirname(policy.session_dir), "registry")
    options = ContainerOptions(IMAGE, **values)
    return ContainerEngine(policy, options, docker.program, registry, limits=limits)


def arguments(policy: SandboxPolicy, docker: Docker, **values: Any) -> list[str]:
    """What `run` was asked with, for the session's container."""
    engine = engine_for(policy, docker, **values)
    engine.confine(Command(("true",), policy.workspace, {})).release()
    engine.close()
    return docker.asked("run")[0]


def test_the_argument_list(policy: SandboxPolicy, docker: Docker) -> None:
    argv = arguments(
        policy,
        docker,
        engine_args=("--log-level=error",),
        run_args=("--cpus=2",),
        limits=Limits(processes=40, memory=1 << 30, file_size=1 << 20),
    )
    text = " ".join(argv)
    assert argv[:2] == ["--log-level=error", "run"]
    assert argv[-4:-1] == ["--", IMAGE, "-c"]
    for flags in (
        "--interactive --rm",
        "--read-only",
        "--network none",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--cpus=2",
        "--pids-limit 41",
        f"--memory {1 << 30}",
        f"--ulimit fsize={1 << 20}:{1 << 20}",
        f"--user {os.geteuid()}:{os.getegid()}",
        f"--mount type=bind,source={policy.workspace},target=/workspace ",
        f"--mount type=bind,source={policy.workspace},target={policy.workspace} ",
        "target=/workspace/.git/hooks,readonly",
        "target=/workspace/.env,readonly",
        "target=/workspace/.vscode,readonly",
    ):
        assert flags in text, flags
    assert f"source={policy.workspace}/.env" not in text


def test_one_container_and_an_exec_for_each_command(policy: SandboxPolicy, docker: Docker) -> None:
    engine = engine_for(policy, docker)
    for number in range(3):
        command = Command(("echo", str(number)), policy.workspace + "/sub", {"LD_PRELOAD": "/x"})
        prepared = engine.confine(command)
        assert prepared.command.argv[-2:] == ("echo", str(number))
        assert "/workspace/sub" in prepared.command.argv
        assert "LD_PRELOAD" not in " ".join(prepared.command.argv)
        assert "LD_PRELOAD" not in prepared.command.env
        variables = prepared.command.files[-1][1]
        assert b"LD_PRELOAD=/x\n" in variables
        assert b"PATH=/image/bin" in variables
        assert b"HOME=/tmp\n" in variables
        prepared.release()
    assert len(docker.asked("run")) == 1
    beside = [engine.confine(Command(("sh",), policy.workspace, {}, tty=True)) for _ in range(2)]
    assert len(docker.asked("run")) == 2
    assert all("--tty" in prepared.command.argv for prepared in beside)
    assert (Path(policy.workspace) / ".vscode").is_dir()  # while the container is there
    for prepared in beside:
        assert prepared.stop is not None
        prepared.stop()
        prepared.release()
    engine.close()
    assert not (Path(policy.workspace) / ".vscode").exists()
    names = [words[words.index("--name") + 1] for words in docker.asked("run")]
    assert {words[-1] for words in docker.asked("rm")} == set(names)


def test_a_file_that_must_be_hidden_makes_a_new_container(
    policy: SandboxPolicy, docker: Docker
) -> None:
    policy = replace(policy, hides=lambda _: lambda name: name.startswith(".env"))
    engine = engine_for(policy, docker)
    engine.confine(Command(("true",), policy.workspace, {})).release()
    (Path(policy.workspace) / ".env.new").write_text("SECRET\n")
    prepared = engine.confine(Command(("true",), policy.workspace, {}))
    (Path(policy.workspace) / ".env.more").write_text("SECRET\n")
    with pytest.raises(SandboxBusy, match="while a command was running"):
        engine.confine(Command(("true",), policy.workspace, {}))
    prepared.release()
    engine.close()
    first, second = docker.asked("run")
    assert ".env.new" not in " ".join(first)
    assert "target=/workspace/.env.new,readonly" in " ".join(second)


def test_what_a_command_left_is_killed_before_the_next_one(
    policy: SandboxPolicy, docker: Docker
) -> None:
    engine = engine_for(policy, docker)
    for _ in range(2):
        engine.confine(Command(("true",), policy.workspace, {})).release()
    prepared = engine.confine(Command(("true",), policy.workspace, {}))
    (run,) = docker.asked("run")
    name = run[run.index("--name") + 1]
    clears = [words for words in docker.asked("exec") if words[-1].startswith(CLEAR)]
    assert [words[1] for words in clears] == [name, name]
    prepared.release()
    engine.close()


def test_a_container_that_cannot_be_cleared_is_closed(
    policy: SandboxPolicy, docker: Docker
) -> None:
    text = Path(docker.program).read_text()
    Path(docker.program).write_text(f"{text}elif 'exec' in words:\n    sys.exit(137)\n")
    engine = engine_for(policy, docker)
    engine.confine(Command(("true",), policy.workspace, {})).release()
    prepared = engine.confine(Command(("true",), policy.workspace, {}))
    first, second = docker.asked("run")
    assert docker.asked("rm")[0][-1] == first[first.index("--name") + 1]
    engine.close()
    with pytest.raises(SandboxUnavailable, match="closed"):
        engine.confine(Command(("true",), policy.workspace, {}))
    prepared.release()  # late: its container goes with it
    assert docker.asked("rm")[-1][-1] == second[second.index("--name") + 1]


def test_containers_of_killed_owners_are_removed(policy: SandboxPolicy, tmp_path: Path) -> None:
    engine = engine_for(policy, Docker(tmp_path, policy.workspace))
    prepared = engine.confine(Command(("true",), policy.workspace, {}))
    name = next(word for word in prepared.command.argv if word.startswith("toolrest-"))
    prepared.release()
    engine.close()
    words = name.split("-")
    gone = "-".join((*words[:3], "1", "a"))  # our number, but started at another time
    elsewhere = "-".join((words[0], "other", words[2], "1", "b"))
    docker = Docker(tmp_path, policy.workspace, "\n".join((name, gone, elsewhere, "toolrest-x")))
    Client(docker.program).sweep()
    assert docker.asked("rm")[1:] == [["rm", "--force", gone]]
    assert "toolrest" in docker.asked("run")[0]  # the label


@pytest.mark.parametrize("pull", [False, True])
def test_an_image_that_is_not_there(policy: SandboxPolicy, tmp_path: Path, pull: bool) -> None:
    log = tmp_path / "log"
    odd = engine_that(
        tmp_path / "docker",
        f"""echo "$@" >> {log}
        case "$1" in
            info) exit 0 ;;
            pull) echo 'no registry' >&2; exit 1 ;;
            *) echo 'no such image' >&2; exit 1 ;;
        esac""",
    )
    options = ContainerOptions(engine=odd, pull=pull)
    words = "no registry" if pull else r"docker pull ubuntu:latest`, or set sandbox\.pull = true"
    with pytest.raises(SandboxUnavailable, match=words):
        Sandbox(policy, backend="docker", container=options).choose()
    assert ("pull ubuntu:latest" in log.read_text()) is pull


@pytest.mark.parametrize(("mode", "readonly"), [("read-only", True), ("workspace-write", False)])
def test_the_workspace_by_mode(tmp_path: Path, docker: Docker, mode: Mode, readonly: bool) -> None:
    (tmp_path / "ws").mkdir(exist_ok=True)
    policy = SandboxPolicy.build(str(tmp_path / "ws"), str(tmp_path / "s"), mode=mode)
    text = " ".join(arguments(policy, docker))
    assert ("target=/workspace,readonly" in text) is readonly


def test_a_mount_inside_a_read_only_path_is_read_only(
    tmp_path: Path, docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "ws/disk"
    disk.mkdir(parents=True, exist_ok=True)
    (tmp_path / "table").write_text(f"1 2 0:3 / {disk} rw,relatime shared:1 - ext4 /dev/x rw\n")
    table = str(tmp_path / "table")
    monkeypatch.setattr(container_mounts, "Mounts", lambda: Mounts(table))
    policy = SandboxPolicy.build(str(tmp_path / "ws"), str(tmp_path / "s"), mode="read-only")
    text = " ".join(arguments(policy, docker))
    assert f"source={disk},target=/workspace/disk,readonly" in text
    assert f"source={disk},target={disk},readonly" in text


def test_a_shell_that_the_image_does_not_have() -> None:
    line = ("-lc", "echo x")
    assert with_shell(("/bin/bash", *line), ("/bin/bash", "/bin/sh")) == ("/bin/bash", *line)
    assert with_shell(("/bin/bash", *line), ("/usr/bin/bash", "/bin/sh"))[0] == "/usr/bin/bash"
    assert with_shell(("/bin/zsh", *line), ("/usr/bin/bash", "/bin/sh"))[0] == "/bin/sh"
    assert with_shell(("ls", "-l"), ("/bin/sh",)) == ("ls", "-l")


def test_variables_that_would_break_the_file() -> None:
    env = {"A": "1", "B": "x\ny", "#C": "1", "D E": "1", "": "1", "F": "a=b"}
    steering = ("LD_PRELOAD", "DOCKER_HOST", "CONTAINERS_CONF", "PATH", "HOME", "XDG_RUNTIME_DIR")
    lines, by_name = env_parts(env | dict.fromkeys(steering, "x\ny"))
    assert lines == b"A=1\nF=a=b\n"
    assert by_name == {"B": "x\ny"}


def test_no_value_is_an_argument(policy: SandboxPolicy, docker: Docker) -> None:
    engine = engine_for(policy, docker)
    prepared = engine.confine(Command(("true",), policy.workspace, {"KEY": "secret\nlines"}))
    argv = prepared.command.argv
    assert argv[argv.index("--env") + 1] == "KEY"
    assert "secret" not in " ".join(argv)
    assert prepared.command.env["KEY"] == "secret\nlines"
    prepared.release()
    engine.close()


def test_the_client_finds_no_helpers_in_writable_folders(
    policy: SandboxPolicy, docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = Path(policy.workspace) / ".venv/bin"
    planted.mkdir(parents=True)
    (tmp_path / "link").symlink_to(planted)
    (tmp_path / "tools").mkdir()
    given = (str(planted), "relative", str(tmp_path / "link"), "", str(tmp_path / "tools"))
    monkeypatch.setenv("PATH", ":".join(given))
    engine = engine_for(policy, docker)
    prepared = engine.confine(Command(("true",), policy.workspace, {}))
    path = prepared.command.env["PATH"].split(":")
    assert path[0] == str(tmp_path / "tools")
    assert all(folder.startswith(("/usr", "/bin", "/sbin")) for folder in path[1:])
    prepared.release()
    engine.close()


def test_names_that_cannot_be_mounted(tmp_path: Path, docker: Docker) -> None:
    (tmp_path / "a,b").mkdir()
    policy = SandboxPolicy.build(str(tmp_path / "a,b"), str(tmp_path / "s"))
    with pytest.raises(SandboxUnavailable, match="comma"):
        arguments(policy, docker)


def engine_that(path: Path, says: str) -> str:
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return str(path)


def test_which_engine_answers(policy: SandboxPolicy, tmp_path: Path) -> None:
    silent = engine_that(tmp_path / "silent", "echo 'no daemon' >&2; exit 1")
    with pytest.raises(SandboxUnavailable, match="no daemon") as caught:
        answering_engine(ContainerOptions(IMAGE, engine=silent), policy)
    assert "apt install podman" in caught.value.remedy
    with pytest.raises(SandboxUnavailable, match="not installed"):
        answering_engine(ContainerOptions(IMAGE, engine="no-such-engine"), policy)
    fine = engine_that(tmp_path / "fine", 'test "$1" = --x && test "$2" = info')
    options = ContainerOptions(IMAGE, engine=fine, engine_args=("--x",))
    assert answering_engine(options, policy) == fine


def test_a_container_that_does_not_start_is_no_backend(
    policy: SandboxPolicy, tmp_path: Path
) -> None:
    odd = engine_that(tmp_path / "odd", 'test "$1" = info || { echo "no image" >&2; exit 125; }')
    sandbox = Sandbox(policy, backend="docker", container=ContainerOptions(IMAGE, engine=odd))
    with pytest.raises(SandboxUnavailable, match="no image"):
        sandbox.choose()


async def test_a_session_runs_its_commands_in_the_container(
    tmp_path: Path, policy: SandboxPolicy, docker: Docker
) -> None:
    """Through the whole product, with a program in the engine's place that runs the command."""
    settings = {
        "tool_security.sandbox_policy": "docker",
        "tool_security.allowed_network_domains": ["example.org"],
        "limits.memory": "1GB",
        "sandbox.engine": docker.program,
    }
    env = {**os.environ, "TOOLREST_HOME": str(tmp_path / "home")}
    async with Toolrest(policy.workspace, settings=settings, env=env) as rest:
        output = await rest.call("shell", {"command": ["ls", "-a"]})
    assert output.failure is None, output.text
    assert output.metadata["sandbox"] == "docker"
    assert ["ls", "-a"] in [words[-2:] for words in docker.asked("exec")]
    network, commands = docker.asked("run")
    name = network[network.index("--name") + 1]
    assert commands[commands.index("--network") + 1] == f"container:{name}"
    assert network[network.index("--network") + 1] == "none"
    assert commands[commands.index("--memory") + 1] == "1000000000"
    assert commands[commands.index("--") + 1] == "ubuntu:latest"
    assert not (Path(policy.workspace) / ".vscode").exists()


async def test_a_command_that_is_given_up_ends_its_container(
    policy: SandboxPolicy, docker: Docker, tmp_path: Path
) -> None:
    """As with docker, whose container lives on when its client is killed."""
    settings = {"sandbox_policy": "docker", "sandbox.engine": docker.program}
    env = {**os.environ, "TOOLREST_HOME": str(tmp_path / "home")}
    async with Toolrest(policy.workspace, settings=settings, env=env) as rest:
        fine = await rest.call("shell", {"command": ["true"]})
        assert fine.failure is None, fine.text
        sleep = {"command": ["sleep", "900"], "timeout_ms": 300}
        output = await rest.call("shell", sleep)
        assert output.metadata["exit_code"] == 124, output.text
        (started,) = docker.asked("run")
        (ended,) = docker.asked("rm")
        assert ended[-1] == started[started.index("--name") + 1]
        assert (await rest.call("shell", {"command": ["true"]})).failure is None
        assert len(docker.asked("run")) == 2
