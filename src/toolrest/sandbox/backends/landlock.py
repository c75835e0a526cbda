"""The Landlock backend, with seccomp: it confines commands where namespaces are forbidden.

The launcher applies rules and filter in the child right before exec; there is no helper program.
As root, capabilities would remain, so the command starts through `setpriv`, which drops them.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from toolrest.policy.paths.names import inside
from toolrest.private_files import make_private
from toolrest.process.command import Command
from toolrest.sandbox.backends.engine import Enforced, PreparedCommand, all_full
from toolrest.sandbox.environment import confined_env
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.guard.changes import NewlyHidden
from toolrest.sandbox.kernel import landlock_rules as landlock
from toolrest.sandbox.kernel import seccomp
from toolrest.sandbox.policy import Control, SandboxPolicy
from toolrest.sandbox.programs import find_program, own_files_around, own_files_in

_DROP = ("--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--")


class LandlockEngine:
    """Turns commands into confined commands, for one policy."""

    name = "landlock"

    def __init__(self, policy: SandboxPolicy) -> None:
        kind: seccomp.Kind = "landlock-network" if policy.network == "on" else "landlock"
        program = seccomp.program(kind)
        if program is None:
            raise SandboxUnavailable(
                "sandbox: this machine's system calls are not known to Toolrest."
            )
        self.policy = policy = policy.without_list()
        self._filter = program
        self._tmp = os.path.join(policy.session_dir, "tmp")
        make_private(self._tmp)
        if policy.cache_dir is not None:
            make_private(policy.cache_dir)
        setpriv = find_program("setpriv", policy.tool_roots) if os.geteuid() == 0 else None
        self._drop = () if setpriv is None else (setpriv, *_DROP)
        # Nothing can be taken back out of a writable root.
        self._newly_hidden = None if policy.roots else NewlyHidden(policy)

    def confine(self, command: Command, *, late: bool = False) -> PreparedCommand:
        """The same command, confined."""
        policy = self.policy
        if self._newly_hidden is not None:
            policy = replace(policy, hidden=(*policy.hidden, *self._newly_hidden.look(())))
        confined = replace(
            command,
            argv=(*self._drop, *command.argv),
            env=confined_env(command.env, self.policy, self.name, self._tmp),
            landlock=landlock.rules(policy, self._tmp),
            landlock_net=self.policy.network != "on",
            landlock_scoped=landlock.scopes(),
            seccomp=self._filter,
        )
        return PreparedCommand(confined)

    def close(self) -> None:
        """Nothing outlives a command."""


def controls(policy: SandboxPolicy) -> dict[Control, Enforced]:
    """What Landlock and the filter enforce for this policy."""
    found = all_full()
    found["writes"] = Enforced(
        "partial", "mode, owner, times and extended attributes of files outside can be changed"
    )
    found["reads"] = Enforced("partial", "names of hidden files can be listed")
    if policy.roots:
        found["reads"] = Enforced(
            "partial",
            "hidden files inside a writable root, such as .env, can be read; names can be listed",
        )
        found["protected_paths"] = Enforced(
            "none", "names like .git/hooks inside a writable root cannot be protected"
        )
    found["pids"] = Enforced("none", "processes outside can be seen, though not signalled or read")
    if landlock.abi() < landlock.SCOPE_ABI:
        found["pids"] = Enforced("none", "processes outside can be seen and signalled")
    if policy.network == "allowlist":
        found["network"] = Enforced(
            "partial", "commands have no network, as a list of hosts needs bubblewrap"
        )
    if policy.network == "on" and landlock.abi() < landlock.UNIX_ABI:
        found["unix_sockets"] = Enforced(
            "none", "with the network on, sockets of host services can be reached"
        )
    own = [*own_files_in(policy.roots), *own_files_around(policy.roots)]
    own += _session_in_root(policy)
    if own:
        found["own_files"] = Enforced(
            "none", f"{own[0]} is part of Toolrest and could be changed from a writable root"
        )
    return found


def _session_in_root(policy: SandboxPolicy) -> list[str]:
    return [policy.session_dir for root in policy.roots if inside(policy.session_dir, root)]
