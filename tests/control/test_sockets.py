"""Control sockets: their names in the kernel's list, and who is at the other end."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolrest.control import sockets
from toolrest.control.sockets import connect, is_own_peer, listen, path_of
from toolrest.sandbox.kernel.mounts import socket_paths


@pytest.fixture
def short() -> Iterator[str]:
    """A home of which the names of sockets are short enough to be bound to."""
    with tempfile.TemporaryDirectory(prefix="home-", dir="/tmp") as folder:
        yield folder


def test_a_socket_is_listed_by_its_own_name(short: str) -> None:
    """Sandboxes mask what is listed, in homes that they do not know as such, too."""
    with listen(short, "session"), connect(short, "session"):
        assert path_of(short, "session") in socket_paths()
        with listen(short, "session"):  # opened once more
            assert os.listdir(f"{short}/control") == ["session.sock"]
            connect(short, "session").close()


def test_a_long_name_can_be_connected_to(tmp_path: Path) -> None:
    home = tmp_path / ("x" * 120)
    with listen(str(home), "session"), connect(str(home), "session"):
        assert os.listdir(home / "control") == ["session.sock"]


CONNECT = """
import os, socket, sys
os.chdir(sys.argv[1])
socket.socket(socket.AF_UNIX).connect("session.sock")
"""


def accepted(listening: socket.socket) -> socket.socket:
    select.select([listening], [], [], 30)
    return listening.accept()[0]


def test_a_process_that_has_the_number_of_the_peer_is_not_the_peer(
    short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = sockets._status(os.getpid())
    monkeypatch.setattr(sockets, "_status", lambda _: own)  # as if its number was given anew
    with listen(short, "session") as listening:
        with connect(short, "session"), accepted(listening) as alive:
            assert is_own_peer(alive)
            try:
                os.close(alive.getsockopt(socket.SOL_SOCKET, sockets._PEER_PIDFD))
            except OSError:
                pytest.skip("this kernel does not say which process it was (Linux 6.5)")
        argv = [sys.executable, "-c", CONNECT, f"{short}/control"]
        subprocess.run(argv, check=True)
        with accepted(listening) as gone:
            assert not is_own_peer(gone)
