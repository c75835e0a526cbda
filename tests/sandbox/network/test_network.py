"""Network off, through the allowlist, and on, as a command sees it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.sandbox.confine import Backend, SessionSandbox
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.network.proxy import NetworkProxy
from toolrest.sandbox.network.tunnel import Blocked
from toolrest.sandbox.policy import Network, SandboxPolicy

FETCH = """
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.headers.get("x-proxy-error"))
except OSError as error:
    print("failed", type(error).__name__)
"""
SOCKS = """
import socket, sys
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"\\x05\\x01\\x00"); s.recv(2)
name = sys.argv[1].encode()
s.sendall(bytes([5, 1, 0, 3, len(name)]) + name + int(sys.argv[2]).to_bytes(2, "big"))
print(s.recv(10)[1])
"""

LOOKUP = """
import socket
try:
    print(socket.getaddrinfo("ok.test", 80))
except OSError:
    print("no")
"""


@pytest.fixture
def policy(tmp_path: Path) -> Callable[[Network], SandboxPolicy]:
    def build(network: Network) -> SandboxPolicy:
        workspace = tmp_path / "ws"
        workspace.mkdir(exist_ok=True)
        return SandboxPolicy.build(str(workspace), str(tmp_path / "session"), network=network)

    return build


async def run(sandbox: SessionSandbox, *argv: str) -> str:
    owner = Owner()
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    confined = sandbox.confine(
        Command((sys.executable, "-I", *argv), sandbox.policy.workspace, env), late=True
    )
    try:
        child = await owner.start(confined.command, merge=True)
        with os.fdopen(child.outputs[0], "rb") as stream:
            reading = asyncio.create_task(asyncio.to_thread(stream.read))
            await child.wait()
            await child.kill()
            return (await reading).decode().strip()
    finally:
        confined.release()
        await owner.aclose()


async def test_off(policy: Callable[[Network], SandboxPolicy], port: int, backend: Backend) -> None:
    sandbox = SessionSandbox(policy("off"), backend=backend)
    answer = await run(sandbox, "-c", FETCH, f"http://127.0.0.1:{port}/")
    assert answer.startswith("failed")


async def test_on(policy: Callable[[Network], SandboxPolicy], port: int, backend: Backend) -> None:
    sandbox = SessionSandbox(policy("on"), backend=backend)
    assert await run(sandbox, "-c", FETCH, f"http://127.0.0.1:{port}/") == "hello"


@pytest.mark.slow
@pytest.mark.needs("namespaces")
async def test_the_allowlist(
    policy: Callable[[Network], SandboxPolicy], port: int, tmp_path: Path
) -> None:
    blocked: list[Blocked] = []
    asked: list[str] = []

    async def resolve(name: str, _: int) -> list[str]:
        asked.append(name)
        return ["127.0.0.1"]

    proxy = NetworkProxy(
        ["ok.test", "127.0.0.0/8"],
        str(tmp_path / "proxy.sock"),
        on_blocked=blocked.append,
        resolve=resolve,
    )
    await proxy.start()
    sandbox = SessionSandbox(policy("allowlist"), proxy=proxy.for_sandbox())
    try:
        assert await run(sandbox, "-c", FETCH, f"http://ok.test:{port}/") == "hello"
        answer = await run(sandbox, "-c", FETCH, f"http://evil.test:{port}/")
        assert answer == "403 blocked-by-allowlist"
        assert await run(sandbox, "-c", SOCKS, "ok.test", str(port)) == "0"
        assert await run(sandbox, "-c", SOCKS, "evil.test", str(port)) == "2"
        direct = f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {port})))"
        assert int(await run(sandbox, "-c", direct)) != 0
        assert await run(sandbox, "-c", LOOKUP) == "no"
    finally:
        await proxy.aclose()
    assert blocked == [
        Blocked("evil.test", port, "http", "not_allowed"),
        Blocked("evil.test", port, "socks5", "not_allowed"),
    ]
    assert set(asked) == {"ok.test"}


@pytest.mark.needs("namespaces")
async def test_a_command_that_is_not_there_and_exit_codes_pass_the_forwarder(
    policy: Callable[[Network], SandboxPolicy], tmp_path: Path
) -> None:
    proxy = NetworkProxy([], str(tmp_path / "proxy.sock"))
    await proxy.start()
    sandbox = SessionSandbox(policy("allowlist"), proxy=proxy.for_sandbox())
    assert await run(sandbox, "-c", "import os; print(os.listdir('/proc/self/fd'))") != ""
    children = "import os\ntry: print(os.wait())\nexcept ChildProcessError: print('none')"
    assert await run(sandbox, "-c", children) == "none"
    await proxy.aclose()


def test_an_allowlist_needs_its_proxy(policy: Callable[[Network], SandboxPolicy]) -> None:
    with pytest.raises(SandboxUnavailable, match="proxy"):
        SessionSandbox(policy("allowlist")).choose()


@pytest.mark.needs("landlock")
async def test_landlock_has_no_network_in_place_of_a_list(
    policy: Callable[[Network], SandboxPolicy], tmp_path: Path
) -> None:
    proxy = NetworkProxy([], str(tmp_path / "proxy.sock"))
    sandbox = SessionSandbox(policy("allowlist"), backend="landlock", proxy=proxy.for_sandbox())
    probe, _ = sandbox.choose()
    assert "needs bubblewrap" in probe.controls["network"].note
    assert probe.controls["network"].level == "partial"
    assert sandbox.policy.network == "off"


ABSTRACT = "import socket, sys; s = socket.socket(1); s.connect(chr(0) + sys.argv[1]); s.send(b'x')"


@pytest.mark.needs("namespaces")
async def test_abstract_sockets_with_the_network_on(
    policy: Callable[[Network], SandboxPolicy], listen: Callable[[str], list[bytes]]
) -> None:
    """Without a network namespace only Landlock's scope keeps these apart."""
    name = f"toolrest-{os.getpid()}-abstract"
    seen = listen(f"\0{name}")
    sandbox = SessionSandbox(policy("on"))
    answer = await run(sandbox, "-c", ABSTRACT, name)
    note = sandbox.choose()[0].controls["unix_sockets"].note
    assert (seen == []) is ("abstract sockets" not in note), answer
