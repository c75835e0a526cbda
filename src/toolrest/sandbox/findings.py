"""Findings of `toolrest doctor` about the kinds of sandbox that settings choose by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from toolrest.errors import ConfigError
from toolrest.sandbox.backends import gvisor
from toolrest.sandbox.backends.container.engine import ENGINES, OPEN, ContainerOptions
from toolrest.sandbox.backends.engine import Controls
from toolrest.sandbox.backends.probe import (
    bwrap_programs,
    probe_bubblewrap,
    probe_container,
    probe_gvisor,
)
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.kernel import landlock_rules as landlock
from toolrest.sandbox.policy import SandboxPolicy

HARD_LINK = {"hardlink_preexisting": landlock.OPEN["hardlink_preexisting"]}


class Finding(Struct, frozen=True):
    """One backend: whether it works here, what it enforces, what stays open."""

    name: str
    works: bool
    detail: str = ""
    controls: Controls = field(default_factory=dict)
    open: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    remedy: str = ""
    stops: bool = False
    """It would work, but not here; a session then uses nothing weaker."""
    kind: str = ""
    """What `sandbox_policy` calls it, where that is not its name: an engine has any."""


def container_findings(
    policy: SandboxPolicy, registry: str, options: ContainerOptions
) -> Iterator[Finding]:
    """Containers, as far as an engine answers and has the image."""
    policy = policy.without_list()  # there is no proxy yet, and these enforce a list with one
    for name in ENGINES if options.engine is None else (options.engine,):
        probe, engine = probe_container(policy, replace(options, engine=name, pull=False), registry)
        if engine is not None:
            engine.close()
        detail = f"{probe.program}, {options.image}" if probe.works else probe.detail
        shown = os.path.basename(name)
        rows = HARD_LINK | OPEN
        yield Finding(shown, probe.works, detail, probe.controls, rows, kind="docker")


def chroot_finding(policy: SandboxPolicy, registry: str, rootfs: str | None) -> Finding:
    """The root file system of the settings."""
    programs = bwrap_programs(policy.tool_roots)
    if rootfs is None or not programs:
        lacking = "bubblewrap" if rootfs else "sandbox.rootfs, a folder with a root file system"
        return Finding("chroot", False, f"needs {lacking}")
    policy = policy.without_list()  # there is no proxy yet, and these enforce a list with one
    try:
        probe, _ = probe_bubblewrap(policy, programs[0], registry, overlays=False, rootfs=rootfs)
    except (SandboxUnavailable, ConfigError) as error:
        return Finding("chroot", False, str(error))
    return Finding("chroot", probe.works, probe.detail or rootfs, probe.controls, HARD_LINK)


def gvisor_finding(policy: SandboxPolicy, registry: str) -> Finding:
    """GVisor inside bubblewrap's view."""
    programs = bwrap_programs(policy.tool_roots)
    if not programs:
        return Finding("gvisor", False, "needs bubblewrap, which is not installed")
    try:
        probe, _ = probe_gvisor(policy.without_list(), programs[0], registry)
    except SandboxUnavailable as error:
        return Finding("gvisor", False, str(error))
    rows = HARD_LINK | gvisor.OPEN
    return Finding("gvisor", probe.works, probe.detail, probe.controls, rows, gvisor.BROKEN)
