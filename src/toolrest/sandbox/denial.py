"""Sandbox denials: find in a failed command's output what the sandbox has refused.

The kernel's messages are looked for first. Where the policy is known, each such line is compared
with it: a path that the sandbox does not guard was refused for another reason, and that is a
plain failure. What is left becomes a message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from toolrest.policy.paths.names import inside
from toolrest.policy.paths.rules import TMP_FOLDERS
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import own_environment, own_files_in
from toolrest.sandbox.weak import APART

Op: TypeAlias = Literal["write", "read", "network", "call"]

_REFUSALS = (
    "operation not permitted",
    "permission denied",
    "read-only file system",
    "failed to write file",
)
_HELD = "device or resource busy"
"""The error of removing or renaming a protected name: there is a mount on it."""
_NODE_MKDIR = re.compile(r"ENOENT: no such file or directory, mkdir '([^'\n]{1,4096})'")
"""Node's words for a folder that it could not make, whatever the reason was."""
# The mere names "sandbox", "seccomp" and "landlock" are no sign: files and tests bear them.
_NO_NETWORK = (
    "could not resolve host",
    "temporary failure in name resolution",
    "name or service not known",
    "network is unreachable",
    "getaddrinfo eai_again",
    "getaddrinfo enotfound",
    "failed to lookup address information",
    "dns error",
)
_MISSING = "no such file or directory"
"""The error of a path below a folder that the sandbox has replaced by one of its own."""
_SIGNS = (*_REFUSALS, _HELD, *_NO_NETWORK, _MISSING)
_CANNOT_RUN = 126
_NEVER = (2, _CANNOT_RUN, 127)
_SIGSYS = 128 + 31
_QUOTED = re.compile(r"['\"`‘“]([^'\"`’”\n]{1,4096})['\"`’”]")
_BARE = re.compile(r"(?:^|[\s:=(])(/[^\s:'\"]+|[^\s:'\"]+)(?=: )")
_SHELL = re.compile(r"\s*(?:[^\s:]+: (?:line )?\d+|(?:\S*/)?\w*sh): (?:cannot create )?(?=\S)")
"""What a shell puts before the target of a redirect that fails: its name, or that of a script."""
_MOST_LINES = 2000


class Denial(Struct, frozen=True):
    """One thing that was refused; `subject` is a path or a host when it is known."""

    op: Op
    subject: str = ""


class Denied(Struct, frozen=True):
    """What a sandbox has blocked, in words for a model and one by one."""

    words: str
    denials: tuple[Denial, ...] = ()
    shown: bool = True
    """Whether an exit code or the proxy shows that it failed; else only its output says so."""

    @property
    def subjects(self) -> tuple[tuple[str, str], ...]:
        """Operation and subject of each denial."""
        return tuple((denial.op, denial.subject) for denial in self.denials)


def likely_denied(code: int, *outputs: str) -> bool:
    """Whether the sandbox may have stopped a command, by its output and exit code alone."""
    if code == 0:
        return False
    text = "\n".join(outputs).lower()
    if any(word in text for word in _REFUSALS):
        return True
    return code not in _NEVER and code == _SIGSYS


def find_denials(
    text: str, policy: SandboxPolicy, cwd: str, *, backend: str = "bubblewrap", code: int = 1
) -> tuple[Denial, ...]:
    """Refusals in an output that this policy accounts for, each once, in order.

    A shell's exit code of 126 says that a file could not be executed; where it is not executable
    that is a plain failure.
    """
    found: dict[Denial, None] = {}
    low = text.lower()
    if not any(sign in low for sign in _SIGNS):
        return ()
    for line in text.splitlines()[:_MOST_LINES]:
        denial = _judge(line, policy, cwd, backend)
        if denial is not None and not (code == _CANNOT_RUN and _is_no_program(denial.subject)):
            found[denial] = None
    return tuple(found)


def find_blocked(
    stdout: str,
    stderr: str,
    code: int,
    backend: str,
    policy: SandboxPolicy | None = None,
    cwd: str = "/",
    hosts: Iterable[str] = (),
    *,
    proves: bool | None = None,
) -> Denied | None:
    """What the sandbox blocked; None for a plain failure.

    `hosts` are those that the network proxy turned away while the command ran. `proves` is whether
    its codes show that a program failed; else any but 0 does. An output is data, so what it alone
    says is told as that.
    """
    proves = bool(code) if proves is None else proves
    refused = tuple(Denial("network", host) for host in hosts) if code else ()
    shown = proves or bool(refused) or code == _SIGSYS
    if policy is not None:
        refused += find_denials(f"{stdout}\n{stderr}", policy, cwd, backend=backend, code=code)
    if code == _SIGSYS and not refused:
        refused = (Denial("call"),)
    if refused:
        words = sentence(refused, backend) + _elsewhere(refused, policy)
        return Denied(words if shown else f"by its output, {words}", refused, shown)
    if policy is None and likely_denied(code, stdout, stderr):
        return Denied(f"the sandbox ({backend}) probably blocked this")
    return None


def sentence(denials: Iterable[Denial], backend: str) -> str:
    """The denials as one line for a model."""
    phrases = list(dict.fromkeys(_phrase(denial) for denial in denials))
    more = f" and {len(phrases) - 3} more" if len(phrases) > 3 else ""
    return f"the sandbox ({backend}) blocked {', '.join(phrases[:3])}{more}"


def _elsewhere(denials: Iterable[Denial], policy: SandboxPolicy | None) -> str:
    """The way out where a project's packages cannot be changed, as Toolrest is one of them."""
    own = own_environment(policy.roots) if policy is not None else None
    written = (os.path.realpath(one.subject) for one in denials if one.op == "write")
    if own is None or not any(inside(path, own) for path in written):
        return ""
    return f"; Toolrest itself runs from {own}, which no command may change: {APART}"


def _phrase(denial: Denial) -> str:
    shown = _shown(denial.subject)
    match denial.op:
        case "write":
            return f"writing to {shown}"
        case "read":
            return f"reading {shown}"
        case "network":
            return f"a connection to {shown}" if shown else "network access"
    return "a system call"


def _shown(subject: str) -> str:
    """Paths come from a command's output: one line, no control characters, not endless."""
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in subject)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _judge(line: str, policy: SandboxPolicy, cwd: str, backend: str) -> Denial | None:
    low = line.lower()
    if policy.network == "off" and any(text in low for text in _NO_NETWORK):
        return Denial("network")
    if made := _NODE_MKDIR.search(line):
        path = os.path.normpath(os.path.join(cwd, made[1]))
        refused = os.path.isdir(os.path.dirname(path)) and not os.path.lexists(path)
        return Denial("write", path) if refused and _is_outside(path, policy, backend) else None
    refusal = next((text for text in (*_REFUSALS, _HELD, _MISSING) if text in low), None)
    if refusal is None:
        return None
    if refusal == _MISSING:
        found = (_covered(path, policy, backend) for path in _paths(line, cwd, low.index(refusal)))
        return next(filter(None, found), None)
    paths = list(_paths(line, cwd, low.index(refusal)))
    for path in paths:
        op = _guarded(path, policy, refusal, backend)
        if op is not None:
            return Denial(op, path)
    if refusal == "operation not permitted" and not any(map(os.path.lexists, paths)):
        return Denial("call")
    return None


def _covered(path: str, policy: SandboxPolicy, backend: str) -> Denial | None:
    """The denial of a path that is not there for a command, as the sandbox covers a folder of it.

    Below a hidden folder the name alone decides: whether the path is there is not told. Below a
    folder for temporary files that is the sandbox's own it counts that the host has the path.
    """
    if backend not in ("bubblewrap", "gvisor"):
        return None
    real = os.path.realpath(path)
    if any(inside(real, place) for place in policy.exceptions):
        return None
    if any(inside(real, place) for place in policy.hidden):
        return Denial("read", path)
    if policy.shown_root(real) is not None or not _private_tmp(real, policy, backend):
        return None
    if os.path.lexists(real):
        return Denial("read", path)
    folder = os.path.dirname(real)
    there = folder not in TMP_FOLDERS and os.path.isdir(folder)
    return Denial("write", path) if there else None


def _guarded(path: str, policy: SandboxPolicy, refusal: str, backend: str) -> Op | None:
    """The operation on this path that the sandbox would refuse with this message, if any."""
    if refusal == _HELD:
        return "write" if backend != "landlock" and _protected(path, policy) else None
    real = os.path.realpath(path)
    hidden = any(inside(real, place) for place in policy.hidden)
    if any(inside(real, place) for place in policy.exceptions):
        hidden = False
    if hidden and refusal in ("permission denied", "failed to write file"):
        return "read"
    if hidden and refusal == "read-only file system":
        return "write"
    outside = not _writable(real, policy)
    if backend == "vm" and refusal == "permission denied" and _protected(path, policy):
        return "write"  # there the mode of an empty folder is looked at first
    if refusal == "read-only file system" and (outside or _protected(path, policy)):
        return "write"
    wording = ("permission denied", "failed to write file")
    if backend == "landlock" and outside and refusal in wording and os.access(real, os.F_OK):
        return None if _plainly_unreadable(real) else "write"
    if backend == "landlock" and outside and refusal in wording:
        return "write"
    if refusal == "failed to write file" and outside and not _private_tmp(real, policy, backend):
        return "write"
    return None


def _is_outside(path: str, policy: SandboxPolicy, backend: str) -> bool:
    real = os.path.realpath(path)
    return not _writable(real, policy) and not _private_tmp(real, policy, backend)


def _is_no_program(path: str) -> bool:
    return os.path.isfile(path) and not os.access(path, os.X_OK)


def _plainly_unreadable(path: str) -> bool:
    """Whether this user could not write here without any sandbox either."""
    return not os.access(path, os.W_OK)


def _writable(path: str, policy: SandboxPolicy) -> bool:
    places = [*policy.roots, *([policy.cache_dir] if policy.cache_dir else []), "/dev"]
    if policy.tmp == "private":
        places.append(policy.session_dir)
    return any(inside(path, place) for place in places)


def _private_tmp(path: str, policy: SandboxPolicy, backend: str) -> bool:
    """Whether a command has a folder of its own there, in which it may write.

    That folder is never read-only; only what is shown of the host below it is, such as a workspace
    that lies in /tmp, and the folders on the way to it.
    """
    if policy.tmp != "private" or backend == "landlock":
        return False
    return any(inside(path, folder) for folder in TMP_FOLDERS)


def _protected(path: str, policy: SandboxPolicy) -> bool:
    gits = (os.path.join(root, ".git") for root in policy.roots)
    places = (*policy.protected, *gits, *own_files_in(policy.roots))
    return any(inside(path, place) for place in places)


def _paths(line: str, cwd: str, at: int) -> Iterator[str]:
    """What in this line may be a path: quoted words, and words before a colon.

    The likeliest come first: programs name themselves and what they read before the place that
    was refused, and that stands nearest to the refusal, which is `at` that position. A shell says
    the target of a redirect as it is, and its own name before that.
    """
    words: list[str] = []
    if (shell := _SHELL.match(line, 0, at)) is not None:
        target = line[shell.end() : at].removesuffix(": ")
        words = [target.rpartition(": ")[2], target]  # a builtin may have said its name, too
        line, at = line[shell.end() :], at - shell.end()
    for pattern in (_QUOTED, _BARE):
        found = [(match.start(1), match[1]) for match in pattern.finditer(line)]
        words += [word for start, word in reversed(found) if start < at]
        words += [word for start, word in found if start >= at]
    words += [word.strip(",;:()'\"") for word in line.split() if word.startswith("/")]
    for word in words:
        if "\0" not in word and len(word) < 4096:
            yield os.path.normpath(os.path.join(cwd, word))
