"""The container backend: the engine's argument list, and which engine answers.

The workspace is at `/workspace`, the root file system is read-only, there is no network, no
capability and no way to gain one. What is guarded in the workspace is mounted again over itself,
read-only; names that do not exist cannot be held that way, and the controls say so.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from toolrest.policy.paths.links import Links
from toolrest.policy.paths.names import inside
from toolrest.process.command import Command
from toolrest.sandbox.backends.engine import Controls, Enforced, PreparedCommand, all_full
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.guard.git_dirs import git_plan
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import find_program, own_files_in

WORKSPACE = "/workspace"
ENGINES = ("podman", "docker")
_PATIENCE = 20.0
_CLIENT_ENV = (
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "CONTAINER_HOST",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "DOCKER_TLS_VERIFY",
    "HOME",
    "PATH",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
)
"""What the client needs of the host's own variables; the command's never reach it."""


class ContainerOptions(Struct, frozen=True):
    """The user's settings for containers.

    `engine` is a name or a path; unset, the first that answers is taken. `engine_args` go before
    `run` (such as `--cgroup-manager=cgroupfs`), `run_args` after it.
    """

    image: str
    engine: str | None = None
    engine_args: tuple[str, ...] = ()
    run_args: tuple[str, ...] = ()
    user: str | None = None
    read_only_root: bool = True


def answering_engine(options: ContainerOptions, policy: SandboxPolicy) -> str:
    """The path of an engine whose daemon, or whose own set-up, really answers."""
    reasons: list[str] = []
    for name in (options.engine,) if options.engine else ENGINES:
        program = name if os.path.isabs(name) else find_program(name, policy.roots)
        problem = "not installed" if program is None else _ask(program, options)
        if program is not None and not problem:
            return program
        reasons.append(f"{name}: {problem}")
    raise SandboxUnavailable(
        f"sandbox: no container engine answers [{' | '.join(reasons)}].",
        remedy="Start docker, or install podman (`apt install podman`).",
        tried=tuple(reasons),
    )


def _ask(program: str, options: ContainerOptions) -> str:
    """Empty when the engine answers, else what it says."""
    argv = [program, *options.engine_args, "info"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_PATIENCE, env=client_env())
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exited with {done.returncode}"


def client_env() -> dict[str, str]:
    """The engine's client runs unconfined: it gets its own variables and nothing else."""
    return {name: os.environ[name] for name in _CLIENT_ENV if name in os.environ}


class ContainerEngine:
    """Turns commands into `docker run` or `podman run` commands."""

    name = "docker"

    def __init__(self, policy: SandboxPolicy, options: ContainerOptions, program: str) -> None:
        self.policy = policy
        self.options = options
        self.program = program
        self._mounts = tuple(_mounts(policy))

    def confine(self, command: Command, *, late: bool = False) -> PreparedCommand:
        """The client's command; its death alone does not end the container, `stop` does."""
        name = f"toolrest-{uuid4().hex}"
        env_fd = 3 + max([-1, *(fd - 3 for fd, _ in (*command.files, *command.fds))]) + 1
        env_file, spoken = env_parts(command.env)
        argv = (
            self.program,
            *self.options.engine_args,
            "run",
            *self._flags(command, name),
            "--env-file",
            f"/proc/self/fd/{env_fd}",
            *spoken,
            *self._mounts,
            "--workdir",
            inside_path(command.cwd, self.policy),
            *self.options.run_args,
            "--",
            self.options.image,
            *command.argv,
        )
        confined = replace(
            command,
            argv=argv,
            cwd="/",
            env=client_env(),
            files=(*command.files, (env_fd, env_file)),
            limits=(),  # the client is not what they are meant for
        )
        # Removing it also takes away what a killed client leaves of it.
        now = ("--time", "0") if self._is_podman else ()
        stop = (self.program, *self.options.engine_args, "rm", "--force", *now, name)
        return PreparedCommand(confined, stop=stop)

    @property
    def _is_podman(self) -> bool:
        return os.path.basename(self.program) == "podman"

    def _flags(self, command: Command, name: str) -> tuple[str, ...]:
        user = self.options.user or f"{os.geteuid()}:{os.getegid()}"
        flags = ["--rm", "--name", name, "--user", user, "--cap-drop", "ALL"]
        flags += ["--security-opt", "no-new-privileges", "--pull", "never"]
        flags += ["--network", "host" if self.policy.network == "on" else "none"]
        flags += ["--tmpfs", "/tmp:rw,nosuid,nodev,mode=1777"]  # noqa: S108
        if self.options.read_only_root:
            flags.append("--read-only")
        if command.tty:
            flags += ["--interactive", "--tty"]
        if not self._is_podman:
            flags.append("--init")  # podman needs a further package for that
        elif os.geteuid() != 0:
            flags.append("--userns=keep-id")  # else the user's own files belong to nobody inside
        return tuple(flags)


def controls(policy: SandboxPolicy) -> Controls:
    """What a container enforces."""
    found = all_full()
    if policy.roots:
        found["protected_paths"] = Enforced(
            "partial", "protected names that do not exist yet can be created in the workspace"
        )
    if policy.network == "allowlist":
        found["network"] = Enforced("none", "an allowlist needs bubblewrap")
    if policy.network == "on":
        found["unix_sockets"] = Enforced("partial", "abstract sockets of the host can be reached")
    return found


def inside_path(path: str, policy: SandboxPolicy) -> str:
    """Where a folder of the workspace is in the container; anything else is the workspace."""
    real = os.path.realpath(path)
    if not inside(real, policy.workspace):
        return real if policy.in_root(real) else WORKSPACE
    return os.path.normpath(os.path.join(WORKSPACE, os.path.relpath(real, policy.workspace)))


def env_parts(env: Mapping[str, str]) -> tuple[bytes, tuple[str, ...]]:
    """Variables for an env file; those with line ends can only be given as arguments."""
    lines: list[str] = []
    spoken: list[str] = []
    for name, value in env.items():
        if not name or name.startswith("#") or any(c in name for c in "=\n\0 ") or "\0" in value:
            continue
        if "\n" in value or "\r" in value:
            spoken += ("--env", f"{name}={value}")
        else:
            lines.append(f"{name}={value}\n")
    return os.fsencode("".join(lines)), tuple(spoken)


def _mounts(policy: SandboxPolicy) -> list[str]:
    mode = "" if policy.roots else ",readonly"
    flags = ["--mount", f"type=bind,source={_plain(policy.workspace)},target={WORKSPACE}{mode}"]
    for root in policy.roots:
        if root != policy.workspace:
            flags += ["--mount", f"type=bind,source={_plain(root)},target={_plain(root)}"]
    for path in _read_only(policy):
        target = inside_path(os.path.dirname(path), policy)
        there = os.path.join(target, os.path.basename(path))
        flags += ["--mount", f"type=bind,source={_plain(path)},target={_plain(there)},readonly"]
    for path in policy.hidden:
        if inside(path, policy.workspace) and os.path.lexists(path):
            there = os.path.join(WORKSPACE, os.path.relpath(path, policy.workspace))
            flags += _mask(path, _plain(there))
    return flags


def _mask(path: str, there: str) -> list[str]:
    if os.path.isdir(path):
        return ["--tmpfs", f"{there}:ro,mode=000"]
    return ["--mount", f"type=bind,source=/dev/null,target={there},readonly"]


def _read_only(policy: SandboxPolicy) -> list[str]:
    """What exists of the guarded places, each once."""
    found: dict[str, None] = {}
    followed: list[str] = []
    for root in policy.roots:
        plan = git_plan(root)
        if plan.refusal is not None:
            raise SandboxUnavailable(f"sandbox: {plan.refusal}")
        found |= dict.fromkeys(path for path in plan.read_only if inside(path, root))
        followed += plan.followed
    found |= dict.fromkeys(policy.protected)
    links = Links.towards(found, lambda path: policy.in_root(path) is not None, followed).held
    if links:
        raise SandboxUnavailable(
            f"sandbox: {links[0]} is a symbolic link: a command in a container could replace it.",
            remedy="Put there what it leads to, or use another sandbox.",
        )
    found |= dict.fromkeys(own_files_in(policy.roots))
    return [path for path in found if os.path.realpath(path) == path and os.path.exists(path)]


def _plain(path: str) -> str:
    """Engines split a mount at commas and have no way to quote one."""
    if "," in path or "\n" in path or '"' in path:
        raise SandboxUnavailable(
            f"sandbox: {path!r} cannot be mounted in a container: its name has a comma, a quote"
            " or a line end."
        )
    return path
