"""The chat beside codex, in the same pty and with the same scripted server.

python bench/chat.py [--codex PROGRAM] [--rounds 5]     codex is taken from the PATH, else left out

First paint: until the line to write in is there. A thousand lines: one message in 4,000 deltas in
20 s. CPU is user and system time of all processes of a program, its daemons included.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import os
import pty
import re
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from results import record
from toolrest.config.trust import trust
from toolrest.testing import Reply, Say
from toolrest.testing.server import ScriptedServer

TOOLREST = str(Path(sys.executable).parent / "toolrest")
LINES = "\n".join(f"line {n} of an answer that is streamed to a terminal" for n in range(1000))
REPLIES = {
    "lines": Reply([Say(LINES, chunks=4000, seconds=20.0)]),
    "cells": Reply([Say(f"message {n}", chunks=1) for n in range(2500)]),
}
MARK = "›".encode()
READY = {"toolrest": b"\xc2\xb7 scripted", "codex": b"scripted default"}
DONE = {"toolrest": b"Worked for", "codex": b"state=done"}
IDLE = 20.0
KEYS = 300
ANSWERS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;22c",
    b"\x1b[?u": b"\x1b[?0u",
    b"\x1b]10;?\x1b\\": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?\x1b\\": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
"""What a terminal answers when it is asked: where the cursor is, what it can, its colours."""
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()].|[78=>])")


def reply(request: Any) -> Reply:
    """What the last message asks for."""
    asked = json.dumps(request["input"][-1:])
    return next((made for name, made in REPLIES.items() if name in asked), Reply([Say("ok")]))


class Chat:
    """A program that chats, with a home of its own."""

    def __init__(self, name: str, argv: list[str], home: str, variable: str, server: str) -> None:
        self.name, self.argv, self.home = name, argv, home
        os.mkdir(home)
        self.env = {**os.environ, "TERM": "xterm-256color", variable: home}
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its byte-code
        self.ready, self.done = READY[name], DONE[name]
        self.cwd = f"{home}/work"
        os.mkdir(self.cwd)
        row = {"name": "scripted", "base_url": server, "wire_api": "responses"}
        body = "".join(f"{key} = {json.dumps(value)}\n" for key, value in row.items())
        head = 'model = "scripted"\nmodel_provider = "scripted"\n'
        if variable == "CODEX_HOME":
            head += "check_for_update_on_startup = false\n"
            body += f'[projects."{os.path.realpath(self.cwd)}"]\ntrust_level = "trusted"\n'
        Path(home, "config.toml").write_text(f"{head}[model_providers.scripted]\n{body}")
        if variable == "TOOLREST_HOME":
            trust(self.cwd, home=home)  # a folder that is not known is asked about

    def processes(self) -> Iterator[int]:
        """Every process that has this home in its environment."""
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and self.home.encode() in (entry / "environ").read_bytes():
                    yield int(entry.name)

    def cpu(self) -> float:
        """Seconds that its processes have used, and those of which they saw the end."""
        ticks = 0
        for pid in self.processes():
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End what it has left running."""
        for pid in list(self.processes()):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


class Pty:
    """A program on a terminal of 24x80."""

    def __init__(self, chat: Chat) -> None:
        self.began = time.perf_counter()
        self.painted = 0.0
        self.data = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            os.chdir(chat.cwd)
            os.execvpe(chat.argv[0], chat.argv, chat.env)

    def until(self, text: bytes, start: int = 0, seconds: float = 60.0) -> float:
        """Seconds since the start until this text was written."""
        while text not in self.data[start:]:
            if not self.read(seconds):
                raise SystemExit(f"{text!r} never came: {self.data[-300:]!r}")
        return time.perf_counter() - self.began

    def read(self, seconds: float) -> bool:
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        for question, answer in ANSWERS.items():
            if question in data:
                os.write(self.fd, answer)
        self.data += data
        return bool(data)

    def rest(self, seconds: float) -> None:
        """Read until nothing is written for so long."""
        while self.read(seconds):
            pass

    def types(self, text: bytes) -> None:
        os.write(self.fd, text)

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@contextmanager
def running(chat: Chat) -> Iterator[Pty]:
    """The program, ready for a message."""
    program = Pty(chat)
    try:
        program.until(MARK)
        program.painted = time.perf_counter() - program.began
        program.until(chat.ready)
        yield program
    finally:
        program.end()


def start(chat: Chat) -> tuple[float, float]:
    """Milliseconds to the first paint, and until it is ready for a message."""
    with running(chat) as program:
        return program.painted * 1000, (time.perf_counter() - program.began) * 1000


def streaming(chat: Chat) -> tuple[int, float]:
    """Bytes and CPU seconds of the streamed lines, from Enter to the end of the turn."""
    with running(chat) as program:
        program.rest(1.0)
        program.types(b"lines")
        program.rest(0.5)
        start, before = len(program.data), chat.cpu()
        program.types(b"\r")
        program.until(chat.done, start)
        program.rest(1.0)
        return len(program.data) - start, chat.cpu() - before


def long_session(chat: Chat) -> tuple[float, list[float]]:
    """The idle share of a CPU, and each key's milliseconds to its echo, after 10,000 messages."""
    with running(chat) as program:
        program.rest(1.0)
        for _ in range(4):
            start = len(program.data)
            program.types(b"cells")
            program.rest(0.5)
            program.types(b"\r")
            program.until(chat.done, start, 120.0)
            program.rest(2.0)
        before, began = chat.cpu(), time.perf_counter()
        while (left := IDLE - (time.perf_counter() - began)) > 0:
            program.read(left)
        share = (chat.cpu() - before) / (time.perf_counter() - began)
        return share, [echo(program, number) for number in range(KEYS)]


def echo(program: Pty, number: int) -> float:
    """Milliseconds between a key and its echo."""
    if number % 40 == 0:
        program.types(b"\x15")  # an empty line again
        program.rest(0.2)
    key = bytes([ord("a") + number % 26])
    start, began = len(program.data), time.perf_counter()
    program.types(key)
    while key not in _ESCAPE.sub(b"", program.data[start:]) and program.read(5):
        pass
    found = (time.perf_counter() - began) * 1000
    program.rest(0.06)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--codex", default=shutil.which("codex"), help="the program")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    programs = {"toolrest": (TOOLREST, "TOOLREST_HOME"), "codex": (args.codex, "CODEX_HOME")}
    if args.codex is None:
        del programs["codex"]
        print("codex: not measured, it is not on the PATH (--codex PROGRAM names it)")
    with (
        # codex wants no home in /tmp
        tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as folder,
        ScriptedServer(itertools.repeat(reply), check=False) as server,
    ):
        chats = [
            Chat(name, [program], f"{folder}/{name}", variable, server.url)
            for name, (program, variable) in programs.items()
        ]
        try:
            measure(chats, args.rounds)
        finally:
            for chat in chats:
                chat.end()


def measure(chats: list[Chat], rounds: int) -> None:
    """Measure in turn, so that what else the machine does meets both."""
    print(f"{'':<34}" + "".join(f"{chat.name:>12}" for chat in chats))
    starts = [[start(chat) for chat in chats] for _ in range(2 * rounds + 1)][1:]
    begun: dict[str, float] = {}
    for name, at in (("first paint", 0), ("ready for a message", 1)):
        found = [median(each[at] for each in column) for column in zip(*starts, strict=True)]
        show(name, [f"{each:,.0f} ms" for each in found])
        begun |= named(chats, found, f", {name}")
    keep("start", "starting", "ms", begun)
    streams = [[streaming(chat) for chat in chats] for _ in range(max(1, rounds // 2))]
    for name, at, unit in (("bytes", 0, ""), ("CPU", 1, " s")):
        found = [median(each[at] for each in column) for column in zip(*streams, strict=True)]
        show(f"1,000 streamed lines: {name}", [f"{each:,.6g}{unit}" for each in found])
        words = "bytes to the terminal" if name == "bytes" else "seconds of CPU"
        keep(f"stream-{name.lower()}", f"1,000 streamed lines, {words}", words, named(chats, found))
    ends = [long_session(chat) for chat in chats]
    show("after 10,000 messages: idle CPU", [f"{share:.2%}" for share, _ in ends])
    echoed: dict[str, float] = {}
    for name, rank in (("median", 49), ("p99", 98)):
        found = [statistics.quantiles(echoes, n=100)[rank] for _, echoes in ends]
        show(f"  key to echo, {name}", [f"{each:.1f} ms" for each in found])
        echoed |= named(chats, found, f", {name}")
    keep("echo", "from a key to its echo after 10,000 messages", "ms", echoed)


def named(chats: list[Chat], values: list[float], more: str = "") -> dict[str, float]:
    """The bars of one figure; codex with its version."""
    bars = {}
    for chat, value in zip(chats, values, strict=True):
        asked = subprocess.run([*chat.argv, "--version"], capture_output=True, text=True)
        version = f" {asked.stdout.split()[-1]}" if chat.name == "codex" else ""
        bars[f"{chat.name}{version}{more}"] = value
    return bars


def keep(name: str, title: str, unit: str, values: dict[str, float]) -> None:
    """Record a chart for the page."""
    about = "In the same pty, with the same scripted server. `bench/chat.py`."
    record(f"chat-{name}", f"Chat: {title}", unit, values, about)


def show(name: str, values: list[str]) -> None:
    print(f"{name:<34}" + "".join(f"{value:>12}" for value in values), flush=True)


if __name__ == "__main__":
    main()
