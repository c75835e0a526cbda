"""The virtual machine backend: one machine a session, in which its commands run.

QEMU runs in bubblewrap, with the view of files that a command would have, and shares that view
with the machine: what is hidden or protected is so in there, and a command that breaks out of QEMU
is where it would be without it. Inside, each command is in a bubblewrap again, for processes,
devices and system calls of its own.

The view is worked out when the machine boots. When it is no longer what a new command would get
(a new `.env`, a new `.git`) and no command runs, the machine is booted again; while one runs, no
other is started.
"""

from __future__ import annotations

import base64
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from toolrest.policy.paths.names import inside, unique
from toolrest.private_files import write_all
from toolrest.process.command import Command
from toolrest.process.helper_request import close_all
from toolrest.sandbox.backends.bubblewrap import BubblewrapEngine, Identities
from toolrest.sandbox.backends.bubblewrap_args import environment, namespaces, packed, wrap
from toolrest.sandbox.backends.engine import PROXY_SOCKET, PreparedCommand, Proxy
from toolrest.sandbox.backends.view import BINDS, RUN, TMP, VAR_TMP, Show
from toolrest.sandbox.environment import confined_env
from toolrest.sandbox.errors import SandboxBusy, SandboxUnavailable
from toolrest.sandbox.guard.changes import identity_of
from toolrest.sandbox.kernel import seccomp
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import signal_launchers
from toolrest.sandbox.vm import initramfs, programs, qemu
from toolrest.sandbox.vm.initramfs import Place
from toolrest.sandbox.vm.machine import Machine, MachineFailed
from toolrest.sandbox.vm.options import VmOptions
from toolrest.sandbox.vm.prepare import Prepared

_PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(programs.__file__)), "__main__.py")
_CHANNEL_FD, _SPEC_FD = 3, 4
_KILL_PATIENCE = 5.0
_LOOKS = 5
_INSIDE = (
    *("--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"),
    *("--remount-ro", "/sys", "--tmpfs", "/sys/fs/cgroup", "--remount-ro", "/sys/fs/cgroup"),
)
"""The view of a command within the machine's: without its devices and its control groups."""
BOOT_PATIENCE = {"kvm": 20.0, "tcg": 90.0}
"""Seconds; an emulated machine boots in three to five where nothing else runs."""


class VmEngine:
    """Turns commands into clients of commands in the session's machine."""

    name = "vm"

    def __init__(
        self,
        policy: SandboxPolicy,
        view: BubblewrapEngine,
        options: VmOptions,
        prepared: Prepared,
        program: str,
        *,
        registry: str,
        proxy: Proxy | None = None,
        limits: dict[str, str] | None = None,
        closed: threading.Event | None = None,
    ) -> None:
        self.policy = policy
        self.accelerator: qemu.Accelerator = "tcg"
        self.machine: Machine | None = None
        self._view = view
        self._options = options
        self._prepared = prepared
        self._program = program
        self._registry = registry
        self._proxy = proxy
        self._limits = limits or {}
        self._filter = seccomp.program("bubblewrap") or b""  # without one there is no view
        self._launcher = (view.program, *namespaces(replace(policy, network="off")))
        self._running = 0
        self._closed = closed or threading.Event()
        self._seen: Identities = ()
        self._release_view: Callable[[], None] = _nothing
        self._mutex = threading.Lock()

    def confine(self, command: Command, *, late: bool = False) -> PreparedCommand:
        """The client of the same command; its death alone ends the command, `release` waits."""
        with self._mutex:
            machine = self._current()
            ours, theirs = socket.socketpair()
            over = machine.attach(ours)
            self._running += 1
        todo = [theirs]

        def sent() -> None:
            """The client has its end, and nothing else may keep it open."""
            if todo:
                todo.pop().close()

        released = threading.Event()

        def stop() -> None:
            sent()
            over.wait(_KILL_PATIENCE)

        def release() -> None:
            if released.is_set():
                return
            released.set()
            stop()
            if not over.is_set():  # the guest did not end it, so it goes with the machine
                machine.stop()
            with self._mutex:
                self._running -= 1

        return PreparedCommand(self._client(command, theirs.fileno(), sent), release, stop)

    def boot(self, seconds: float | None = None) -> float:
        """Boot the machine, if it does not run; seconds by its own clock. Raises MachineFailed."""
        with self._mutex:
            return self._boot(seconds).uptime

    def close(self) -> None:
        """End the machine with the session."""
        self._closed.set()
        with self._mutex:
            self._end()

    def _current(self) -> Machine:
        """The machine, booted anew where it has ended or its view is no longer the right one."""
        if self._closed.is_set():
            raise SandboxUnavailable("sandbox: the session is closed, and its machine is gone.")
        machine = self.machine
        if machine is not None and not machine.is_over:
            if self._running:
                self._view.confine(self._qemu(())).release()  # raises where one must wait
                if any(identity != identity_of(path) for path, _, identity in self._seen):
                    raise SandboxBusy(
                        "sandbox: a hidden or protected file was replaced while a command was"
                        " running.",
                        remedy="Another one can run when that one has ended.",
                    )
                return machine
            if self._view.look() == self._seen:
                return machine
        self._end()
        try:
            return self._boot()
        except MachineFailed as error:
            raise SandboxUnavailable(
                f"sandbox: the virtual machine did not boot: {error}.",
                remedy="`toolrest doctor` boots it and says more; `toolrest vm prepare` makes it"
                " anew.",
            ) from error

    def _end(self) -> None:
        machine, self.machine = self.machine, None
        if machine is not None:
            machine.stop()
        release, self._release_view = self._release_view, _nothing
        release()

    def _boot(self, seconds: float | None = None) -> Machine:
        if self.machine is not None and not self.machine.is_over:
            return self.machine
        self._end()
        ours, theirs = socket.socketpair()
        fds = [theirs.detach()]
        try:
            fds.append(os.open(self._prepared.kernel_file, os.O_RDONLY | os.O_CLOEXEC))
            fds.append(os.memfd_create("toolrest-initramfs", os.MFD_CLOEXEC))
            numbers = (qemu.CHANNEL_FD, qemu.KERNEL_FD, qemu.INITRAMFS_FD)
            prepared = self._viewed(self._qemu(tuple(zip(numbers, fds, strict=True))))
        except BaseException:
            ours.close()
            close_all(fds)
            raise
        self._release_view = prepared.release
        try:
            write_all(fds[-1], self._initramfs())
        except BaseException:
            ours.close()
            close_all(fds)
            self._end()
            raise
        proxy = None if self._proxy is None else self._proxy.socket
        machine = Machine(
            _for_qemu(prepared.command, self.accelerator),
            ours,
            fds,
            registry=self._registry,
            proxy=proxy,
        )
        try:
            machine.start(seconds or BOOT_PATIENCE[self.accelerator], self._closed)
        except BaseException:
            self._end()
            raise
        self.machine = machine
        return machine

    def _viewed(self, qemu: Command) -> PreparedCommand:
        """QEMU in its view, of which `_seen` says what is in it; what comes later is a change."""
        prepared = self._view.confine(qemu)
        try:
            for _ in range(_LOOKS):
                shown = self._view.shown
                self._seen = self._view.look()
                if self._view.shown == shown:
                    return prepared
                outdated, prepared = prepared, self._view.confine(qemu)  # as was just looked at
                outdated.release()
        except BaseException:
            prepared.release()
            raise
        prepared.release()
        raise SandboxBusy(
            "sandbox: hidden or protected files keep changing while the machine starts.",
            remedy="Call again.",
        )

    def _qemu(self, fds: tuple[tuple[int, int], ...]) -> Command:
        settings = self._options.settings
        many = os.cpu_count() or 1
        cpus = settings.cpus or (1 if self.accelerator == "tcg" else min(4, many))
        argv = qemu.arguments(self._program, self.accelerator, settings.memory, cpus)
        return Command(argv, "/", {}, fds=fds)

    def _initramfs(self) -> bytes:
        with open(self._prepared.initramfs_file, "rb") as file:
            base = file.read()
        config = {
            "proxy": None if self._proxy is None else PROXY_SOCKET,
            "limits": self._limits,
        }
        text = msgspec.json.encode(config).decode()
        python = os.path.realpath(sys.executable)
        return base + initramfs.session(
            tuple(places(self.policy, self._seen)), python, _PROGRAMS, text, platform.node()
        )

    def _client(self, command: Command, channel: int, sent: Callable[[], None]) -> Command:
        terminal = command.tty or _is_terminal(command)
        given = {number for number, _ in command.fds}
        stdin = "tty" if terminal else "input" if 0 in given else "none"
        words = ("client", str(_CHANNEL_FD), str(_SPEC_FD), stdin)
        return Command(
            (sys.executable, "-I", "-S", _PROGRAMS, *words),
            "/",
            {},
            tty=command.tty,
            rows=command.rows,
            cols=command.cols,
            files=((_SPEC_FD, self._spec(command, terminal, stdin)),),
            fds=(*(pair for pair in command.fds if pair[0] < _CHANNEL_FD), (_CHANNEL_FD, channel)),
            ready=sent,
        )

    def _spec(self, command: Command, terminal: bool, stdin: str) -> bytes:
        """What the agent is asked to start, as JSON."""
        env = confined_env(command.env, self.policy, self.name, TMP)
        env |= self._proxy.env if self._proxy is not None else {}
        arguments = packed(_INSIDE) + environment(env)
        wrapped = wrap(
            replace(command, tty=terminal, fds=()),
            self._launcher,
            self._filter,
            arguments,
            signals=signal_launchers() if terminal else None,
            inner=self._proxy.inner if self._proxy is not None else (),
        )
        return msgspec.json.encode(
            {
                "argv": [_in_base64(os.fsencode(word)) for word in wrapped.argv],
                "cwd": wrapped.cwd,
                "env": {},
                "tty": (command.rows, command.cols) if terminal else None,
                "stdin": stdin == "input",
                "files": [(fd, _in_base64(data)) for fd, data in wrapped.files],
                "limits": command.limits,
                "uid": os.geteuid(),
                "gid": os.getegid(),
            }
        )


def places(policy: SandboxPolicy, seen: Identities) -> Iterator[Place]:
    """What is not as in the read-only view, outermost first.

    Folders for temporary files are the machine's own: programs make sockets and pipes there, which
    a shared folder cannot have. What the view shows beneath them is shown again, and so is what it
    shows in a hidden folder, which can be passed there but not listed.
    """
    empty = [RUN] if os.path.realpath(RUN) == RUN and os.path.isdir(RUN) else []
    if policy.tmp == "private":
        empty += [path for path in (TMP, VAR_TMP) if os.path.realpath(path) == path]
    writable = [*policy.roots, *([policy.cache_dir] if policy.cache_dir else [])]
    around = {folder for path, _, _ in seen for folder in _parents(path)}
    hidden = [path for path, show, _ in seen if show == Show.HIDE and path in around]
    readable = [path for path, show, _ in seen if show in BINDS and not policy.in_root(path)]
    readable += [path for path in policy.read_roots or () if os.path.exists(path)]
    shown = [path for path in readable if _lies_in(path, (*hidden, *empty))]
    found = {path: Place("hidden", path) for path in hidden}
    found |= {path: Place("bind", path) for path in unique((*writable, *shown))}
    found |= {path: Place("empty", path) for path in empty if path not in policy.roots}
    return iter(found[path] for path in sorted(found, key=lambda path: path.split("/")))


def _parents(path: str) -> Iterator[str]:
    while (folder := os.path.dirname(path)) != path:
        yield folder
        path = folder


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    return any(path != folder and inside(path, folder) for folder in folders)


def _for_qemu(command: Command, accelerator: qemu.Accelerator) -> Command:
    """The same bubblewrap, for QEMU: with the device that the accelerator needs.

    And hidden folders that have something shown in them can be listed, since QEMU opens every
    folder on the way; in the machine they are covered again (`places`).
    """
    number = int(command.argv[command.argv.index("--args") + 1])
    device = (qemu.KVM_DEVICE, qemu.KVM_DEVICE)
    added = packed(("--dev-bind", *device)) if accelerator == "kvm" else b""
    files = []
    for fd, data in command.files:
        listed = data.replace(packed(("--perms", "0111")), packed(("--perms", "0555")))
        files.append((fd, listed + added if fd == number else data))
    return replace(command, files=tuple(files))


def _is_terminal(command: Command) -> bool:
    """Whether a command was given our own terminal."""
    own = [fd for number, fd in command.fds if number in (0, 1)]
    return len(own) == 2 and all(map(os.isatty, own))


def _in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _nothing() -> None:
    """The release of a view that was not taken."""
