"""Probes of the backends: each one's own launcher is run once, on `/bin/true`.

Best first: bubblewrap with overlays, bubblewrap without, Landlock with seccomp. What a backend
cannot enforce it says; what the policy requires and nothing enforces means that nothing runs.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from toolrest.process.command import Command
from toolrest.process.helper import wire
from toolrest.process.limits import Limits
from toolrest.sandbox.backends.bubblewrap import BubblewrapEngine
from toolrest.sandbox.backends.bubblewrap_args import WAITS, namespaces
from toolrest.sandbox.backends.container import engine as container
from toolrest.sandbox.backends.container.engine import ContainerEngine, ContainerOptions
from toolrest.sandbox.backends.engine import Controls, Enforced, Proxy, all_full
from toolrest.sandbox.backends.gvisor import GvisorEngine
from toolrest.sandbox.backends.landlock import LandlockEngine
from toolrest.sandbox.backends.landlock import controls as landlock_controls
from toolrest.sandbox.backends.launcher import ATTEMPTS, disturbed
from toolrest.sandbox.backends.view import TMP
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.guard.neighbours import Neighbours
from toolrest.sandbox.kernel import landlock_rules as landlock
from toolrest.sandbox.kernel import seccomp
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import bundled_bwrap, by_preference, find_program

PROBE = "/bin/true"
_PATIENCE = 20.0
SLOW = "did not finish in"
"""How a probe's problem begins when it was only too slow."""


class Probe(Struct, frozen=True):
    """The result of running one backend's launcher."""

    backend: str
    works: bool
    detail: str = ""
    program: str | None = None
    overlays: bool = False
    controls: Controls = field(default_factory=dict)


def bwrap_programs(roots: Iterable[str]) -> tuple[str, ...]:
    """The bubblewraps that may be tried, the better one first.

    Distributions exempt their own from AppArmor, so it stays in the list even when it is older.
    """
    return by_preference(find_program("bwrap", tuple(roots)), bundled_bwrap())


def probe_bubblewrap(
    policy: SandboxPolicy,
    program: str,
    registry: str,
    *,
    overlays: bool,
    proxy: Proxy | None = None,
    rootfs: str | None = None,
    neighbours: Neighbours | None = None,
) -> tuple[Probe, BubblewrapEngine | None]:
    """Run `/bin/true` exactly as a command of this session would run."""
    name = "bubblewrap" if rootfs is None else "chroot"
    try:
        engine = BubblewrapEngine(
            policy,
            program,
            registry,
            overlays=overlays,
            proxy=proxy,
            rootfs=rootfs,
            neighbours=neighbours,
        )
        problem = _problem_in(engine)
    except OSError as error:
        problem = str(error)
    if problem:
        may_be_the_view = rootfs is None and not problem.startswith(_NO_OVERLAY)
        if may_be_the_view and not _basic_problem(policy, program, overlays):
            raise _unshowable(problem)
        return Probe(name, False, problem, program), None
    controls = bubblewrap_controls(
        policy, engine.within_reach, scoped=bool(engine.scopes), own_root=rootfs is not None
    )
    return Probe(name, True, "", program, overlays, controls), engine


def _problem_in(engine: BubblewrapEngine) -> str:
    """Why no command can be run; repeated where only a change of the machine was in the way."""
    problem = ""
    for _ in range(ATTEMPTS):
        prepared = engine.confine(_probe_command(engine.policy))
        try:
            problem = run_probe(_writing_nothing(prepared.command))
        finally:
            prepared.release()
        if not disturbed(problem, 1):
            break
    return problem


def _writing_nothing(command: Command) -> Command:
    """The same with the user's folders read-only.

    Bubblewrap makes what it is to mount on, where that is missing. Should we be killed, the helper
    does not know this one, and removes the placeholders from under it.
    """
    return replace(command, files=tuple((fd, _read_only(data)) for fd, data in command.files))


def _read_only(arguments: bytes) -> bytes:
    words = arguments.split(b"\0")
    for index, word in enumerate(words):
        if word == b"--bind" and words[index + 2 : index + 3] != [os.fsencode(TMP)]:
            words[index] = b"--ro-bind"
    return b"\0".join(words)


def bubblewrap_runs(policy: SandboxPolicy, program: str) -> bool:
    """Whether this bubblewrap can show what is there, in whatever workspace."""
    return not _basic_problem(policy, program, overlays=False)


def _basic_problem(policy: SandboxPolicy, program: str, overlays: bool) -> str:
    """Why this bubblewrap cannot even show what is there; empty when it can."""
    layers = ("--overlay-src", "/usr/bin", "--overlay-src", "/usr/lib", "--ro-overlay", "/usr/bin")
    view = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc")
    blank = ("--perms", "0755", "--tmpfs", "/tmp", *(layers * overlays))  # noqa: S108
    argv = (program, *namespaces(policy), *view, *blank, "--", PROBE)
    return run_probe(Command(argv, "/", {}))


def _unshowable(problem: str) -> SandboxUnavailable:
    """The error for a backend that works here, but not for this workspace.

    That is no reason for a weaker backend: what is in a workspace may come from a command, or
    from the author of the repository.
    """
    if problem.startswith(_NOT_HELD):
        return SandboxUnavailable(
            f"sandbox: {problem.removeprefix(_NOT_HELD)}.", remedy="Replace the link by its target."
        )
    return SandboxUnavailable(
        f"sandbox: bubblewrap works here, but cannot show this workspace ({problem}).",
        remedy="Look for very many or very deep `.env*` files or links; or choose another backend.",
    )


def bubblewrap_controls(
    policy: SandboxPolicy, reachable: Sequence[str], *, scoped: bool, own_root: bool = False
) -> Controls:
    """All of them; host sockets only by the names the kernel lists where overlays do not work.

    With the network on, abstract sockets are only kept apart by Landlock's scope.
    """
    controls = all_full()
    if own_root:
        controls["unix_sockets"] = container.LATE_SOCKETS
    elif reachable:
        controls["unix_sockets"] = Enforced(
            "partial",
            f"sockets beneath {reachable[0]} that a service opens while a command runs, or that"
            " belong to another network namespace, can be reached (overlays by bubblewrap 0.11"
            " would hide them)",
        )
    if policy.network == "on" and not scoped:
        controls["unix_sockets"] = Enforced(
            "partial", "with the network on, abstract sockets of host services can be reached"
        )
    return controls


def probe_landlock(policy: SandboxPolicy) -> tuple[Probe, LandlockEngine | None]:
    """Restrict a child as the launcher does, and have it start `/bin/true`."""
    if sys.platform != "linux":
        return Probe("landlock", False, "Landlock exists on Linux only"), None
    if landlock.abi() < landlock.TRUNCATE_ABI:
        words = f"the kernel offers Landlock version {landlock.abi()}, 3 is needed (Linux 6.2)"
        return Probe("landlock", False, words), None
    if seccomp.program("landlock") is None:
        return Probe("landlock", False, "no system call table for this machine"), None
    engine = LandlockEngine(policy)
    problem = run_landlock_probe(engine.confine(_probe_command(policy)).command)
    if problem:
        return Probe("landlock", False, problem), None
    detail = f"Landlock version {landlock.abi()}"
    return Probe("landlock", True, detail, controls=landlock_controls(policy)), engine


def probe_gvisor(
    policy: SandboxPolicy,
    program: str,
    registry: str,
    *,
    proxy: Proxy | None = None,
    neighbours: Neighbours | None = None,
) -> tuple[Probe, GvisorEngine | None]:
    """Run `/bin/true` on gVisor inside bubblewrap's view, with overlays or without."""
    runsc = find_program("runsc", policy.tool_roots)
    if runsc is None:
        return Probe("gvisor", False, "no runsc here: apt install runsc"), None
    problem = ""
    for overlays in (True, False):
        engine = GvisorEngine(
            policy,
            program,
            registry,
            runsc=runsc,
            overlays=overlays,
            proxy=proxy,
            neighbours=neighbours,
        )
        problem = _problem_in(engine)
        if not problem:
            reachable = engine.within_reach if proxy is not None else ()
            controls = bubblewrap_controls(policy, reachable, scoped=True)
            return Probe("gvisor", True, runsc, program, overlays, controls), engine
    return Probe("gvisor", False, problem, program), None


def probe_container(
    policy: SandboxPolicy,
    options: ContainerOptions,
    registry: str,
    *,
    proxy: Proxy | None = None,
    limits: Limits | None = None,
    closed: threading.Event | None = None,
) -> tuple[Probe, ContainerEngine | None]:
    """Ask the engines, then start the session's container and run `/bin/true` in it.

    Once `closed` is set an image is no longer waited for.
    """
    engine = None
    try:
        program = container.answering_engine(options, policy)
        engine = ContainerEngine(
            policy, options, program, registry, proxy=proxy, limits=limits, closed=closed
        )
        prepared = engine.confine(_probe_command(policy))
    except SandboxUnavailable as error:
        if engine is not None:  # the network's container may run
            engine.close()
        return Probe("docker", False, str(error)), None
    try:
        problem = run_probe(replace(prepared.command, held=()))
    finally:
        prepared.release()
    if problem:
        engine.close()
        return Probe("docker", False, problem, program), None
    return Probe("docker", True, "", program, controls=container.controls(policy)), engine


def _probe_command(policy: SandboxPolicy) -> Command:
    return Command((PROBE,), policy.workspace, {"PATH": "/usr/bin:/bin"})


def run_probe(command: Command) -> str:
    """Run a confined command to its end; empty when it exits 0, else why not."""
    placed: dict[int, int] = {}
    try:
        for number, content in command.files:
            placed[number] = _memory_file(content)
        holding: list[str] = []
        if command.linked:
            placed[-1] = _memory_file(marshal.dumps((command.linked_bytes(), _COPIES)))
            folder = os.path.dirname(wire.__file__)
            holding = [sys.executable, "-I", "-S", "-c", _HOLDING, folder, str(placed[-1])]
        passed = {**placed, **dict(command.fds)}
        with subprocess.Popen(
            [*holding, *_at_numbers(command.argv, passed)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=command.cwd,
            env=dict(command.env),
            pass_fds=passed.values(),
            start_new_session=True,
        ) as child:
            return _outcome(child)
    except OSError as error:
        return str(error)
    finally:
        for fd in placed.values():
            os.close(fd)


_NUMBERED = ("--seccomp", "--args", "--json-status-fd", "--ro-bind-data")
"""Options of bubblewrap that name a descriptor."""


def _at_numbers(argv: tuple[str, ...], placed: Mapping[int, int]) -> list[str]:
    """A probe keeps its descriptors where they are, and names them as they are."""
    start = argv.index(WAITS[0]) if WAITS[2] in argv else len(argv)
    argv = argv[:start] + argv[start + len(WAITS) :]  # no keeper would make the masks
    renamed = list(argv)
    for index, word in enumerate(argv[:-1]):
        if word in _NUMBERED and argv[index + 1].isdigit():
            renamed[index + 1] = str(placed[int(argv[index + 1])])
        elif word == "--env-file":
            number = int(argv[index + 1].rpartition("/")[2])
            renamed[index + 1] = f"/proc/self/fd/{placed[number]}"
    return renamed


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("toolrest-probe", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _outcome(child: subprocess.Popen[bytes]) -> str:
    try:
        _, errors = child.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        # Bubblewrap's own child may not be bound to its life yet, and holds the pipe.
        os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=1)
        return f"{SLOW} {_PATIENCE:.0f} s"
    if child.returncode == 0:
        return ""
    text = errors.decode("utf-8", "replace").strip().replace("\n", "; ")
    return text or f"exited with {child.returncode}"


_KERNEL = """
import marshal, os, sys
package = type(sys)("owner")
package.__path__ = [sys.argv[1]]
sys.modules["owner"] = package
from owner import kernel
"""
_COPIES = os.fsencode(wire.COPIES)
_NO_OVERLAY = "bwrap: Can't make overlay mount"
_NOT_HELD = "links: "
_HOLDING = f"""{_KERNEL}
with open(int(sys.argv[2]), "rb") as request:
    linked, copies = marshal.loads(request.read())
try:
    kernel.hold_links(linked, copies)
except OSError as error:
    link = os.fsdecode(linked[0][2][0])
    words = "is a symbolic link that a command could replace, and it cannot be held in place here"
    sys.exit("{_NOT_HELD}" + link + " " + words + " (" + str(error) + ")")
os.execv(sys.argv[3], sys.argv[3:])
"""


_LANDLOCK_SCRIPT = f"""{_KERNEL}
rules, scoped, program, argv = marshal.loads(sys.stdin.buffer.read())
kernel.no_new_privileges()
kernel.landlock(rules, False, scoped)
kernel.install_seccomp(program)
os.execv(argv[0], argv)
"""


def run_landlock_probe(command: Command) -> str:
    """The same kernel calls as the launcher's child, in a fresh Python."""
    rules = tuple((os.fsencode(path), mask) for path, mask in command.landlock or ())
    request = marshal.dumps((rules, command.landlock_scoped, command.seccomp, command.argv))
    folder = os.path.dirname(wire.__file__)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LANDLOCK_SCRIPT, folder],
            input=request,
            capture_output=True,
            timeout=_PATIENCE,
            env={},
        )
    except subprocess.TimeoutExpired:
        return f"{SLOW} {_PATIENCE:.0f} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exited with {done.returncode}"
