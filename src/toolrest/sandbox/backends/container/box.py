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

from toolrest.sandbox.backends.container.client import EngineClient, new_name
from toolrest.sandbox.errors import SandboxUnavailable

READY = "toolrest-ready"
FIRST = f"for name in bash zsh sh; do command -v $name; done; echo {READY}; exec cat >/dev/null"
"""Names the shells, and waits."""
CLEAR = (
    "read -r _toolrest </proc/1/comm; "
    '[ "$_toolrest" = cat ] || { echo "toolrest: not in a container of ours" >&2; exit 126; }; '
    "kill -s KILL -- -1 2>/dev/null; "
)
"""Kills everything in the container but its first process."""
DECODE = (
    r'for _toolrest in $1; do eval "export $_toolrest=\"\$(printf %b. \"\$$_toolrest\")\";'
    r' $_toolrest=\${$_toolrest%.}"; done; unset _toolrest; shift; '
)
"""Decodes the variables that the first argument names; the full stop keeps line ends at the end."""
AROUND = (
    f'{CLEAR}{DECODE}trap : INT QUIT; "$@"; code=$?; kill -s KILL -- -1 2>/dev/null; exit $code'
)
"""Runs a command as the only one, and leaves nothing of it; `kill` spares itself and the first.

Where the first process is not ours (`--pid=host`), nothing is run and nothing killed.
"""
MOST_COMMANDS = 50
"""Commands in one container: nothing reaps orphans that ended, so there is a new one at times."""
_PATIENCE = 60.0


class Box:
    """A container that runs until `close`, or until this process ends."""

    def __init__(
        self,
        client: EngineClient,
        arguments: Sequence[str],
        locks: Sequence[int] = (),
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Start it: `arguments` go after `run`, with the image and the first process at the end.

        `locks` are descriptors that stay open for as long as the container runs. `on_close` is
        called after `close`, not when starting fails.
        """
        self.name = new_name()
        self.commands = 0
        self.client = client
        self._on_close = on_close
        self._closing = threading.Lock()
        self._closed = False
        self._clearing: threading.Thread | None = None
        run = ("run", "--interactive", "--rm", "--name", self.name, *client.labels)
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
