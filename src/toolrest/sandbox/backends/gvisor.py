"""The gVisor backend: commands on a kernel of their own (`runsc`), inside bubblewrap's view.

gVisor's file server sees what bubblewrap shows, so what is hidden and protected needs nothing new
here, and a command that breaks out of gVisor is still in that view. Bubblewrap's system call filter
is left out, since gVisor has its own, but for the rules by which root makes no setuid files.
Sockets of the host cannot be reached but with an allow list, for the proxy's.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable

from msgspec.structs import replace

from toolrest.process.command import Command
from toolrest.sandbox.backends.bubblewrap import BubblewrapEngine
from toolrest.sandbox.backends.bubblewrap_args import Joined, wrap
from toolrest.sandbox.backends.engine import Proxy
from toolrest.sandbox.backends.launcher import ArgumentPipe, StartReport
from toolrest.sandbox.backends.view import TMP
from toolrest.sandbox.guard.neighbours import Neighbours
from toolrest.sandbox.kernel import seccomp
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import signal_launchers

_FOLDER = "/run/toolrest"
_CONFIG = f"{_FOLDER}/config.json"
_ROOT = ("--uid", "0", "--gid", "0", "--cap-add", "ALL")
"""In bubblewrap's user namespace, for making gVisor's own. Commands see themselves as root there,
without any capability; what they make belongs to the user."""
_LIMITS = {
    resource.RLIMIT_DATA: "RLIMIT_AS",
    resource.RLIMIT_FSIZE: "RLIMIT_FSIZE",
    resource.RLIMIT_NPROC: "RLIMIT_NPROC",
}


_ITS_OWN = "on gVisor's own kernel; nothing of the host is changed or reached"
OPEN = dict.fromkeys(
    (
        *("chmod_outside", "chown_outside", "truncate_outside", "utime_outside"),
        *("dev_fuse", "dev_net_tun", "io_uring", "netlink_route"),
        *("new_privs", "unshare_mntns", "unshare_userns"),
    ),
    _ITS_OWN,
)
"""Escape rows that a command sees succeed."""
BROKEN = {"statx": "`ls -l` of coreutils 9 and its `stat` fail on the gVisor of Debian 12"}


class GvisorEngine(BubblewrapEngine):
    """Turns commands into commands of `runsc`, beneath bubblewrap."""

    def __init__(
        self,
        policy: SandboxPolicy,
        program: str,
        registry: str,
        *,
        runsc: str,
        overlays: bool = True,
        proxy: Proxy | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        super().__init__(
            policy, program, registry, overlays=overlays, proxy=proxy, neighbours=neighbours
        )
        self.name = "gvisor"
        self._launcher = (*self._launcher, *_ROOT)
        is_root = os.geteuid() == 0
        self._set_id_filter = seccomp.program("set-id") if is_root else None
        network = "host" if policy.network == "on" else "none"
        self._runsc = (
            *(runsc, "--rootless", "--ignore-cgroups", f"--network={network}"),
            *("--overlay2=none", "--file-access=shared", f"--root={_FOLDER}/state"),
            *(("--host-uds=open",) if proxy is not None else ()),
            *("run", "--bundle", _FOLDER, "command"),
        )

    @property
    def scopes(self) -> int:
        """Landlock's scopes, which are not needed: the host's sockets are not gVisor's."""
        return 0

    def _variables_of(self, command: Command) -> bytes:
        return b""  # they are the command's, not runsc's

    def _wrap(
        self,
        command: Command,
        arguments: bytes | ArgumentPipe,
        report: StartReport,
        joined: Joined | None = None,
        loaded: tuple[str, ...] = (),
        ready: Callable[[], None] | None = None,
    ) -> Command:
        return wrap(
            replace(command, argv=self._runsc, limits=()),
            self._launcher,
            self._set_id_filter,
            arguments,
            shown=(_CONFIG, self._bundle(command)),
            signals=signal_launchers() if command.tty else None,
            joined=_with_its_own(joined),
            apart=True,
            held=self._guarded.records(),
            ready=ready,
            report=report,
        )

    def _bundle(self, command: Command) -> bytes:
        """The description of one command for `runsc`, in the words of the Open Containers."""
        env = self._env_of(command)
        limits = [
            {"type": name, "soft": soft, "hard": hard}
            for which, soft, hard in command.limits
            if (name := _LIMITS.get(which))
        ]
        kinds = ("bounding", "effective", "inheritable", "permitted", "ambient")
        process = {
            "terminal": command.tty,
            "user": {"uid": 0, "gid": 0},
            "args": [*self._forwarder[1], *command.argv],
            "env": [f"{name}={text}" for name, text in env.items() if "\0" not in text],
            "cwd": command.cwd,
            "capabilities": {name: [] for name in kinds},
            "rlimits": [{"type": "RLIMIT_CORE", "soft": 0, "hard": 0}, *limits],
            "noNewPrivileges": True,
        }
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "tmpfs"},  # noqa: S108
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
            # gVisor would put a folder in memory there, that ends with the command.
            {"destination": TMP, "type": "bind", "source": TMP, "options": ["rbind", "rw"]},
            {"destination": _FOLDER, "type": "tmpfs", "source": "tmpfs", "options": ["ro"]},
        ]
        namespaces = [{"type": name} for name in ("pid", "network", "ipc", "uts", "mount")]
        bundle = {
            "ociVersion": "1.0.2",
            "process": process,
            "root": {"path": "/", "readonly": False},
            "hostname": "toolrest",
            "mounts": mounts,
            "linux": {"namespaces": namespaces},
        }
        return json.dumps(bundle).encode("utf-8", "surrogateescape")


def _with_its_own(joined: Joined | None) -> Joined | None:
    """The same with what is mounted for `runsc` itself, which needs a /proc that it can write."""
    if joined is None or joined.check is None:
        return joined
    points = (*joined.check.points, _CONFIG, "/proc")
    free = (*joined.check.free, "/proc")
    return replace(joined, check=replace(joined.check, points=points, free=free))
