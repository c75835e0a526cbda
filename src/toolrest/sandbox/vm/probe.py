"""The probe of a virtual machine: boots it, and remembers whether KVM can be used for that.

That `/dev/kvm` is there says little: in a machine of a cloud a guest may hang without a word. So
KVM is used only after a machine has booted with it once, since the host's own boot.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolrest.process.command import Command
from toolrest.process.limits import Limits
from toolrest.process.owner import Owner
from toolrest.process.run import RunResult, run
from toolrest.sandbox.backends.bubblewrap import BubblewrapEngine
from toolrest.sandbox.backends.engine import Controls, Proxy, all_full
from toolrest.sandbox.backends.probe import PROBE, Probe, bwrap_programs, probe_bubblewrap
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.guard.neighbours import Neighbours
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import own_prefixes
from toolrest.sandbox.vm.engine import VmEngine
from toolrest.sandbox.vm.machine import MachineFailed, MachineGivenUp
from toolrest.sandbox.vm.options import VmOptions
from toolrest.sandbox.vm.prepare import PREPARE, Prepared, load, qemu_program, write_file
from toolrest.sandbox.vm.qemu import KVM_DEVICE, Accelerator

BROKEN = {
    "unix_listen_ws": "named pipes and unix sockets work in /tmp, /run and /dev/shm only, not in"
    " shared folders",
    "tmp_after_restart": "when a hidden or protected path comes or goes, the machine boots again"
    " before the next command, and its /tmp is empty then",
}
"""What works otherwise and does not work in a machine, for `doctor`."""

_KVM_PATIENCE = 15.0
_RUN_PATIENCE = 60.0


class Accelerated(Struct, frozen=True):
    """The result of a boot with KVM, for one kernel and one boot of the host."""

    key: str
    accelerator: Accelerator
    reason: str = ""


def probe_vm(
    policy: SandboxPolicy,
    options: VmOptions,
    registry: str,
    *,
    proxy: Proxy | None = None,
    limits: Limits | None = None,
    closed: threading.Event | None = None,
    examined: bool = False,
    neighbours: Neighbours | None = None,
) -> tuple[Probe, VmEngine]:
    """Boot the session's machine; raises SandboxUnavailable that says what is missing.

    Once `closed` is set the boot is given up. With `examined` a command is run and timed, too.
    """
    if policy.network == "on":
        raise SandboxUnavailable(
            "sandbox: a virtual machine has no network but the hosts that"
            " tool_security.allowed_network_domains names.",
            remedy="Name them, and set sandbox_workspace_write.network_access = false.",
        )
    program = qemu_program(policy.tool_roots)
    prepared = load(options.folder, options.settings)
    view = _view(policy, registry, neighbours)
    engine = VmEngine(
        policy,
        view,
        options,
        prepared,
        program,
        registry=registry,
        proxy=proxy,
        limits=limits.for_cgroup() if limits is not None else {},
        closed=closed,
    )
    begun = time.monotonic()
    try:
        note = _boot(engine, options, prepared)
    except MachineFailed as error:
        engine.close()
        raise SandboxUnavailable(
            f"sandbox: the virtual machine did not boot: {error}.", remedy=PREPARE
        ) from error
    took = time.monotonic() - begun
    detail = f"{program}, Linux {prepared.release}, {engine.accelerator}, booted in {took:.1f} s"
    if examined:
        detail += f", /bin/true in {_true(engine):.2f} s"
    return Probe("vm", True, detail + note, program, controls=controls()), engine


def _true(engine: VmEngine) -> float:
    """Seconds that a command takes which does nothing."""

    async def once(command: Command) -> RunResult:
        owner = Owner(cgroup=False)
        try:
            return await run(owner, command, time_limit=_RUN_PATIENCE)
        finally:
            await owner.aclose()

    prepared = engine.confine(Command((PROBE,), engine.policy.workspace, {}))
    result = asyncio.run(once(prepared.command))
    prepared.release()
    if result.exit_code != 0:
        engine.close()
        raise SandboxUnavailable(
            f"sandbox: the virtual machine runs no command: {result.stderr or result.state}."
        )
    return result.duration


def controls() -> Controls:
    """All of them: what bubblewrap enforces around QEMU, and no host beyond that."""
    return all_full()


def _view(policy: SandboxPolicy, registry: str, neighbours: Neighbours | None) -> BubblewrapEngine:
    """The bubblewrap that QEMU runs in: a command's view, without any network.

    Also without overlays, which are there for sockets, and do not show what the host changes while
    they are mounted; a machine reaches no socket of the host.
    """
    readable = policy.read_roots
    if readable is not None:  # the agent's Python, and a folder to mount on
        readable = (*readable, *own_prefixes(), "/sys")
    around = replace(policy, network="off", read_roots=readable)
    reasons = []
    for program in bwrap_programs(policy.tool_roots):
        probe, engine = probe_bubblewrap(
            around, program, registry, overlays=False, neighbours=neighbours
        )
        if engine is not None:
            return engine
        reasons.append(f"{program}: {probe.detail}")
    raise SandboxUnavailable(
        "sandbox: a virtual machine runs in bubblewrap, which does not work here"
        f" [{' | '.join(reasons) or 'not installed'}].",
        remedy="Install it (`apt install bubblewrap`) and allow user namespaces; `toolrest doctor`"
        " says what is missing.",
    )


def _boot(engine: VmEngine, options: VmOptions, prepared: Prepared) -> str:
    """Boot with the best that works; a note where that is not KVM although it is there."""
    wanted = options.settings.accel
    if wanted != "auto":
        engine.accelerator = wanted
        engine.boot()
        return ""
    if not os.access(KVM_DEVICE, os.R_OK | os.W_OK):
        engine.boot()
        return ""
    place = os.path.join(options.folder, "accelerator.json")
    known = _remembered(place, _key(prepared))
    if known is None:
        known = _tried(engine, _key(prepared))
        write_file(place, msgspec.json.encode(known))
    engine.accelerator = known.accelerator
    engine.boot()
    return f" ({KVM_DEVICE} is there, but: {known.reason})" if known.reason else ""


def _tried(engine: VmEngine, key: str) -> Accelerated:
    engine.accelerator = "kvm"
    try:
        engine.boot(_KVM_PATIENCE)
    except MachineGivenUp:
        raise  # KVM may work all the same
    except MachineFailed as error:
        return Accelerated(key, "tcg", str(error))
    return Accelerated(key, "kvm")


def _remembered(place: str, key: str) -> Accelerated | None:
    try:
        with open(place, "rb") as file:
            found = msgspec.json.decode(file.read(), type=Accelerated)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.key == key else None


def _key(prepared: Prepared) -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()} {prepared.release}"
