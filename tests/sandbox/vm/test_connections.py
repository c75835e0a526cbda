"""Connections of commands to the network proxy, as the agent in the machine keeps them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from toolrest.sandbox.vm.programs import frames

TWO_ROUNDS = """
import socket, sys
from toolrest.sandbox.vm.programs import frames
from toolrest.sandbox.vm.programs.agent import GuestAgent

port, host = socket.socketpair()
agent = GuestAgent(port.fileno(), sys.argv[1])
command = socket.socket(socket.AF_UNIX)
command.connect(sys.argv[1])
agent.round()
host.send(frames.pack(frames.END, frames.CONNECTIONS + 1))
command.send(b"more")
agent.round()
print(*(kind for kind, *_ in frames.Reader(frames.FROM_MACHINE).feed(host.recv(4096))))
print(len(agent.connections))
"""


def test_an_event_of_a_connection_that_has_just_ended_is_passed_over_failed_before(
    tmp_path: Path,
) -> None:
    """Both come in one round: the proxy's end, then bytes of the command.

    In a process of its own, as the agent takes its signals and never closes its sockets.
    """
    argv = [sys.executable, "-c", TWO_ROUNDS, str(tmp_path / "proxy")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(frames.OPEN), str(frames.CLOSED), "0"]
