"""The chat on a pty: first paint, bytes and CPU of 1,000 streamed lines, idle CPU, key to echo.

python bench/chat.py [COMMAND...]     another program's first paint beside ours (codex)
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from toolrest.testing.server import ScriptedServer

TOOLREST = str(Path(sys.executable).parent / "toolrest")
ROUNDS = 11
LINES = "\n".join(f"line {n} of an answer that is streamed to a terminal" for n in range(1000))


class Pty:
    """A program on a terminal of 24x80."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: str) -> None:
        self.began = time.perf_counter()
        self.data = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)

    def until(self, text: bytes, seconds: float = 60.0, start: int = 0) -> float:
        """Seconds since the start until this text was written."""
        while text not in self.data[start:]:
            if not self.read(seconds):
                raise SystemExit(f"{text!r} never came:\n{self.data.decode(errors='replace')}")
        return time.perf_counter() - self.began

    def read(self, seconds: float) -> bool:
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        if b"\x1b[6n" in data:
            os.write(self.fd, b"\x1b[1;1R")
        self.data += data
        return bool(data)

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def first_paint(argv: list[str], env: dict[str, str], cwd: str, sign: bytes) -> float:
    program = Pty(argv, env, cwd)
    try:
        return program.until(sign) * 1000
    finally:
        program.end()


def home(server: ScriptedServer) -> str:
    folder = tempfile.mkdtemp(prefix="toolrest-bench-")
    rows = {"base_url": server.url, "wire_api": "responses", "name": "scripted"}
    body = "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items())
    head = 'model = "gpt-5.5"\nmodel_provider = "scripted"\n[model_providers.scripted]\n'
    Path(folder, "config.toml").write_text(head + body)
    return folder


def main() -> None:
    other = sys.argv[1:] or ([found] if (found := shutil.which("codex")) else [])
    with ScriptedServer([LINES, *([LINES] * 10)]) as server, tempfile.TemporaryDirectory() as cwd:
        env = {**os.environ, "TERM": "xterm-256color", "TOOLREST_HOME": home(server)}
        ours, theirs = [], []
        for _ in range(ROUNDS + 1):
            ours.append(first_paint([TOOLREST], env, cwd, "›".encode()))
            if other:
                theirs.append(first_paint(other, env, cwd, b"\x1b["))
        print(f"first paint        {statistics.median(ours[1:]):8.0f} ms")
        if theirs:
            print(f"  {other[0]:<17}{statistics.median(theirs[1:]):8.0f} ms")
        else:
            print("  codex: not measured, it is not installed")
        measure_stream(Pty([TOOLREST], env, cwd))


def measure_stream(chat: Pty) -> None:
    chat.until("toolrest ·".encode())
    start, before = len(chat.data), chat.cpu()
    os.write(chat.fd, b"go\r")
    chat.until(b"line 999 ", start=start)
    chat.until(b"tokens in", start=start)
    print(f"1,000 lines        {len(chat.data) - start:8,} bytes for {len(LINES):,}")
    print(f"  CPU              {(chat.cpu() - before) * 1000:8.0f} ms")
    for _ in range(9):  # 10,000 lines of history
        start = len(chat.data)
        os.write(chat.fd, b"go\r")
        chat.until(b"tokens in", start=start)
    while chat.read(1.0):
        pass
    before, began = chat.cpu(), time.perf_counter()
    while time.perf_counter() - began < 10:
        chat.read(10 - (time.perf_counter() - began))
    share = (chat.cpu() - before) / (time.perf_counter() - began)
    print(f"idle CPU           {share:8.2%}")
    print(f"key to echo        {echo(chat):8.1f} ms p99, after 10,000 lines")
    chat.end()


def echo(chat: Pty) -> float:
    """The 99th percentile of the time between a key and its echo."""
    found = []
    for number in range(300):
        key = bytes([ord("a") + number % 26])
        start, began = len(chat.data), time.perf_counter()
        os.write(chat.fd, key)
        while key not in chat.data[start:]:
            chat.read(5)
        found.append((time.perf_counter() - began) * 1000)
        while chat.read(0.06):
            pass
        if number % 40 == 39:
            os.write(chat.fd, b"\x03")
            while chat.read(0.1):
                pass
    return statistics.quantiles(found, n=100)[98]


if __name__ == "__main__":
    main()
