"""The host's side of a machine, against a program that only pretends to be one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolrest.process.command import Command
from toolrest.sandbox.vm import programs
from toolrest.sandbox.vm.machine import Machine, MachineFailed, MachineGivenUp
from toolrest.sandbox.vm.programs import frames

PROGRAMS = str(Path(programs.__file__).with_name("__main__.py"))
PRETENDER = """
import os, struct, sys
sys.path.insert(0, sys.argv[1])
import frames
def send(*frame): os.write(3, frames.pack(*frame))
def asked():
    reader = frames.Reader(frames.FROM_HOST)
    while data := os.read(3, 65536):
        yield from reader.feed(data)
"""
READY = "send(frames.READY, 0, b'{\"uptime\": 1.5}')\n"
Booted = Callable[..., Machine]


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[Booted]:
    """Boot what pretends to be a machine."""
    made: list[Machine] = []

    def start(
        text: str,
        first: str = READY,
        seconds: float = 30,
        given_up: threading.Event | None = None,
    ) -> Machine:
        ours, theirs = socket.socketpair()
        code = PRETENDER + first + textwrap.dedent(text)
        argv = (sys.executable, "-I", "-c", code, os.path.dirname(frames.__file__))
        theirs_fd = theirs.detach()
        command = Command(argv, "/", {}, fds=((3, theirs_fd),))
        machine = Machine(command, ours, [theirs_fd], registry=str(tmp_path), proxy=None)
        made.append(machine)
        machine.start(seconds, given_up or threading.Event())
        return machine

    yield start
    for machine in made:
        machine.stop()


class Client:
    """A command's client, as a process of its own."""

    def __init__(self, machine: Machine, stdin: str = "input") -> None:
        ours, theirs = socket.socketpair()
        self.over = machine.attach(ours)
        spec, writing = os.pipe()
        os.write(writing, b"{}")
        os.close(writing)
        words = ["client", str(theirs.fileno()), str(spec), stdin]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", PROGRAMS, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(theirs.fileno(), spec),
        )
        theirs.close()
        os.close(spec)

    def ended(self, text: bytes = b"") -> tuple[int, bytes, bytes]:
        out, err = self.process.communicate(text, timeout=30)
        return self.process.returncode, out, err


def test_output_errors_and_the_exit_code_arrive(boot: Booted) -> None:
    machine = boot("""
    for kind, number, payload in asked():
        if kind == frames.START:
            send(frames.OUT, number, b"out"); send(frames.ERR, number, b"err")
            send(frames.EXIT, number, bytes([7]))
    """)
    assert machine.uptime == 1.5
    client = Client(machine, "none")
    assert client.ended() == (7, b"out", b"err")
    assert client.over.wait(10)


def test_input_and_its_end_arrive_and_flow_on_credit(boot: Booted) -> None:
    machine = boot("""
    got = {}
    for kind, number, payload in asked():
        if kind == frames.INPUT:
            got[number] = got.get(number, 0) + len(payload)
            os.write(3, frames.credit(number, len(payload)))
        elif kind == frames.END:
            send(frames.OUT, number, str(got[number]).encode()); send(frames.EXIT, number, b"\\0")
    """)
    text = bytes(3 * frames.WINDOW)
    assert Client(machine).ended(text) == (0, str(len(text)).encode(), b"")


def test_output_flows_on_credit(boot: Booted) -> None:
    machine = boot("""
    left, credit = 5 * frames.WINDOW, frames.WINDOW
    for kind, number, payload in asked():
        credit += frames.number(payload) if kind == frames.CREDIT else 0
        while left and credit:
            length = min(left, credit, 30000)
            send(frames.OUT, number, bytes(length))
            left, credit = left - length, credit - length
        if not left and credit == frames.WINDOW:
            send(frames.EXIT, number, b"\\0")
    """)
    code, out, _ = Client(machine, "none").ended()
    assert (code, len(out)) == (0, 5 * frames.WINDOW)


@pytest.mark.parametrize(
    "said",
    [
        "os.write(3, b'\\xff' * 100)",
        "os.write(3, struct.pack('<IBI', 2**31, frames.OUT, number))",
        "[send(frames.OUT, number, bytes(65536)) for _ in range(40)]",
        "[send(frames.OUT, number, bytes(50000)) for _ in range(5)];"
        " [os.write(3, frames.credit(number, 0) * 5000) for _ in range(200)]",
        "[os.write(3, frames.pack(frames.OPEN, 2**31) * 5000) for _ in range(200)]",
    ],
    ids=["garbage", "a length", "more than its credit", "frames without end", "answers not read"],
)
def test_a_machine_that_breaks_the_rules_is_ended(
    boot: Booted, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolrest.sandbox.vm.machine._MOST_UNSENT", 1 << 20)
    machine = boot(f"""
    for kind, number, payload in asked():
        if kind == frames.START:
            {said}
    """)
    client = Client(machine, "none")  # its output is not read before the machine is gone
    assert client.over.wait(30)
    assert machine.is_over
    code, _, err = client.ended()
    assert (code, err) == (137, b"toolrest: the virtual machine ended before the command did\n")


def test_when_the_client_dies_the_command_is_killed(boot: Booted) -> None:
    machine = boot("""
    for kind, number, payload in asked():
        if kind == frames.START:
            send(frames.OUT, number, b"x")
        elif kind == frames.KILL:
            send(frames.EXIT, number, bytes([137]))
    """)
    client = Client(machine, "none")
    assert client.process.stdout is not None
    client.process.stdout.read(1)
    assert not client.over.is_set()
    client.process.kill()
    assert client.over.wait(30)
    assert client.ended()[0] == -9


def test_signals_are_passed_on(boot: Booted) -> None:
    machine = boot("""
    for kind, number, payload in asked():
        if kind == frames.START:
            send(frames.OUT, number, b"x")
        elif kind == frames.SIGNAL:
            send(frames.EXIT, number, bytes([100 + payload[0]]))
    """)
    client = Client(machine, "none")
    assert client.process.stdout is not None
    client.process.stdout.read(1)
    client.process.terminate()
    assert client.ended()[0] == 115


@pytest.mark.slow
def test_a_boot_without_an_answer_ends_in_time(boot: Booted) -> None:
    with pytest.raises(MachineFailed, match="did not answer in 1 s; kernel panic"):
        boot("os.write(1, b'kernel panic\\n'); os.read(3, 1)", "", 1)


def test_a_boot_that_is_given_up_is_not_a_machine_that_fails(boot: Booted) -> None:
    given_up = threading.Event()
    given_up.set()
    with pytest.raises(MachineGivenUp, match="the session was closed"):
        boot("os.write(1, b'booting\\n'); os.read(3, 1)", "", 60, given_up)


def test_a_boot_that_fails_says_what_came_last(boot: Booted) -> None:
    with pytest.raises(MachineFailed, match="it ended; no such machine"):
        boot("sys.exit('no such machine')", first="")


def test_connections_without_a_proxy_are_refused(boot: Booted) -> None:
    machine = boot(
        """
    send(frames.OPEN, frames.CONNECTIONS + 1)
    for kind, number, payload in asked():
        if (kind, number) == (frames.END, frames.CONNECTIONS + 1):
            send(frames.READY, 0, b"not json")
    """,
        first="",
    )
    assert machine.uptime == 0.0
