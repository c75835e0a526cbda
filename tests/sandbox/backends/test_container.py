"""Containers: what the engine is asked, and which one answers; real ones: tests/sandbox/kinds."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from msgspec.structs import replace

from toolrest import Toolrest
from toolrest.own_code import package_folder
from toolrest.process.command import Command
from toolrest.process.limits import Limits
from toolrest.running.results import RunOutcome
from toolrest.sandbox.backends.container import client as container_client
from toolrest.sandbox.backends.container import mounts as container_mounts
from toolrest.sandbox.backends.container.box import AROUND, CLEAR, DECODE, READY
from toolrest.sandbox.backends.container.client import EngineClient
from toolrest.sandbox.backends.container.engine import (
    ContainerEngine,
    ContainerOptions,
    answering_engine,
    env_parts,
)
from toolrest.sandbox.backends.view import Show, View
from toolrest.sandbox.confine import SessionSandbox
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
import json, os, sys, time
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
if "inspect" in words:
    print('["PATH=/image/bin"]')
elif "run" in words:
    while os.path.exists({held!r}):
        time.sleep(0.01)
    print("/bin/sh\\n" + {ready!r}, flush=True)
    sys.stdin.read()
elif "ps" in words:
    print({left!r} if "label=toolrest" in words else {mine!r})
elif {around!r} in words:
    os.chdir({folder!r})
    argv = words[words.index({around!r}) + 3 :]  # without the shell that kills around it
    os.execvp(argv[0], argv)
"""


class Docker:
    """A program in the engine's place, and what it was asked.

    `left` are the containers that it lists, `mine` those with the label of this home. While there
    is a file `held`, no container gets ready.
    """

    def __init__(self, folder: Path, workspace: str, left: str = "", mine: str = "") -> None:
        self.program = str(folder / "docker")
        self._log = folder / "log"
        self.held = folder / "held"
        text = ENGINE.format(
            python=sys.executable,
            log=str(self._log),
            held=str(self.held),
            ready=READY,
            around=AROUND,
            folder=workspace,
            left=left,
            mine=mine,
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
        f"--mount type=bind,source={package_folder()},target={package_folder()},readonly",
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


def test_sockets_of_the_host_in_the_workspace_are_masked(
    policy: SandboxPolicy, docker: Docker, tmp_path: Path, listen: Callable[[str], list[bytes]]
) -> None:
    listen(f"{policy.workspace}/sub/before.sock")
    listen(str(tmp_path / "elsewhere.sock"))
    engine = engine_for(policy, docker)
    engine.confine(Command(("true",), policy.workspace, {})).release()
    listen(f"{policy.workspace}/later.sock")
    prepared = engine.confine(Command(("true",), policy.workspace, {}))
    os.unlink(f"{policy.workspace}/later.sock")  # which is no reason to refuse another command
    listen(f"{policy.workspace}/latest.sock")
    engine.confine(Command(("true",), policy.workspace, {})).release()
    prepared.release()
    engine.close()
    first, second, beside = (" ".join(words) for words in docker.asked("run"))
    for text in (first, second, beside):
        assert "target=/workspace/sub/before.sock,readonly" in text
        assert f"target={policy.workspace}/sub/before.sock,readonly" in text
        assert "elsewhere.sock" not in text
    assert ("later.sock" in first, "later.sock" in second, "later.sock" in beside) == (0, 1, 0)


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
    EngineClient(docker.program).sweep()
    assert docker.asked("rm")[1:] == [["rm", "--force", gone]]
    assert "toolrest" in docker.asked("run")[0]  # the label


def test_containers_of_an_earlier_boot_are_removed(
    policy: SandboxPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those that this home started on this machine, and none that runs."""
    (tmp_path / "machine-id").write_text("1f\n")
    monkeypatch.setattr(container_client, "MACHINE_ID", str(tmp_path / "machine-id"))
    registry = str(tmp_path / "registry")
    docker = Docker(tmp_path, policy.workspace)
    engine = engine_for(policy, docker)
    prepared = engine.confine(Command(("true",), policy.workspace, {}))
    name = next(word for word in prepared.command.argv if word.startswith("toolrest-"))
    prepared.release()
    engine.close()
    (run,) = docker.asked("run")
    owner = next(word for word in run if word.startswith("toolrest.owner="))
    words = name.split("-")
    earlier = "-".join((words[0], "0" * 32 + ".1", *words[2:]))
    elsewhere = "-".join((words[0], words[1].partition(".")[0] + ".1", *words[2:]))
    theirs = "-".join((words[0], "0" * 32 + ".1", *words[2:4], "b"))  # another home's
    left = "\n".join((name, earlier, elsewhere, theirs))
    docker = Docker(tmp_path, policy.workspace, left, "\n".join((name, earlier, elsewhere)))
    EngineClient(docker.program, registry=registry).sweep()
    removed = [words for words in docker.asked("rm") if "--force" not in words]
    # Without force it refuses one that runs. The first engine looks too, whenever its thread does.
    assert {tuple(words) for words in removed} == {("rm", earlier)}
    assert f"label={owner}" in docker.asked("ps")[-1]
    EngineClient(docker.program, registry=str(tmp_path / "other")).sweep()
    assert f"label={owner}" not in docker.asked("ps")[-1]


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
        SessionSandbox(policy, backend="docker", container=options).choose()
    assert ("pull -- ubuntu:latest" in log.read_text()) is pull


@pytest.mark.parametrize(("mode", "readonly"), [("read-only", True), ("workspace-write", False)])
def test_the_workspace_by_mode(tmp_path: Path, docker: Docker, mode: Mode, readonly: bool) -> None:
    (tmp_path / "ws").mkdir(exist_ok=True)
    policy = SandboxPolicy.build(str(tmp_path / "ws"), str(tmp_path / "s"), mode=mode)
    text = " ".join(arguments(policy, docker))
    assert ("target=/workspace,readonly" in text) is readonly


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
def test_hidden_files_by_mode(tmp_path: Path, docker: Docker, mode: Mode) -> None:
    (tmp_path / "ws/sub").mkdir(parents=True, exist_ok=True)
    hidden = [tmp_path / "ws/.env", tmp_path / "ws/sub/.env"]
    for path in hidden:
        path.write_text("SECRET\n")
    session = tmp_path / "ws/session"
    policy = SandboxPolicy.build(
        str(tmp_path / "ws"), str(session), mode=mode, hidden=[str(path) for path in hidden]
    )
    text = " ".join(arguments(policy, docker))
    for path in (*hidden, session):
        below = path.relative_to(tmp_path / "ws")
        assert f"target=/workspace/{below},readonly" in text
        assert f"target={path},readonly" in text
        assert f"source={path}," not in text


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
    lines, encoded = env_parts(env | {"BASH_FUNC_f%%": "() {  x\n}"})
    assert lines == b"A=1\nB=x\\ny\nF=a=b\n"
    assert encoded == ("B",)


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "busybox"])
def test_values_with_line_ends_arrive_as_they_are(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    odd = (
        "\n",
        "a\nb\n\n",
        "\r\n",
        'back\\slash\\n "quoted" $(x) `y`\n',
        "  *\n%s\\c.",
        "é\n\udcff",
    )
    env = {"PLAIN": r"a\nb", **{f"V{number}": value for number, value in enumerate(odd)}}
    lines, encoded = env_parts(env)
    told = dict(line.split(b"=", 1) for line in lines.splitlines())
    script = ("-c", f'{DECODE}"$@"', "sh", " ".join(encoded), "/usr/bin/env", "-0")
    argv = [program, *(("sh",) if shell == "busybox" else ()), *script]
    done = subprocess.run(argv, env=told, capture_output=True, check=True)
    found = dict(entry.split("=", 1) for entry in os.fsdecode(done.stdout).split("\0") if entry)
    assert {name: found.get(name) for name in env} == env


@pytest.mark.parametrize("name", ["KEY", "BASH_ENV", "BASH_FUNC_ls%%", "SHELLOPTS", "DOCKER_HOST"])
def test_no_value_is_an_argument_or_the_clients(
    policy: SandboxPolicy, docker: Docker, name: str
) -> None:
    engine = engine_for(policy, docker)
    prepared = engine.confine(Command(("true",), policy.workspace, {name: "secret\nlines"}))
    assert "secret" not in " ".join(prepared.command.argv)
    assert prepared.command.env == engine.client.env
    assert "secret" not in " ".join(engine.client.env.values())
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


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CONTAINERS_CONF", "{ws}/containers.conf"),
        ("CONTAINERS_STORAGE_CONF", "{ws}/storage.conf"),
        ("DOCKER_CONFIG", "{ws}/.docker"),
        ("DOCKER_CONFIG", "{out}/link"),
        ("DOCKER_CONFIG", "relative"),
        ("DOCKER_CERT_PATH", "{ws}"),
        ("DOCKER_HOST", "unix://{ws}/docker.sock"),
        ("CONTAINER_HOST", "unix://{ws}/podman.sock"),
        ("XDG_CONFIG_HOME", "{ws}/.config"),
        ("XDG_RUNTIME_DIR", "{ws}"),
        ("HOME", "{ws}"),
        ("HOME", "{out}/dotfiles"),
    ],
)
def test_settings_of_the_client_that_commands_may_write(
    policy: SandboxPolicy,
    docker: Docker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
) -> None:
    out = tmp_path / "out"
    (out / "dotfiles/.docker").mkdir(parents=True)
    (out / "link").symlink_to(policy.workspace)
    (out / "dotfiles/.docker/config.json").symlink_to(policy.workspace + "/config.json")
    monkeypatch.setenv("HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv(variable, value.format(ws=policy.workspace, out=out))
    with pytest.raises(SandboxUnavailable, match=rf"{variable}.*which commands may write"):
        engine_for(policy, docker)
    with pytest.raises(SandboxUnavailable, match=variable):
        answering_engine(ContainerOptions(IMAGE, engine=docker.program), policy)
    assert docker.asked("inspect") + docker.asked("info") == []  # the client was not run


def test_plugins_of_the_client_that_commands_may_write(
    policy: SandboxPolicy, docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "out/config.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"cliPluginsExtraDirs": [policy.workspace + "/plugins"]}))
    monkeypatch.setenv("DOCKER_CONFIG", str(settings.parent))
    with pytest.raises(SandboxUnavailable, match="cliPluginsExtraDirs"):
        engine_for(policy, docker)
    settings.write_text(json.dumps({"cliPluginsExtraDirs": ["/usr/lib/plugins"]}))
    engine_for(policy, docker).close()


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
    assert "apt install podman" in caught.value.hints[0]
    with pytest.raises(SandboxUnavailable, match="not installed"):
        answering_engine(ContainerOptions(IMAGE, engine="no-such-engine"), policy)
    fine = engine_that(tmp_path / "fine", 'test "$1" = --x && test "$2" = info')
    options = ContainerOptions(IMAGE, engine=fine, engine_args=("--x",))
    assert answering_engine(options, policy) == fine


def test_a_container_that_does_not_start_is_no_backend(
    policy: SandboxPolicy, tmp_path: Path
) -> None:
    odd = engine_that(tmp_path / "odd", 'test "$1" = info || { echo "no image" >&2; exit 125; }')
    sandbox = SessionSandbox(
        policy, backend="docker", container=ContainerOptions(IMAGE, engine=odd)
    )
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
    assert "--memory" in network
    assert "--pids-limit" in network
    assert commands[commands.index("--") + 1] == "ubuntu:latest"
    assert not (Path(policy.workspace) / ".vscode").exists()


async def test_a_folder_that_the_container_does_not_have(
    policy: SandboxPolicy, docker: Docker, tmp_path: Path
) -> None:
    """Nothing is run in another folder than the one that was named."""
    settings = {"sandbox_policy": "docker", "sandbox.engine": docker.program}
    env = {**os.environ, "TOOLREST_HOME": str(tmp_path / "home")}
    async with Toolrest(policy.workspace, settings=settings, env=env) as rest:

        async def run_in(folder: str) -> tuple[str | None, str]:
            output = await rest.call("shell", {"command": ["true"], "workdir": folder})
            return output.failure.kind if output.failure else None, output.text

        for folder in ("/usr", os.path.dirname(policy.workspace)):
            kind, text = await run_in(folder)
            assert kind == "sandbox_denied", text
            assert f"{folder} is not in the container" in text
        for folder in (policy.workspace, "sub", "/tmp"):
            assert await run_in(folder) == (None, ANY)
    ran = [words for words in docker.asked("exec") if AROUND in words]
    assert [words[words.index("--workdir") + 1] for words in ran][-3:] == [
        *("/workspace", "/workspace/sub", "/tmp"),
    ]
    assert "/usr" not in str(ran)


@pytest.mark.parametrize("named", ["node", "{uid}:{gid}", None])
async def test_a_user_of_the_image(
    policy: SandboxPolicy, docker: Docker, tmp_path: Path, named: str | None
) -> None:
    """It can write the temporary folder, and the forwarder is the one who may use the socket."""
    own = f"{os.geteuid()}:{os.getegid()}"
    user = named and named.format(uid=os.geteuid(), gid=os.getegid())
    settings = {
        "sandbox_policy": "docker",
        "sandbox.engine": docker.program,
        "tool_security.allowed_network_domains": ["example.org"],
        **({"sandbox.user": user} if user else {}),
    }
    env = {**os.environ, "TOOLREST_HOME": str(tmp_path / "home")}
    async with Toolrest(policy.workspace, settings=settings, env=env) as rest:
        assert (await rest.call("shell", {"command": ["true"]})).failure is None
        network, commands = docker.asked("run")
        assert network[network.index("--user") + 1] == own
        assert commands[commands.index("--user") + 1] == (user or own)
        (tmp,) = [word for word in commands if word.endswith(",target=/tmp")]
        source = Path(tmp.split("source=")[1].split(",")[0])
        assert source.stat().st_mode & 0o7777 == (0o1777 if user == "node" else 0o700)
        assert source.parent.stat().st_mode & 0o777 == 0o700


def test_another_user_may_read_what_we_cannot(
    policy: SandboxPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is closed to us is hidden all the same."""
    hidden = f"{policy.workspace}/.env"
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(hidden).st_uid + 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    for other_user in (False, True):
        view = View(policy, other_user=other_user)
        view.hide([hidden])
        assert ((hidden, Show.HIDE) in view.shown()) is other_user


async def started(docker: Docker, count: int) -> None:
    """Until so many containers were asked for."""
    async with asyncio.timeout(40):
        while len(docker.asked("run")) < count:
            await asyncio.sleep(0.02)


async def test_containers_start_beside_the_event_loop(
    policy: SandboxPolicy, docker: Docker, tmp_path: Path
) -> None:
    settings = {"sandbox_policy": "docker", "sandbox.engine": docker.program}
    env = {**os.environ, "TOOLREST_HOME": str(tmp_path / "home")}
    async with Toolrest(policy.workspace, settings=settings, env=env) as rest:
        docker.held.touch()
        login = asyncio.create_task(rest.call("exec_command", {"cmd": "true", "login": True}))
        await started(docker, 1)  # the first one is for reading the profile
        docker.held.unlink()
        assert (await login).failure is None
        count = len(docker.asked("run"))
        assert count == 1, "each shell that reads the profile has the container to itself"
        runner = rest.session.runner.made
        assert runner is not None

        def run(line: str) -> asyncio.Task[RunOutcome]:
            argv = ("/bin/sh", "-c", line)
            work = runner.run(argv, policy.workspace, seconds=100, outside=False)
            return asyncio.create_task(work)

        first = run("touch began; until test -e go; do sleep 0.05; done")
        while not (Path(policy.workspace) / "began").exists():
            await asyncio.sleep(0.02)
        docker.held.touch()
        second = run("true")
        await started(docker, count + 1)
        (Path(policy.workspace) / "go").touch()
        assert (await first).result.exit_code == 0, "an end does not wait for another's start"
        docker.held.unlink()
        assert (await second).result.exit_code == 0


async def test_a_call_that_is_cancelled_leaves_no_container(
    policy: SandboxPolicy, docker: Docker, tmp_path: Path
) -> None:
    settings = {"sandbox_policy": "docker", "sandbox.engine": docker.program}
    env = {**os.environ, "TOOLREST_HOME": str(tmp_path / "home")}
    async with Toolrest(policy.workspace, settings=settings, env=env) as rest:
        docker.held.touch()
        call = asyncio.create_task(rest.call("shell", {"command": ["true"]}))
        await started(docker, 1)
        call.cancel()
        await asyncio.wait([call])
        docker.held.unlink()
    names = {words[words.index("--name") + 1] for words in docker.asked("run")}
    assert names == {words[-1] for words in docker.asked("rm")}


def test_a_session_that_is_closed_does_not_wait_for_an_image(
    policy: SandboxPolicy, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    slow = engine_that(
        tmp_path / "docker",
        f"""echo "$@" >> {log}
        case "$1" in
            info) exit 0 ;;
            pull) exec sleep 900 ;;
            *) echo 'no such image' >&2; exit 1 ;;
        esac""",
    )
    sandbox = SessionSandbox(
        policy, backend="docker", container=ContainerOptions(engine=slow, pull=True)
    )
    said: list[str] = []

    def choose() -> None:
        try:
            sandbox.choose()
        except SandboxUnavailable as error:
            said.append(str(error))

    chooses = threading.Thread(target=choose)
    chooses.start()
    while not (log.exists() and "pull" in log.read_text()):
        chooses.join(0.02)
    sandbox.close()
    chooses.join(60)
    assert len(said) == 1


def test_a_session_that_is_closed_starts_no_container(
    policy: SandboxPolicy, docker: Docker
) -> None:
    options = ContainerOptions(IMAGE, engine=docker.program)
    sandbox = SessionSandbox(policy, backend="docker", container=options)
    sandbox.close()
    with pytest.raises(SandboxUnavailable, match="closed"):
        sandbox.confine(Command(("true",), policy.workspace, {}))
    assert docker.asked("run") == []


def test_a_session_that_is_closed_while_its_container_starts(
    policy: SandboxPolicy, docker: Docker
) -> None:
    options = ContainerOptions(IMAGE, engine=docker.program)
    sandbox = SessionSandbox(policy, backend="docker", container=options)
    docker.held.touch()
    said: list[str] = []

    def choose() -> None:
        try:
            sandbox.choose()
        except SandboxUnavailable as error:
            said.append(str(error))

    chooses = threading.Thread(target=choose)
    chooses.start()
    while not docker.asked("run"):
        chooses.join(0.02)
    sandbox.close()
    docker.held.unlink()
    chooses.join(60)
    assert "closed" in said[0]
    (run,) = docker.asked("run")
    assert docker.asked("rm")[-1][-1] == run[run.index("--name") + 1]


@pytest.mark.slow
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
