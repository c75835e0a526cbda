"""The Seatbelt profile (macOS) for a sandbox policy, and its argument list, as text.

Everything is denied first. Paths travel as parameters, never inside the profile's text, so no
quoting can change its meaning. Of two rules the later one counts, so what is taken back comes
after what is given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from toolrest.sandbox.policy import SandboxPolicy

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
"""Only this one: a program of that name on PATH is not to be trusted."""

_GIT_PARTS = ("hooks", "config", "info/attributes", "commondir", "config.worktree")

_START = """(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow pseudo-tty)
(allow ipc-posix-sem)
(allow ipc-posix-shm-read-data ipc-posix-shm-write-create ipc-posix-shm-write-data)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow mach-lookup (global-name "com.apple.PowerManagement.control"))
(allow file-read*)
(allow file-ioctl file-read-data file-write-data
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (literal "/dev/ptmx")
  (regex #"^/dev/ttys[0-9]+$"))
(deny file-read* (regex #"^/dev/r?disk"))"""

_NETWORK_ON = """(allow network-outbound)
(allow network-inbound)
(allow network-bind)
(allow system-socket)
(allow mach-lookup (global-name "com.apple.SystemConfiguration.configd"))
(allow mach-lookup (global-name "com.apple.trustd.agent"))"""

_LOOPBACK_ONLY = """(allow network-bind (local ip "localhost:*"))
(allow network-inbound (local ip "localhost:*"))
(deny network-outbound (remote unix-socket))"""


class _Profile(Struct):
    lines: list[str] = field(default_factory=lambda: [_START])
    parameters: dict[str, str] = field(default_factory=dict)

    def parameter(self, path: str) -> str:
        name = f"PATH_{len(self.parameters)}"
        self.parameters[name] = path
        return f'(param "{name}")'

    def rule(self, verdict: str, what: str, filter_: str, paths: Sequence[str]) -> None:
        for path in paths:
            self.lines.append(f"({verdict} {what} ({filter_} {self.parameter(path)}))")


def profile(policy: SandboxPolicy, tmp: str) -> tuple[str, Mapping[str, str]]:
    """The profile's text and the values of its parameters."""
    made = _Profile()
    writable = [*policy.roots, *([policy.cache_dir] if policy.cache_dir else [])]
    if policy.tmp == "private":
        writable.append(tmp)
    made.rule("allow", "file-write*", "subpath", writable)
    guarded = [*policy.protected, *_git_parts(policy)]
    made.rule("deny", "file-write*", "subpath", guarded)
    # Moving a folder away would take what is guarded inside along with it.
    made.rule("deny", "file-write-unlink", "literal", _above(guarded, policy))
    made.rule("deny", "file-read*", "subpath", policy.hidden)
    made.rule("deny", "file-write*", "subpath", policy.hidden)
    made.rule("allow", "file-read*", "subpath", policy.exceptions)
    made.lines.append(_NETWORK_ON if policy.network == "on" else _LOOPBACK_ONLY)
    return "\n".join(made.lines) + "\n", made.parameters


def arguments(argv: Sequence[str], policy: SandboxPolicy, tmp: str) -> tuple[str, ...]:
    """The command line that runs `argv` under the profile."""
    text, parameters = profile(policy, tmp)
    given = [f"-D{name}={value}" for name, value in parameters.items()]
    return (SANDBOX_EXEC, "-p", text, *given, "--", *argv)


def _git_parts(policy: SandboxPolicy) -> list[str]:
    return [os.path.join(root, ".git", part) for root in policy.roots for part in _GIT_PARTS]


def _above(paths: Sequence[str], policy: SandboxPolicy) -> list[str]:
    """The folders between a root and what is guarded inside it."""
    found: dict[str, None] = {}
    for path in paths:
        root = policy.in_root(path)
        parent = os.path.dirname(path)
        while root is not None and len(parent) > len(root):
            found[parent] = None
            parent = os.path.dirname(parent)
    return list(found)
