"""The container backend: one container a session, by docker or podman, and `exec` for a command.

The workspace is at `/workspace` and at its own path, the root file system is read-only, there is
no network but for an allow list, no capability and no way to gain one. A second container comes
only while a command is still running in the first: each command has one to itself.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from toolrest.own_code import package_folder
from toolrest.policy.paths.names import inside, unique
from toolrest.private_files import make_private
from toolrest.process.command import Command
from toolrest.process.limits import Limits
from toolrest.sandbox.backends.container.box import AROUND, FIRST, READY, Box
from toolrest.sandbox.backends.container.client import EngineClient
from toolrest.sandbox.backends.container.mounts import WORKSPACE, Shown, bind
from toolrest.sandbox.backends.engine import (
    PROXY_SOCKET,
    Controls,
    Enforced,
    PreparedCommand,
    Proxy,
    all_full,
)
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
_FORWARDER_LIMITS = ("--pids-limit", "200", "--memory", str(512 << 20))
"""Enough for its most connections; it does not count as a command's."""
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
        program = name if os.path.isabs(name) else find_program(name, policy.tool_roots)
        problem = "not installed"
        if program is not None:
            try:
                client = EngineClient(program, options.engine_args, policy.tool_roots)
                problem = client.ask("info")[1]
            except SandboxUnavailable as error:
                problem = str(error)
        if program is not None and not problem:
            return program
        reasons.append(f"{name}: {problem}")
    raise SandboxUnavailable(
        f"sandbox: no container engine answers [{' | '.join(reasons)}].",
        remedy="Start docker, or install podman (`apt install podman`).",
        tried=tuple(reasons),
    )


def image_path(
    client: EngineClient, options: ContainerOptions, given_up: threading.Event | None = None
) -> str:
    """The PATH of programs in the image, which is fetched first where that is allowed."""
    image = options.image
    ask = ("image", "inspect", "--format", "{{json .Config.Env}}", "--", image)
    said, problem = client.ask(*ask)
    if problem and options.pull:
        _, problem = client.ask("pull", "--", image, seconds=_PULL_PATIENCE, given_up=given_up)
        if problem:
            raise SandboxUnavailable(f"sandbox: cannot fetch the image {image}: {problem}.")
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
        closed: threading.Event | None = None,
    ) -> None:
        self.policy = replace(policy, cache_dir=None)  # other programs than the host's
        self.options = options
        self.client = EngineClient(program, options.engine_args, policy.tool_roots, registry)
        self.proxy = proxy
        self._limits = limits or Limits()
        self._path = image_path(self.client, options, closed)
        tmp = os.path.join(policy.session_dir, "tmp")
        make_private(tmp)
        self._own_user = f"{os.geteuid()}:{os.getegid()}"
        other_user = options.user not in (None, self._own_user, str(os.geteuid()))
        if other_user:
            # It lies in a folder that is closed to all others on the host.
            os.chmod(tmp, 0o1777)  # noqa: S103
        self._shown = Shown(self.policy, registry, tmp, other_user=other_user)
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
        user = self.options.user or self._own_user
        flags = ["--entrypoint", "/bin/sh", *self._flags(user), *self._limit_flags()]
        flags += ["--network", self._network_name(), "--workdir", WORKSPACE, "--env", f"HOME={TMP}"]
        if self.options.read_only_root:
            flags.append("--read-only")
        flags += [*self._shown.arguments(), *_own_program(self.policy), *self.options.run_args]
        arguments = (*flags, "--", self.options.image, "-c", FIRST)
        locks = self._shown.guard.records()
        return Box(self.client, arguments, locks, lambda: let_go(held))

    def _flags(self, user: str) -> tuple[str, ...]:
        flags = ["--user", user, "--cap-drop", "ALL", "--pull", "never"]
        flags += ["--security-opt", "no-new-privileges", "--security-opt", "label=disable"]
        if self.client.is_podman and os.geteuid() != 0:
            flags.append("--userns=keep-id")  # else the user's own files have another owner inside
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

        The image need not have anything for it, and commands do not see what it mounts. The socket
        is open to our own user alone.
        """
        python = os.path.realpath(sys.executable)
        script, port = proxy.inner[-3:-1]
        places = [path for path in _PYTHON_PLACES if os.path.isdir(path)]
        places += [os.path.realpath(sys.base_prefix), script]
        shown = [p for p in unique(places) if not any(inside(p, o) and p != o for o in places)]
        flags = [*self._flags(self._own_user), "--network", "none", "--read-only"]
        flags += ["--entrypoint", python]
        if "--cgroups=disabled" not in self.options.run_args:
            flags += _FORWARDER_LIMITS
        flags += self.options.run_args
        for source, target in (*((path, path) for path in shown), (proxy.socket, PROXY_SOCKET)):
            flags += bind(source, target, ",readonly")
        waits = f"import sys; print({READY!r}, flush=True); sys.stdin.buffer.read()"
        words = ("-I", "-S", script, port, PROXY_SOCKET, python, "-I", "-S", "-c", waits)
        return Box(self.client, (*flags, "--", self.options.image, *words))

    def _exec(self, command: Command, box: Box) -> Command:
        env_fd = 3 + max([-1, *(fd - 3 for fd, _ in (*command.files, *command.fds))]) + 1
        env_file, encoded = env_parts(self._env_of(command, box))
        argv = (
            *self.client.argv,
            "exec",
            "--interactive",
            *(("--tty",) if command.tty else ()),
            "--workdir",
            self._shown.inside_path(command.cwd),
            "--env-file",
            f"/proc/self/fd/{env_fd}",
            box.name,
            "/bin/sh",
            "-c",
            AROUND,
            "sh",
            " ".join(encoded),
            *with_shell(command.argv, box.shells),
        )
        return replace(
            command,
            argv=argv,
            cwd="/",
            env=self.client.env,
            files=(*command.files, (env_fd, env_file)),
            limits=(),  # the client is not what they are meant for
            held=self._shown.guard.records(),
        )

    def _env_of(self, command: Command, box: Box) -> dict[str, str]:
        env = confined_env(command.env, self.policy, self.name, TMP)
        env |= self.proxy.env if self.proxy is not None else {}
        return for_other_root(env, self.policy, self._path, box.shells)


def _own_program(policy: SandboxPolicy) -> list[str]:
    """The mount of the program `apply_patch` and its code, unless the workspace has them."""
    package = package_folder()
    if policy.shown_root(package):
        return []
    with suppress(SandboxUnavailable):  # an odd name: commands then have no such program
        return bind(package, package, ",readonly")
    return []


LATE_SOCKETS = Enforced(
    "partial",
    "sockets in what is shown of the host that a service opens while a command runs, or that belong"
    " to another network namespace, can be reached",
)
"""Where no overlay hides them: the others are masked by their names, before a command."""


def controls(policy: SandboxPolicy) -> Controls:
    """What a container enforces."""
    found = all_full()
    found["unix_sockets"] = LATE_SOCKETS
    if policy.network == "on":
        found["unix_sockets"] = Enforced("partial", "abstract sockets of the host can be reached")
    return found


def env_parts(env: Mapping[str, str]) -> tuple[bytes, tuple[str, ...]]:
    r"""The content of an env file, and the names whose values the shell around a command decodes.

    A file of lines holds no line ends, so values with some are encoded for `printf %b`. Not one
    goes through the client's own environment: it runs unconfined, and a command may have chosen
    them. Where the name is none that a shell could set, such a value is left out.
    """
    lines: list[str] = []
    encoded: list[str] = []
    for name, value in env.items():
        if not name or name.startswith("#") or any(c in name for c in "=\n\0 ") or "\0" in value:
            continue
        if "\n" in value or "\r" in value:
            if not _SHELL_NAME.fullmatch(name):
                continue
            encoded.append(name)
            value = value.replace("\\", r"\\").replace("\n", r"\n").replace("\r", r"\r")
        lines.append(f"{name}={value}\n")
    return os.fsencode("".join(lines)), tuple(encoded)


_SHELL_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
