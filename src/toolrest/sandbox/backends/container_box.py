"""One running container, in which commands are run one at a time.

Its first process waits for the end of its input, which is a pipe of ours: when
this process ends, however that comes, the container ends with it and is removed. A command that
holds that input open is met by the next session, which removes containers whose owner has ended.

A command runs beneath a shell that kills everything in the container but that first process,
before it and after it. A command can kill that shell, so `clear` does it once more from outside:
no process of one command meets the next.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO
from uuid import uuid4

from toolrest.own_code import folders_in, real_path
from toolrest.policy.paths.names import unique
from toolrest.process.helper.tree import alive, stat_fields
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.programs import SYSTEM_FOLDERS

READY = "toolrest-ready"
FIRST = f"for name in bash zsh sh; do command -v $name; done; echo {READY}; exec cat >/dev/null"
"""Names the shells, and waits."""
CLEAR = (
    "read -r first </proc/1/comm; "
    '[ "$first" = cat ] || { echo "toolrest: not in a container of ours" >&2; exit 126; }; '
    "kill -s KILL -- -1 2>/dev/null; "
)
"""Kills everything in the container but its first process."""
AROUND = f'{CLEAR}trap : INT QUIT; "$@"; code=$?; kill -s KILL -- -1 2>/dev/null; exit $code'
"""Runs a command as the only one, and leaves nothing of it; `kill` spares itself and the first.

Where the first process is not ours (`--pid=host`), nothing is run and nothing killed.
"""
MOST_COMMANDS = 50
"""Commands in one container: nothing reaps orphans that ended, so there is a new one at times."""
_PATIENCE = 60.0
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
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
)
"""What the client needs of the host's own variables; the command's never reach it."""


def client_env(roots: Sequence[str] = ()) -> dict[str, str]:
    """The engine's client runs unconfined: it gets its own variables and nothing else.

    It finds helpers on PATH, so folders that lie in a writable root are not on it, nor relative
    ones; the others are resolved, so that no link is followed a second time.
    """
    env = {name: os.environ[name] for name in _CLIENT_ENV if name in os.environ}
    given = [path for path in os.environ.get("PATH", "").split(os.pathsep) if path.startswith("/")]
    folders = [real_path(path) for path in given]
    writable = folders_in(folders, roots)
    kept = [folder for folder in folders if folder not in writable]
    return env | {"PATH": os.pathsep.join(unique((*kept, *SYSTEM_FOLDERS)))}


LABEL = "toolrest"


def _machine() -> str:
    """A word for this machine since it was started, with its table of processes."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip().replace("-", "")
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "unknown"


def _born(pid: int) -> str:
    """When a process was started; 0 when there is none, or it is a zombie."""
    return stat_fields(pid)[19].decode() if alive(pid) else "0"


def _new_name() -> str:
    """A name for a container that says whose it is."""
    pid = os.getpid()
    return f"{LABEL}-{_machine()}-{pid}-{_born(pid)}-{uuid4().hex}"


def _is_left_behind(name: str) -> bool:
    """Whether the owner of a container is known to have ended; False for another machine's."""
    words = name.split("-")
    if len(words) != 5 or words[0] != LABEL or words[1] != _machine() or not words[2].isdigit():
        return False
    return words[3] != _born(int(words[2]))


class Client:
    """The engine's program with the arguments that go before its verb.

    `roots` are the folders that commands may write.
    """

    def __init__(
        self, program: str, engine_args: Sequence[str] = (), roots: Sequence[str] = ()
    ) -> None:
        self.program = program
        self._roots = tuple(roots)
        self.argv = (program, *engine_args)

    @property
    def env(self) -> dict[str, str]:
        """The variables that it runs with."""
        return client_env(self._roots)

    @property
    def is_podman(self) -> bool:
        """Whether this is podman, which differs from docker in a few flags."""
        return os.path.basename(self.program) == "podman"

    def ask(self, *words: str, seconds: float = 20.0) -> tuple[str, str]:
        """Run a verb to its end: what it printed, and the problem, empty when there is none."""
        try:
            done = subprocess.run(
                [*self.argv, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                env=self.env,
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", str(error)
        printed = done.stdout.decode("utf-8", "replace")
        if done.returncode == 0:
            return printed, ""
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return printed, lines[-1] if lines else f"exited with {done.returncode}"

    def remove(self, name: str) -> bool:
        """End a container at once and remove it; whether that worked."""
        now = ("--time", "0") if self.is_podman else ()
        return not self.ask("rm", "--force", *now, name)[1]

    def sweep(self) -> None:
        """Remove the containers of processes that were killed."""
        found, _ = self.ask("ps", "--all", "--filter", f"label={LABEL}", "--format", "{{.Names}}")
        for name in found.split():
            if _is_left_behind(name):
                self.remove(name)


class Box:
    """A container that runs until `close`, or until this process ends."""

    def __init__(
        self,
        client: Client,
        arguments: Sequence[str],
        locks: Sequence[int] = (),
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Start it: `arguments` go after `run`, with the image and the first process at the end.

        `locks` are descriptors that stay open for as long as the container runs. `on_close` is
        called after `close`, not when starting fails.
        """
        self.name = _new_name()
        self.commands = 0
        self.client = client
        self._on_close = on_close
        self._closing = threading.Lock()
        self._closed = False
        self._clearing: threading.Thread | None = None
        run = ("run", "--interactive", "--rm", "--name", self.name, "--label", LABEL)
        self._process = subprocess.Popen(
            [*client.argv, *run, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=client.env,
            pass_fds=locks,
            start_new_session=True,
        )
        try:
            self.shells = self._wait()
        except BaseException:
            self._end()
            raise

    def _wait(self) -> tuple[str, ...]:
        """The lines that the first process prints before it is ready."""
        fd, text = _number(self._process.stdout), ""
        until = time.monotonic() + _PATIENCE
        while f"{READY}\n" not in text:
            left = until - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise SandboxUnavailable(f"sandbox: no container in {_PATIENCE:.0f} s.")
            data = os.read(fd, 65536)
            if not data:
                raise SandboxUnavailable(f"sandbox: no container: {self._error()}")
            text += data.decode("utf-8", "replace").replace("\r\n", "\n")
        found = (line for line in text.splitlines() if line.startswith("/"))
        return tuple(dict.fromkeys((*found, "/bin/sh")))

    def _error(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        said = os.read(_number(self._process.stderr), 65536).decode("utf-8", "replace").strip()
        return said.replace("\n", "; ") or "it ended at once"

    @property
    def is_running(self) -> bool:
        """Whether commands can be run in it, once nothing of the last one is left."""
        if self._clearing is not None:
            self._clearing.join()
        return not self._closed and self._process.poll() is None and self.commands < MOST_COMMANDS

    def clear(self) -> None:
        """Kill what a command left, in a thread; where that fails, the container is closed."""
        self._clearing = threading.Thread(target=self._clear, name="toolrest-clear", daemon=True)
        self._clearing.start()

    def _clear(self) -> None:
        if self.client.ask("exec", self.name, "/bin/sh", "-c", f"{CLEAR}exit 0")[1]:
            self.close()

    def close(self) -> None:
        """End it, with everything in it."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            if self._end():
                self._on_close()

    def _end(self) -> bool:
        """Whether it is gone for sure."""
        gone = self.client.remove(self.name)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
            return True
        self._process.kill()
        self._process.wait()
        return gone


def _number(stream: IO[bytes] | None) -> int:
    if stream is None:
        raise ValueError("the client was started without this pipe")
    return stream.fileno()
