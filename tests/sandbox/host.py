"""Runs outside the sandbox, as a user of the test's choice: builds a world, runs the probes, looks.

A script of its own, so that the same code runs as root and as an ordinary user. It prints one
JSON object: what the probes said, and what the world looks like afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import termios
import threading
from typing import Any

from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.sandbox.backends.container.engine import ContainerOptions
from toolrest.sandbox.confine import Confined, SessionSandbox
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.policy import SandboxPolicy

INSIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside")
HELPER = """
import ctypes, os, signal, sys, time
def note(number, frame):
    os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), b"x")
signal.signal(signal.SIGUSR1, note)
os.chdir(sys.argv[2])
buffer = ctypes.create_string_buffer(b"outside")
print(ctypes.addressof(buffer), flush=True)
while True:
    time.sleep(60)
"""
GIT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def write(path: str, text: str = "content\n", mode: int = 0o644) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as stream:
        stream.write(text)
    os.chmod(path, mode)


class World:
    """Folders, processes and sockets around the sandbox."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.mark = f"toolrest-{os.getpid()}"
        self.datagrams: list[bytes] = []
        self.contacts: list[str] = []
        self.context: dict[str, Any] = {
            name: os.path.join(base, name)
            for name in ("ws", "plain", "linked", "outside", "home", "toolrest_home")
        }
        self.context |= {"mark": self.mark, "marker": f"{self.mark}-helper"}
        self.context |= {"shm_mark": f"{self.mark}-shm", "orphan": f"{self.mark}-orphan"}
        self.held: list[Any] = []

    def build(self) -> None:
        for name in ("ws", "plain", "linked", "outside", "home", "toolrest_home"):
            os.makedirs(self.context[name], exist_ok=True)
        outside, home, ws = (self.context[n] for n in ("outside", "home", "ws"))
        for name in ("file", "victim"):
            write(f"{outside}/{name}")
        write(f"{outside}/private", mode=0o600)
        write(f"{home}/.bashrc")
        write(f"{home}/.ssh/id_rsa", mode=0o600)
        write(f"{self.context['toolrest_home']}/config.toml")
        write(f"{ws}/tracked")
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
            subprocess.run(["git", *arguments], cwd=ws, check=True, env=os.environ | GIT)
        os.symlink(f"{outside}/file", f"{ws}/old-link")
        os.link(f"{outside}/file", f"{ws}/old-hardlink")
        os.makedirs(f"{self.context['linked']}/real/hooks")
        os.symlink("real", f"{self.context['linked']}/.git")
        write(f"/dev/shm/{self.context['shm_mark']}")

    def start(self) -> None:
        self._helper()
        self._internet()
        self._unix()
        self._shared_memory()
        self._inherited()
        self._terminal()

    def _helper(self) -> None:
        argv = [sys.executable, "-c", HELPER, f"{self.base}/signals", self.context["outside"]]
        self.helper = subprocess.Popen(
            [*argv, self.context["marker"]],
            stdout=subprocess.PIPE,
            env=os.environ | {"FAKE_SERVICE_API_KEY": "s3cret"},
            start_new_session=True,
        )
        assert self.helper.stdout is not None
        self.context["address"] = int(self.helper.stdout.readline())
        self.context["pid"] = self.helper.pid

    def _internet(self) -> None:
        self.context["tcp"] = self._listen(socket.AF_INET, ("127.0.0.1", 0))
        try:
            self.context["tcp6"] = self._listen(socket.AF_INET6, ("::1", 0))
        except OSError:
            self.context["tcp6"] = 0
        echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        echo.bind(("127.0.0.1", 0))
        self.context["udp"] = echo.getsockname()[1]
        self.held.append(echo)

        def serve() -> None:
            while True:
                data, peer = echo.recvfrom(2048)
                self.contacts.append("udp")
                echo.sendto(data, peer)

        threading.Thread(target=serve, daemon=True).start()

    def _listen(self, family: int, address: Any) -> Any:
        server = socket.socket(family, socket.SOCK_STREAM)
        server.bind(address)
        server.listen()
        self.held.append(server)

        def serve() -> None:
            while True:
                client, _ = server.accept()
                if client.recv(1) == b"x":
                    self.contacts.append(str(address))
                client.close()

        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1] if family != socket.AF_UNIX else address

    def _unix(self) -> None:
        outside = self.context["outside"]
        self._listen(socket.AF_UNIX, f"{outside}/stream.sock")
        self.context["tmp_socket"] = self._listen(socket.AF_UNIX, f"/tmp/{self.mark}.sock")
        self._listen(socket.AF_UNIX, f"\0{self.mark}")
        self.context["abstract"] = self.mark
        mailbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        mailbox.bind(f"{outside}/dgram.sock")
        self.held.append(mailbox)

        def serve() -> None:
            while True:
                self.datagrams.append(mailbox.recv(64))

        threading.Thread(target=serve, daemon=True).start()

    def _shared_memory(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.context["shm"] = libc.shmget(0, 4096, 0o1600)

    def _inherited(self) -> None:
        outside = self.context["outside"]
        one, other = socket.socketpair()
        leaked = {
            "file_fd": os.open(f"{outside}/file", os.O_WRONLY | os.O_APPEND),
            "dir_fd": os.open(outside, os.O_RDONLY),
            "socket_fd": one.fileno(),
        }
        self.held += [one, other]
        for number, (name, fd) in enumerate(leaked.items(), 200):
            os.dup2(fd, number, inheritable=True)
            self.context[name] = number

    def _terminal(self) -> None:
        """This process gets a terminal, as if a person had started it."""
        _, terminal = pty.openpty()
        try:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        except OSError:
            return

    def close(self) -> None:
        self.helper.kill()
        self.helper.wait()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmctl(self.context["shm"], 0, None)
        for path in (f"/dev/shm/{self.context['shm_mark']}", f"/tmp/{self.mark}.sock"):
            os.unlink(path)
        for folder in ("/tmp", "/var/tmp", "/dev/shm"):  # what the run without a sandbox leaves
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{folder}/{self.mark}")

    def picture(self) -> dict[str, str]:
        """Everything outside the workspace, so that any change shows."""
        found: dict[str, str] = {}
        for name in ("outside", "home", "toolrest_home"):
            for folder, folders, files in os.walk(self.context[name]):
                for entry in (*folders, *files):
                    path = os.path.join(folder, entry)
                    found[path] = describe(path)
        return found


def describe(path: str) -> str:
    info = os.lstat(path)
    text = f"{info.st_mode:o} {info.st_uid}"
    if os.path.isfile(path):
        with open(path, "rb") as stream:
            digest = hashlib.sha256(stream.read()).hexdigest()[:8]
        try:
            extra = os.listxattr(path)
        except OSError:
            extra = []
        text += f" {digest} {info.st_mtime_ns} {extra}"
    return text


def policy_for(world: World, wish: dict[str, Any]) -> SandboxPolicy:
    context = world.context
    roots = [context[name] for name in wish.get("roots", ["plain"])]
    return SandboxPolicy.build(
        context[wish.get("workspace", "ws")],
        f"{world.base}/session",
        mode=wish.get("mode", "workspace-write"),
        writable_roots=roots,
        hidden=[f"{context['home']}/.ssh", context["toolrest_home"]],
        network=wish.get("network", "off"),
        cache_dir=f"{world.base}/cache",
    )


async def run(command: Command) -> tuple[str, int | None]:
    """Start through the process room, read everything, wait for the whole tree to be gone."""
    owner = Owner()
    try:
        child = await owner.start(command, merge=True)
        with os.fdopen(child.outputs[0], "rb") as stream:
            reading = asyncio.create_task(asyncio.to_thread(stream.read))
            ended = await child.wait()
            await child.kill()
            text = (await reading).decode(errors="replace")
        return text, ended.exit_code if ended else None
    finally:
        await owner.aclose()


def surviving(marker: str) -> bool:
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as stream:
                if marker.encode() in stream.read():
                    return True
        except OSError:
            continue
    return False


def main() -> None:
    wish: dict[str, Any] = json.loads(sys.argv[1])
    world = World(wish["base"])
    world.build()
    world.start()
    answer: dict[str, Any] = {}
    try:
        policy = policy_for(world, wish)
        # This checkout may be in /tmp, where a confined command has a folder of its own.
        # Of another root file system a command sees only the writable roots.
        other = wish["backend"] in ("docker", "chroot")
        shown = world.context["plain"] if other else world.base
        inside = shutil.copytree(INSIDE, f"{shown}/inside")
        before = world.picture()
        bare = wish["backend"] == "none"
        sandbox = SessionSandbox(
            policy,
            backend=None if bare else wish["backend"],
            registry=f"{world.base}/registry",
            container=ContainerOptions(**wish["container"]) if wish.get("container") else None,
            rootfs=wish.get("rootfs"),
        )
        context = world.context | {
            "private_tmp": wish["backend"] not in ("landlock", "none"),
            "only": wish.get("only"),
        }
        write(f"{shown}/context.json", json.dumps(context))
        python = "python3" if other else sys.executable
        argv: tuple[str, ...] = (python, "-I", f"{inside}/kit.py", f"{shown}/context.json")
        if wish.get("argv"):
            argv = tuple(wish["argv"])
        env = {"PATH": "/usr/bin:/bin", "HOME": context["home"], **GIT}
        if bare:
            env["FAKE_SERVICE_API_KEY"] = "s3cret"
            private = ("unshare", "--mount", "--propagation", "private", "--")
            argv = (*private, *argv) if os.geteuid() == 0 else argv
        command = Command(argv, policy.workspace, env)
        confined = Confined(command, "none") if bare else sandbox.confine(command, late=True)
        text, code = asyncio.run(run(confined.command))
        answer["survivor"] = surviving(context["orphan"])
        confined.release()
        sandbox.close()
        after = world.picture()
        answer |= {
            "text": text,
            "code": code,
            "backend": confined.backend,
            "gaps": confined.gaps,
            "changed": sorted(p for p in before | after if before.get(p) != after.get(p)),
            "rights": [
                picture.get(f"{context['outside']}/file", "").split()[:2]
                for picture in (before, after)
            ],
            "signals": os.path.exists(f"{world.base}/signals"),
            "contacts": world.contacts,
            "datagrams": len(world.datagrams),
            "left": sorted(os.listdir(policy.workspace)),
            "tmp": os.path.exists(f"/tmp/{world.mark}"),
        }
    except SandboxUnavailable as error:
        answer["refused"] = str(error)
    finally:
        world.close()
        sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
