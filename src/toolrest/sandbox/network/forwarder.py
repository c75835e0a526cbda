"""The forwarder inside the sandbox: from a loopback port to the proxy's socket.

Started as a script, by path, with the standard library only. The network namespace has nothing
but loopback, and programs know proxies by host and port, so it listens there for the command. It
costs one Python start (about 15 ms) per command, and only when the network is an allowlist.

argv: port, socket, command…
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

_CHUNK = 65536


def main() -> None:
    """Listen, leave the listener behind as a child of init, become the command."""
    port, path, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    server = socket.create_server(("127.0.0.1", port), backlog=128)
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            _serve(server, path)
        os._exit(0)
    os.waitpid(pid, 0)
    server.close()
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        os._exit(126 if isinstance(error, PermissionError) else 127)


def _serve(server: socket.socket, path: str) -> None:
    """One process per connection; nothing here touches the command's terminal or pipes."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        client, _ = server.accept()
        if os.fork() == 0:
            server.close()
            _carry(client, path)
            os._exit(0)
        client.close()


def _carry(client: socket.socket, path: str) -> None:
    """Carry bytes both ways until both sides have ended."""
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as proxy:
        proxy.connect(path)
        other = {client: proxy, proxy: client}
        open_sides = [client, proxy]
        while open_sides:
            for source in select.select(open_sides, [], [])[0]:
                data = source.recv(_CHUNK)
                if data:
                    other[source].sendall(data)
                else:
                    open_sides.remove(source)
                    other[source].shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
