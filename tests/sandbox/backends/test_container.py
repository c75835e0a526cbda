"""Containers: the argument list, which engine answers, and a real run where podman is installed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clock import Clock

from toolrest import Toolrest
from toolrest.process.command import Command
from toolrest.sandbox.backends.container import (
    ContainerEngine,
    ContainerOptions,
    answering_engine,
    env_parts,
    inside_path,
)
from toolrest.sandbox.backends.probe import run_probe
from toolrest.sandbox.confine import Sandbox
from toolrest.sandbox.errors import SandboxUnavailable
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


def arguments(policy: SandboxPolicy, **values: object) -> tuple[str, ...]:
    options = ContainerOptions(IMAGE, **values)  # type: ignore[arg-type]
    engine = ContainerEngine(policy, options, "/usr/bin/podman")
    command = Command(("echo", "hi"), policy.workspace + "/sub", {"A": "1", "LD_PRELOAD": "/x"})
    return engine.confine(command).command.argv


def test_the_argument_list(policy: SandboxPolicy) -> None:
    argv = arguments(policy, engine_args=("--log-level=error",), run_args=("--pids-limit=100",))
    text = " ".join(argv)
    assert argv[:3] == ("/usr/bin/podman", "--log-level=error", "run")
    assert argv[-4:] == ("--", IMAGE, "echo", "hi")
    for flags in (
        "--rm",
        "--read-only",
        "--network none",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--workdir /workspace/sub",
        "--pids-limit=100",
        f"--user {os.geteuid()}:{os.getegid()}",
        f"--mount type=bind,source={policy.workspace},target=/workspace ",
        "target=/workspace/.git/hooks,readonly",
        "source=/dev/null,target=/workspace/.env,readonly",
    ):
        assert flags in text
    assert "LD_PRELOAD" not in text
    assert "--tty" not in argv


def test_the_client_never_sees_the_commands_variables(policy: SandboxPolicy) -> None:
    engine = ContainerEngine(policy, ContainerOptions(IMAGE), "/usr/bin/docker")
    ready = engine.confine(Command(("true",), "/", {"LD_PRELOAD": "/x", "A": "b\nc"}, tty=True))
    assert "LD_PRELOAD" not in ready.command.env
    assert ready.command.files[-1][1] == b"LD_PRELOAD=/x\n"
    at = ready.command.argv.index("--env")
    assert ready.command.argv[at + 1] == "A=b\nc"
    assert "--tty" in ready.command.argv
    assert ready.stop[:3] == ("/usr/bin/docker", "rm", "--force")
    assert ready.stop[-1] in ready.command.argv


@pytest.mark.parametrize(("mode", "readonly"), [("read-only", True), ("workspace-write", False)])
def test_the_workspace_by_mode(tmp_path: Path, mode: Mode, readonly: bool) -> None:
    (tmp_path / "ws").mkdir()
    policy = SandboxPolicy.build(str(tmp_path / "ws"), str(tmp_path / "s"), mode=mode)
    text = " ".join(arguments(policy))
    assert ("target=/workspace,readonly" in text) is readonly


def test_where_folders_are_inside(policy: SandboxPolicy) -> None:
    assert inside_path(policy.workspace, policy) == "/workspace"
    assert inside_path(policy.workspace + "/a/../b", policy) == "/workspace/b"
    assert inside_path("/etc", policy) == "/workspace"


def test_variables_that_would_break_the_file() -> None:
    lines, spoken = env_parts({"A": "1", "B": "x\ny", "#C": "1", "D E": "1", "": "1", "F": "a=b"})
    assert lines == b"A=1\nF=a=b\n"
    assert spoken == ("--env", "B=x\ny")


def test_names_that_cannot_be_mounted(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    policy = SandboxPolicy.build(str(tmp_path / "a,b"), str(tmp_path / "s"))
    with pytest.raises(SandboxUnavailable, match="comma"):
        ContainerEngine(policy, ContainerOptions(IMAGE), "/usr/bin/docker")


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


PODMAN = ("--cgroup-manager=cgroupfs", "--runtime", "runc")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")


@pytest.fixture
def image(tmp_path: Path) -> ContainerOptions:
    """An image with a static busybox, made from this machine's files."""
    podman, busybox = shutil.which("podman"), shutil.which("busybox")
    if podman is None or busybox is None:
        pytest.skip("needs podman and busybox: apt install podman busybox-static")
    root = tmp_path / "rootfs"
    (root / "bin").mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    for name in ("sh", "true", "cat", "touch", "id", "ls", "sleep", "wget"):
        (root / "bin" / name).symlink_to("busybox")
    tar = subprocess.run(["tar", "-C", str(root), "-c", "."], capture_output=True, check=True)
    base = [podman, *PODMAN] if os.path.isdir("/sys/fs/cgroup/pids") else [podman]
    done = subprocess.run([*base, "import", "-", IMAGE], input=tar.stdout, capture_output=True)
    if done.returncode:
        pytest.skip(f"podman cannot import an image here: {done.stderr.decode()[-200:]}")
    extra = (tuple(base[1:]), LIMITS) if len(base) > 1 else ((), ())
    return ContainerOptions(IMAGE, engine=podman, engine_args=extra[0], run_args=extra[1])


def in_containers(folder: Path, options: ContainerOptions) -> Toolrest:
    """A session whose commands run in containers; an image need not have bash."""
    sandbox = {
        "image": options.image,
        "engine": options.engine,
        "engine_args": list(options.engine_args),
        "run_args": list(options.run_args),
    }
    settings = {"sandbox_policy": "docker", "sandbox": sandbox, "tools": {"shell_type": "default"}}
    env = {**os.environ, "TOOLREST_HOME": str(folder / "home")}
    workspace = folder / "work"
    workspace.mkdir(exist_ok=True)
    return Toolrest(workspace, sandbox_mode="workspace-write", settings=settings, env=env)


SLEEP = {"command": ["sleep", "61"], "timeout_ms": 300}


async def test_a_command_that_is_given_up_ends_its_container(tmp_path: Path, clock: Clock) -> None:
    """An engine whose container lives on when its client is killed, as docker's does."""
    log = tmp_path / "log"
    daemon = engine_that(
        tmp_path / "engine",
        f"""case "$1" in
            info) exit 0 ;;
            rm) echo "$@" >> {log}; exit 0 ;;
        esac
        case "$*" in *" /bin/true") exit 0 ;; esac
        echo "$@" >> {log}
        exec sleep 900""",
    )
    options = ContainerOptions(IMAGE, engine=daemon)
    sleep = {"command": ["sleep", "900"], "timeout_ms": 300_000}

    async def logged(count: int) -> None:
        while not log.exists() or len(log.read_text().splitlines()) < count:
            await asyncio.sleep(0.02)

    async with in_containers(tmp_path, options) as rest:
        task = asyncio.create_task(rest.call("shell", sleep))
        await logged(1)
        clock.skip(300)
        output = await task
        assert output.metadata["exit_code"] == 124, output.text
        started, ended = log.read_text().splitlines()
        assert ended.split() == [
            "rm",
            "--force",
            started.split()[started.split().index("--name") + 1],
        ]
        task = asyncio.create_task(rest.call("shell", sleep))
        await logged(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log.read_text().splitlines()[3].startswith("rm --force")


async def test_real_containers_end_with_their_commands(
    tmp_path: Path, image: ContainerOptions
) -> None:
    ask = [str(image.engine), *image.engine_args, "ps", "--all", "--quiet"]
    ask += ["--filter", f"ancestor={IMAGE}"]
    async with in_containers(tmp_path, image) as rest:
        fine = await rest.call("shell", {"command": ["sh", "-c", "echo in $PWD"]})
        assert "in /workspace" in fine.text
        output = await rest.call("shell", SLEEP)
        assert output.metadata["exit_code"] == 124, output.text
        left = subprocess.run(ask, capture_output=True, text=True, check=True)
        assert left.stdout == ""


def test_a_real_container(policy: SandboxPolicy, image: ContainerOptions) -> None:
    sandbox = Sandbox(policy, backend="docker", container=image)

    def said(line: str) -> str:
        command = Command(("sh", "-c", line), policy.workspace, {"A": "from env"})
        return run_probe(sandbox.confine(command).command)

    assert said('test "$A" = "from env" && test "$PWD" = /workspace && touch made') == ""
    assert (Path(policy.workspace) / "made").exists()
    assert said("touch .git/hooks/x") != ""
    assert said("touch /x") != ""
    assert said("cat .env | grep SECRET") != ""
    assert said("wget -T 1 http://1.1.1.1/") != ""


ENGINE = """#!{python}
import json, os, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if "run" in sys.argv:
    at = sys.argv.index("--")
    mounts = [word for word in sys.argv if word.startswith("type=bind,source=")]
    os.chdir(mounts[0].split(",")[1].removeprefix("source="))
    os.execvp(sys.argv[at + 2], sys.argv[at + 2 :])
"""


@pytest.mark.parametrize(("mode", "readonly"), [("read-only", True), ("workspace-write", False)])
async def test_a_session_runs_its_commands_in_the_container(
    tmp_path: Path, mode: str, readonly: bool
) -> None:
    """Through the whole product, with a program in the engine's place that runs the command."""
    work, log, engine = tmp_path / "work", tmp_path / "log", tmp_path / "engine"
    work.mkdir()
    engine.write_text(ENGINE.format(python=sys.executable, log=str(log)))
    engine.chmod(0o755)
    settings = {
        "sandbox_policy": "docker",
        "sandbox.image": "some/image",
        "sandbox.engine": str(engine),
        "sandbox_mode": mode,
    }
    async with Toolrest(work, settings=settings) as rest:
        output = await rest.call("shell", {"command": ["ls", "-a"]})
    assert output.failure is None, output.text
    assert output.metadata["sandbox"] == "docker"
    ran = next(argv for argv in map(json.loads, log.read_text().splitlines()) if "ls" in argv)
    assert ran[ran.index("--") + 1 :] == ["some/image", "ls", "-a"]
    for words in (["--rm"], ["--read-only"], ["--network", "none"], ["--user"]):
        at = ran.index(words[0])
        assert ran[at : at + len(words)] == words
    (mount,) = [word for word in ran if f"source={work},target=/workspace" in word]
    assert mount.endswith(",readonly") is readonly
