"""The container backend: one container a session, by docker or podman, and `exec` for a command.

The workspace is at `/workspace` and at its own path, the root file system is read-only, there is
no network but for an allow list, no capability and no way to gain one. A second container comes
only while a command is still running in the first: each command has one to itself.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolrest.policy.paths.names import inside, unique
from toolrest.private_files import make_private
from toolrest.process.command import Command
from toolrest.process.limits import Limits
from toolrest.sandbox.backends.bubblewrap import PROXY_SOCKET, Proxy
from toolrest.sandbox.backends.container_box import AROUND, FIRST, READY, Box, Client
from toolrest.sandbox.backends.container_mounts import WORKSPACE, Shown, bind
from toolrest.sandbox.backends.engine import Controls, Enforced, PreparedCommand, all_full
from toolrest.sandbox.backends.view import TMP
from toolrest.sandbox.environment import (
    STANDARD_PATH,
    confined_env,
    for_other_root,
    with_shell,
)
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.sandbox.guard.guard import let_go
from toolrest.sandbox.guard.placeholders import MountPoints
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import find_program

ENGINES = ("podman", "docker")
IMAGE = "ubuntu:latest"
OWN_LIMITS = ("docker", "vm")
"""Backends that hold the limits of commands by their own means."""
_PULL_PATIENCE = 900.0
_PYTHON_PLACES = ("/usr", "/lib", "/lib64")


class ContainerOptions(Struct, frozen=True):
    """The user's settings for containers.

    `engine` is a name or a path; unset, the first that answers is taken. `engine_args` go before
    `run` (such as `--cgroup-manager=cgroupfs`), `run_args` after it. An image that is not on this
    machine is fetched only with `pull`.
    """

    image: str = IMAGE
    engine: str | None = None
    engine_args: tuple[str, ...] = ()
    run_args: tuple[str, ...] = ()
    user: str | None = None
    read_only_root: bool = True
    pull: bool = False


OPEN = {
    "unshare_userns": "user namespaces can be made, as far as the engine's own filter lets them",
    "vsock_create": "sockets to a hypervisor can be made, with podman's filter",
    "netlink_route": "the container's own interfaces can be listed",
    "i386_socket": "32-bit system calls are not filtered; there is no network behind them",
}
"""Escape rows that the engine's system call filter leaves open."""


def answering_engine(options: ContainerOptions, policy: SandboxPolicy) -> str:
    """The path of an engine whose daemon, or whose own set-up, really answers."""
    reasons: list[str] = []
    for name in (options.engine,) if options.engine else ENGINES:
        program = name if os.path.isabs(name) else find_program(name, policy.roots)
        problem = "not installed"
        if program is not None:
            problem = Client(program, options.engine_args, _writable(policy)).ask("info")[1]
        if program is not None and not problem:
            return program
        reasons.append(f"{name}: {problem}")
    raise SandboxUnavailable(
        f"sandbox: no container engine answers [{' | '.join(reasons)}].",
        remedy="Start docker, or install podman (`apt install podman`).",
        tried=tuple(reasons),
    )


def _writable(policy: SandboxPolicy) -> tuple[str, ...]:
    """Folders that this session's commands may write, or those of an earlier one could."""
    return (*policy.roots, policy.workspace)


def image_path(client: Client, options: ContainerOptions) -> str:
    """The PATH of programs in the image, which is fetched first where that is allowed."""
    image = options.image
    ask = ("image", "inspect", "--format", "{{json .Config.Env}}", image)
    said, problem = client.ask(*ask)
    if problem and options.pull:
        _, problem = client.ask("pull", image, seconds=_PULL_PATIENCE)
        if problem:
            raise SandboxUnavailable(f"sandbox: the image {image} cannot be fetched: {problem}.")
        said, problem = client.ask(*ask)
    if problem:
        name = os.path.basename(client.program)
        raise SandboxUnavailable(
            f"sandbox: the image {image} is not on this machine ({problem}).",
            remedy=f"Run `{name} pull {image}`, or set sandbox.pull = true, or name another one"
            " in sandbox.image.",
        )
    try:
        variables = json.loads(said) or []
    except ValueError:
        variables = []
    paths = [text.removeprefix("PATH=") for text in variables if text.startswith("PATH=")]
    return paths[0] if paths else STANDARD_PATH


class ContainerEngine:
    """Turns commands into `docker exec` or `podman exec` in a container of the session."""

    name = "docker"

    def __init__(
        self,
        policy: SandboxPolicy,
        options: ContainerOptions,
        program: str,
        registry: str,
        *,
        proxy: Proxy | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.policy = replace(policy, cache_dir=None)  # other programs than the host's
        self.options = options
        self.client = Client(program, options.engine_args, _writable(policy))
        self.proxy = proxy
        self._limits = limits or Limits()
        self._path = image_path(self.client, options)
        tmp = os.path.join(policy.session_dir, "tmp")
        make_private(tmp)
        self._shown = Shown(self.policy, registry, tmp)
        self._mutex = threading.Lock()
        self._network: Box | None = None
        self._idle: list[Box] = []
        self._running = 0
        self._closed = False
        self._state: object = None
        threading.Thread(target=self.client.sweep, name="toolrest-sweep", daemon=True).start()

    def confine(self, command: Command, *, late: bool = False) -> PreparedCommand:
        """The client's command; its death alone does not end what it started, `stop` does."""
        with self._mutex:
            if self._closed:
                raise SandboxUnavailable("sandbox: the session is closed, with its containers.")
            box = self._take()
            box.commands += 1
            self._running += 1
        stopped: list[Box] = []

        def stop() -> None:
            stopped.append(box)
            box.close()

        def release() -> None:
            with self._mutex:
                if released:
                    return
                released.append(True)
                self._running -= 1
                is_late = self._closed
                if not stopped and not is_late:
                    box.clear()
                    self._idle.append(box)
            if is_late:
                box.close()

        released: list[bool] = []
        try:
            return PreparedCommand(self._exec(command, box), release, stop)
        except BaseException:
            release()
            raise

    def close(self) -> None:
        """Remove the containers; one in which a command still runs goes with its release."""
        with self._mutex:
            self._closed = True
            self._close_idle()
            network, self._network = self._network, None
        if network is not None:
            network.close()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
        if not self._running:
            self._shown.forget()

    def _take(self) -> Box:
        """A container for one command, which shows what there is now."""
        state, held = self._shown.look(alone=not self._running)
        if state != self._state:
            let_go(held)
            if self._running:
                raise SandboxBusy(
                    "sandbox: a hidden or protected name came or went while a command was running.",
                    remedy="Another one can run when that one has ended.",
                )
            self._close_idle()
            self._state, held = self._shown.look(alone=True)
        try:
            while self._idle:
                box = self._idle.pop()
                if box.is_running:
                    let_go(held)
                    return box
                box.close()
            return self._start(held)
        except BaseException:
            let_go(held)
            raise

    def _start(self, held: list[MountPoints]) -> Box:
        flags = ["--entrypoint", "/bin/sh", *self._flags(), *self._limit_flags()]
        flags += ["--network", self._network_name(), "--workdir", WORKSPACE, "--env", f"HOME={TMP}"]
        if self.options.read_only_root:
            flags.append("--read-only")
        flags += [*self._shown.arguments(), *self.options.run_args]
        arguments = (*flags, "--", self.options.image, "-c", FIRST)
        locks = self._shown.guard.records()
        return Box(self.client, arguments, locks, lambda: let_go(held))

    def _flags(self) -> tuple[str, ...]:
        user = self.options.user or f"{os.geteuid()}:{os.getegid()}"
        flags = ["--user", user, "--cap-drop", "ALL", "--pull", "never"]
        flags += ["--security-opt", "no-new-privileges", "--security-opt", "label=disable"]
        if self.client.is_podman and os.geteuid() != 0:
            flags.append("--userns=keep-id")  # else the user's own files belong to nobody inside
        return tuple(flags)

    def _limit_flags(self) -> tuple[str, ...]:
        limits, flags = self._limits, ["--ulimit", "core=0:0"]
        if limits.processes is not None:
            flags += ["--pids-limit", str(limits.processes + 1)]  # the first process is ours
        if limits.memory is not None:
            flags += ["--memory", str(limits.memory)]
        if limits.file_size is not None:
            flags += ["--ulimit", f"fsize={limits.file_size}:{limits.file_size}"]
        return tuple(flags)

    def _network_name(self) -> str:
        """The network of commands; for an allow list it is that of a container beside them."""
        if self.policy.network != "allowlist" or self.proxy is None:
            return "host" if self.policy.network == "on" else "none"
        if self._network is None or not self._network.is_running:
            self._network = self._forwarder(self.proxy)
        return f"container:{self._network.name}"

    def _forwarder(self, proxy: Proxy) -> Box:
        """A container with the host's Python, which forwards from loopback to the proxy's socket.

        The image need not have anything for it, and commands do not see what it mounts.
        """
        python = os.path.realpath(sys.executable)
        script, port = proxy.inner[-3:-1]
        places = [path for path in _PYTHON_PLACES if os.path.isdir(path)]
        places += [os.path.realpath(sys.base_prefix), script]
        shown = [p for p in unique(places) if not any(inside(p, o) and p != o for o in places)]
        flags = [*self._flags(), "--network", "none", "--read-only", "--entrypoint", python]
        flags += self.options.run_args
        for source, target in (*((path, path) for path in shown), (proxy.socket, PROXY_SOCKET)):
            flags += bind(source, target, ",readonly")
        waits = f"import sys; print({READY!r}, flush=True); sys.stdin.buffer.read()"
        words = ("-I", "-S", script, port, PROXY_SOCKET, python, "-I", "-S", "-c", waits)
        return Box(self.client, (*flags, "--", self.options.image, *words))

    def _exec(self, command: Command, box: Box) -> Command:
        env_fd = 3 + max([-1, *(fd - 3 for fd, _ in (*command.files, *command.fds))]) + 1
        env_file, by_name = env_parts(self._env_of(command, box))
        argv = (
            *self.client.argv,
            "exec",
            "--interactive",
            *(("--tty",) if command.tty else ()),
            "--workdir",
            self._shown.inside_path(command.cwd),
            "--env-file",
            f"/proc/self/fd/{env_fd}",
            *(word for name in by_name for word in ("--env", name)),
            box.name,
            "/bin/sh",
            "-c",
            AROUND,
            "sh",
            *with_shell(command.argv, box.shells),
        )
        return replace(
            command,
            argv=argv,
            cwd="/",
            env=by_name | self.client.env,
            files=(*command.files, (env_fd, env_file)),
            limits=(),  # the client is not what they are meant for
            held=self._shown.guard.records(),
        )

    def _env_of(self, command: Command, box: Box) -> dict[str, str]:
        env = confined_env(command.env, self.policy, self.name, TMP)
        env |= self.proxy.env if self.proxy is not None else {}
        return for_other_root(env, self.policy, self._path, box.shells)


def controls(policy: SandboxPolicy) -> Controls:
    """What a container enforces."""
    found = all_full()
    if policy.network == "on":
        found["unix_sockets"] = Enforced("partial", "abstract sockets of the host can be reached")
    return found


_OF_THE_CLIENT = (
    *("BUILDAH", "CONTAINER", "DOCKER_", "GCONV_", "GLIBC_", "GO", "LD_", "MALLOC_", "NOTIFY_"),
    *("PODMAN", "REGISTR", "SSH_", "SSL_", "STORAGE_", "TMPDIR", "XDG_", "_"),
)
"""How names begin that would steer the engine's client or what it loads."""


def env_parts(env: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    """Variables for an env file, and those with line ends, which the client is to pass on.

    Arguments can be read by all users, so these are in the client's own environment. What would
    steer the client itself is left out there: it runs unconfined.
    """
    lines: list[str] = []
    by_name: dict[str, str] = {}
    for name, value in env.items():
        if not name or name.startswith("#") or any(c in name for c in "=\n\0 ") or "\0" in value:
            continue
        if "\n" not in value and "\r" not in value:
            lines.append(f"{name}={value}\n")
        elif name not in ("HOME", "PATH") and not name.startswith(_OF_THE_CLIENT):
            by_name[name] = value
    return os.fsencode("".join(lines)), by_name
