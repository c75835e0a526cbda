"""The forwarder from a loopback port to the proxy's socket, run by itself."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolrest.sandbox.network import forwarder

SERVE = """
import runpy, socket, sys
found = runpy.run_path(sys.argv[1])
found["_serve"](socket.socket(fileno=int(sys.argv[2])), sys.argv[3])
"""


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "proxy.sock"))
        listening.listen(256)
        listening.settimeout(60)
        yield listening


@pytest.fixture
def address(tmp_path: Path, proxy: socket.socket) -> Iterator[tuple[str, int]]:
    """Where a forwarder to that proxy listens."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        words = (forwarder.__file__, str(server.fileno()), str(tmp_path / "proxy.sock"))
        argv = [sys.executable, "-I", "-S", "-c", SERVE, *words]
        started = subprocess.Popen(argv, pass_fds=[server.fileno()])
        yield server.getsockname()
        os.kill(started.pid, signal.SIGKILL)
        started.wait()


@pytest.mark.slow
def test_connections_past_the_most_wait_for_one_that_ends(
    address: tuple[str, int], proxy: socket.socket
) -> None:
    most = forwarder.MOST_CONNECTIONS
    clients = [socket.create_connection(address) for _ in range(most)]
    carried = [proxy.accept()[0] for _ in clients]
    with socket.create_connection(address) as one_more:
        one_more.sendall(b"waited")
        assert select.select([proxy], [], [], 0.5)[0] == []
        for end in (*clients, *carried):
            end.close()
        with proxy.accept()[0] as late:
            assert late.recv(6) == b"waited"
