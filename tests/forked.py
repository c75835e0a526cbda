"""Commands in forks of a Python that has loaded Toolrest: real processes without the start-up.

A command that is started anew spends a third of a second of CPU on its imports, most of what these
tests take. Here one process a test worker imports once and is forked for each command. What is left
out is the start itself: tests of imports, of `sys.path` and of the kinds of standard files start
processes of their own.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ")
"""Variables that count while a process starts."""
_NOT_LOADED = ("programs", "__main__", "integrations", "ray_engine")
_USED = ("opentelemetry.metrics", "tomllib", "jsonschema_rs")
"""Packages that Toolrest loads when it needs them."""
_PATIENCE = 100.0


TOOLREST = str(Path(sys.executable).parent / "toolrest")


def toolrest(
    *words: str,
    cwd: str | os.PathLike[str],
    said: str | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `env` is added to the environment, `said` is its standard input."""
    env = {**os.environ, **(env or {})}
    argv = [TOOLREST, *words]
    if not can_fork(argv, env):
        stdin: dict[str, Any] = {"stdin": subprocess.DEVNULL} if said is None else {"input": said}
        return subprocess.run(
            argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=_PATIENCE, **stdin
        )
    out, err = os.pipe(), os.pipe()
    read, write = (os.open(os.devnull, os.O_RDONLY), None) if said is None else os.pipe()
    process = Forked(argv, cwd, env, (read, out[1], err[1]))
    for number in (read, out[1], err[1]):
        os.close(number)
    with ThreadPoolExecutor(3) as threads:
        if write is not None:
            threads.submit(_type, write, said or "")
        texts = [threads.submit(_text, reading) for reading in (out[0], err[0])]
        try:
            printed = [text.result(_PATIENCE) for text in texts]
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, process.wait(_PATIENCE), *printed)


def can_fork(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a fork would do what a new process does."""
    return argv[0] == TOOLREST and _at_start(env) == _server().began_with


class Forked:
    """A command, used like `subprocess.Popen`; in a terminal, it gets a session of its own."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str],
        files: tuple[int, int, int],
    ) -> None:
        self._talk, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(_server().channel, [b"."], [*files, theirs.fileno()])
        self._talk.sendall(
            json.dumps([list(argv), os.path.join(os.getcwd(), cwd or ""), dict(env)]).encode()
        )
        self._talk.shutdown(socket.SHUT_WR)
        self.pid = int.from_bytes(self._talk.recv(4))
        assert self.pid, "what is forked has ended"
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit code, or the number of the signal, below zero."""
        if self.returncode is None:
            if not select.select([self._talk], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(TOOLREST, timeout or 0)
            told = self._talk.recv(4)
            self.returncode = int.from_bytes(told, signed=True) if told else -signal.SIGKILL
            self._talk.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)


class _Server:
    """The process that is forked, seen from here."""

    def __init__(self) -> None:
        self.channel, theirs = socket.socketpair()
        self.began_with = _at_start(os.environ)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.process.wait)
        atexit.register(self.channel.close)


_begin = cache(_Server)


def _server() -> _Server:
    if _begin().process.poll() is not None:  # it was killed with a test that hung
        _begin.cache_clear()
    return _begin()


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_AT_START)}


def _type(number: int, text: str) -> None:
    with suppress(BrokenPipeError), open(number, "w") as file:
        file.write(text)


def _text(number: int) -> str:
    with open(number) as file:
        return file.read()


class _Start:
    """What happens in the process that is forked."""

    code: int | None = None

    def serve(self, channel: socket.socket) -> None:
        """Fork for each request; returns in the fork that shall be the command."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        atexit.register(self._leave)  # what is registered first runs last
        import toolrest

        modules = (found.name for found in pkgutil.walk_packages(toolrest.__path__, "toolrest."))
        for name in (*modules, *_USED):
            if not any(part in _NOT_LOADED for part in name.split(".")):
                import_module(name)
        gc.collect()
        gc.freeze()
        while given := socket.recv_fds(channel, 1, 4)[1]:
            if os.fork() == 0:
                channel.close()
                self._keep(given)
                return
            for number in given:
                os.close(number)
            self._reap()
        self._reap()
        os._exit(0)

    def _reap(self) -> None:
        """Take leave of the keepers that have ended: what they used counts as the tests' own."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _keep(self, given: list[int]) -> None:
        with socket.socket(fileno=given[3]) as talk:
            with talk.makefile() as asked:
                argv, cwd, env = json.load(asked)
            if pid := os.fork():
                for number in (0, 1, 2, *given[:3]):
                    os.close(number)
                talk.sendall(pid.to_bytes(4))
                status = os.waitpid(pid, 0)[1]
                with suppress(BrokenPipeError):
                    talk.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
                os._exit(0)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(given[number], number)
            os.close(given[number])
            setattr(sys, name, _renewed(getattr(sys, name), number))
        if os.isatty(0):
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = argv
        sys.path[0] = os.path.dirname(argv[0])

    def run(self) -> None:
        """Do what the console script does."""
        from toolrest.cli.entry import main

        try:
            main()
            sys.exit()
        except SystemExit as ends:
            if ends.code is None or isinstance(ends.code, int):
                self.code = ends.code or 0
            raise

    def _leave(self) -> None:
        """End here where only memory is left to be freed, half of what a small command takes."""
        if self.code is not None:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self.code & 0xFF)


def _renewed(file: io.TextIOWrapper, number: int) -> io.TextIOWrapper:
    """A standard file as Python makes it for what has the number now."""
    unbuffered = file.write_through
    return io.TextIOWrapper(
        open(number, "wb" if number else "rb", 0 if number and unbuffered else -1, closefd=False),
        encoding=file.encoding,
        errors=file.errors,
        newline="\n",
        line_buffering=not unbuffered and (number == 2 or os.isatty(number)),
        write_through=unbuffered,
    )


if __name__ == "__main__":
    start = _Start()
    start.serve(socket.socket(fileno=int(sys.argv[1])))
    start.run()
