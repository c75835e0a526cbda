"""The forwarder inside the sandbox: from a loopback port to the proxy's socket.

Started as a script, by path, with the standard library only. The network namespace has nothing
but loopback, and programs know proxies by host and port, so it listens there for the command. It
costs one Python start (about 15 ms) per command, and only when the network is an allowlist.

argv: port, socket, command…
"""

from __future__ import annotations

import os
import select
import socket
import sys

MOST_CONNECTIONS = 128
"""At a time; each is a process of 3 MB, and in a container no limit of the command's holds it."""
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
    live = 0
    while True:
        full = live >= MOST_CONNECTIONS  # then the others wait to be accepted
        patience = (0.05 if full else 1.0) if live else None
        ready = select.select([] if full else [server], [], [], patience)[0]
        live -= _reaped()
        if not ready:
            continue
        client, _ = server.accept()
        if os.fork() == 0:
            server.close()
            _carry(client, path)
            os._exit(0)
        live += 1
        client.close()


def _reaped() -> int:
    """How many of the processes have ended since the last time."""
    count = 0
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            count += 1
    except ChildProcessError:
        pass
    return count


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
