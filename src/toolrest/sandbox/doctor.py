"""The report of `toolrest doctor`: what each backend enforces on this machine, and warnings.

Every backend is really run. What it leaves open is named row by row.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from toolrest.config.files import toolrest_home, vm_folder
from toolrest.policy.paths.names import inside
from toolrest.policy.verdict.path_hijack import path_entries_inside
from toolrest.sandbox.backends.container.engine import ContainerOptions
from toolrest.sandbox.backends.engine import unmet
from toolrest.sandbox.backends.probe import (
    Probe,
    bwrap_programs,
    probe_bubblewrap,
    probe_landlock,
)
from toolrest.sandbox.confine import default_registry
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.findings import HARD_LINK as HARD_LINK
from toolrest.sandbox.findings import (
    Finding,
    chroot_finding,
    container_findings,
    gvisor_finding,
)
from toolrest.sandbox.kernel import landlock_rules as landlock
from toolrest.sandbox.policy import CONTROLS, SandboxPolicy
from toolrest.sandbox.programs import (
    bundled_bwrap,
    bundled_rg,
    own_files_in,
    rg_programs,
    version_of,
)
from toolrest.sandbox.remedy import remedy_for
from toolrest.sandbox.vm.options import VmOptions
from toolrest.sandbox.vm.probe import BROKEN, probe_vm
from toolrest.sandbox.weak import APART

_MOST_ENTRIES = 200_000


class Report(Struct, frozen=True):
    """Everything at once; `chosen` is what a session would use, or empty."""

    findings: tuple[Finding, ...]
    chosen: str
    warnings: tuple[str, ...]
    hard_links: int
    """Files in the writable roots that have another name, perhaps outside; -1: too many to look."""
    why_none: tuple[str, ...] = ()
    """Why a session would use nothing: a reason for each backend that it would have tried."""
    searches: tuple[str, ...] = ()
    """The ripgreps that are there, the one that is used first."""


_TRIED = {
    None: ("bubblewrap", "landlock"),
    "chroot": ("chroot",),
    "docker": ("docker",),
    "vm": ("vm",),
    "gvisor": ("gvisor",),
}
"""The backends that a session tries, by its `sandbox_policy`."""


def examine(
    policy: SandboxPolicy,
    registry: str | None = None,
    *,
    wanted: str | None = None,
    vm: VmOptions | None = None,
    container: ContainerOptions | None = None,
    rootfs: str | None = None,
) -> Report:
    """Run every backend on `/bin/true` and look around; `wanted` is the one that settings name."""
    if sys.platform == "win32":
        nothing = Finding("windows", False, "Windows is not supported yet; use WSL 2")
        return Report((nothing,), "", (), 0)
    place = registry or default_registry()
    findings = [
        *_bubblewraps(policy, place),
        _landlock(policy),
        *container_findings(policy, place, container or ContainerOptions()),
        chroot_finding(policy, place, rootfs),
        gvisor_finding(policy, place),
        _virtual_machine(policy, place, vm),
    ]
    tried = [f for f in findings if (f.kind or f.name).startswith(_TRIED.get(wanted, ()))]
    first = next((f for f in tried if f.stops or (f.works and not _lacking(f, policy))), None)
    chosen = first.name if first is not None and not first.stops else ""
    return Report(
        tuple(findings),
        chosen,
        tuple(_warnings(policy)),
        count_hard_links(policy.roots),
        () if chosen else tuple(_why_none(tried, policy)),
        tuple(
            _named(path, bundled_rg(policy.tool_roots)) for path in rg_programs(policy.tool_roots)
        ),
    )


def _named(program: str, bundled: str | None) -> str:
    """Where a program lies, where it comes from and its version."""
    origin = "installed with Toolrest" if program == bundled else "the system's"
    version = ".".join(map(str, version_of(program))) or "unknown"
    return f"{program}, {origin}, version {version}"


def _lacking(finding: Finding, policy: SandboxPolicy) -> list[str]:
    """What is required and not enforced; containers are not asked what they enforce here."""
    return unmet(finding.controls, policy.require) if finding.controls else []


def _why_none(tried: Sequence[Finding], policy: SandboxPolicy) -> Iterator[str]:
    """For each backend that a session tries, why it would not do."""
    for finding in tried:
        lacking = _lacking(finding, policy) if finding.works else [finding.detail]
        yield f"{finding.name}: {'; '.join(lacking)}"
        if finding.stops:
            return


def _bubblewraps(policy: SandboxPolicy, registry: str) -> list[Finding]:
    findings = []
    for program in bwrap_programs(policy.tool_roots):
        kind = "bundled" if program == bundled_bwrap() else "system"
        probe = Probe("bubblewrap", False)
        for overlays in (True, False):
            stops = False
            try:
                probe, _ = probe_bubblewrap(policy, program, registry, overlays=overlays)
            except SandboxUnavailable as error:
                probe, stops = Probe("bubblewrap", False, str(error), program), True
            if probe.works or stops:
                break
        detail = _named(program, bundled_bwrap())
        detail += "" if probe.works else f": {probe.detail}"
        findings.append(
            Finding(
                f"bubblewrap ({kind})",
                probe.works,
                detail,
                probe.controls,
                HARD_LINK,
                stops=stops,
            )
        )
    if any(finding.works for finding in findings):
        return findings
    problems = [finding.detail for finding in findings]
    found = remedy_for(problems)
    findings = findings or [Finding("bubblewrap", False, "not installed")]
    return [*findings[:-1], replace(findings[-1], remedy=f"{found.why}: {found.do}")]


def _landlock(policy: SandboxPolicy) -> Finding:
    probe, _ = probe_landlock(policy)
    remedy = (
        "" if probe.works else "use Linux 6.2 or later with Landlock switched on (lsm=landlock,…)"
    )
    return Finding(
        "landlock",
        probe.works,
        probe.detail,
        probe.controls,
        landlock.open_rows(),
        landlock.BROKEN,
        remedy,
    )


def _virtual_machine(policy: SandboxPolicy, registry: str, options: VmOptions | None) -> Finding:
    """A machine, booted once where one is prepared."""
    try:
        if options is None:
            options = VmOptions(vm_folder(toolrest_home(None, os.environ)))
        probe, engine = probe_vm(policy, options, registry, examined=True)
    except SandboxUnavailable as error:
        detail = error.plain.removeprefix("sandbox: ")
        return Finding("vm", False, detail, remedy=" ".join(error.hints))
    engine.close()
    return Finding("vm", True, probe.detail, probe.controls, HARD_LINK, BROKEN)


def _warnings(policy: SandboxPolicy) -> list[str]:
    found = [
        f"PATH has {entry!r}, which a confined command can write to; Toolrest takes no program of"
        " its own from there, but your shell will"
        for entry in path_entries_inside(policy.roots)
    ]
    found += [
        f"Toolrest itself lies in the writable root ({path}), and is kept read-only there, so that"
        f" no command can `pip install` into it; {APART}"
        for path in own_files_in(policy.roots)
    ]
    found += [
        f"Python looks for modules in {path or '.'}, which a confined command can write to"
        for path in sys.path
        if _importable_from_root(path, policy)
    ]
    found += [
        f"the writable root {path} does not exist and was left out" for path in policy.dropped
    ]
    return found


def _importable_from_root(path: str, policy: SandboxPolicy) -> bool:
    real = os.path.realpath(path or os.getcwd())
    if policy.in_root(real) is None:
        return False
    return not any(inside(real, own) for own in own_files_in(policy.roots))


def count_hard_links(roots: Sequence[str], most: int = _MOST_ENTRIES) -> int:
    """Regular files in the roots that have more than one name; -1 when there is too much to see."""
    count = 0
    pending = list(roots)
    while pending:
        try:
            with os.scandir(pending.pop()) as listing:
                entries = list(islice(listing, most + 1))
        except OSError:  # also while it is listed: a process of /proc may end
            continue
        most -= len(entries)
        if most < 0:
            return -1
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                count += _names(entry) > 1
    return count


def _names(entry: os.DirEntry[str]) -> int:
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError:
        return 0
    return info.st_nlink if stat.S_ISREG(info.st_mode) else 0


def lines(report: Report) -> list[str]:
    """The report as plain lines."""
    out: list[str] = []
    for finding in report.findings:
        out.append(f"{finding.name}: {'works' if finding.works else 'does not work'}")
        if finding.detail:
            out.append(f"  {finding.detail}")
        out += [f"  {name}: {_answer(finding, name)}" for name in CONTROLS if finding.controls]
        if finding.works:
            out += [f"  open: {row}: {text}" for row, text in finding.open.items()]
            out += [f"  broken: {row}: {text}" for row, text in finding.broken.items()]
        if finding.remedy:
            out.append(f"  to do: {finding.remedy}")
    out += matrix(report)
    out += [f"ripgrep: {name}" for name in report.searches or ("not installed",)]
    out.append(f"a session uses: {report.chosen or 'nothing; commands are refused'}")
    out += [f"  because of {reason}" for reason in report.why_none]
    if report.hard_links:
        number = "very many" if report.hard_links < 0 else str(report.hard_links)
        out.append(
            f"files with several names in the writable roots: {number}; writing one writes them all"
        )
    return out + [f"warning: {text}" for text in report.warnings]


def matrix(report: Report) -> list[str]:
    """The kinds of sandbox and what each enforces here, as a table."""
    rows: list[tuple[str, ...]] = [("kind", *CONTROLS)]
    for finding in report.findings:
        levels: list[str] = [
            finding.controls[name].level for name in CONTROLS if name in finding.controls
        ]
        rows.append((finding.name, *(levels or ["works" if finding.works else "not here"])))
    widths = [max(len(row[n]) for row in rows if len(row) > n) for n in range(len(CONTROLS) + 1)]
    padded = (zip(row, widths, strict=False) for row in rows)
    return ["  ".join(text.ljust(width) for text, width in row).rstrip() for row in padded]


def _answer(finding: Finding, name: str) -> str:
    for control, enforced in finding.controls.items():
        if control == name:
            return enforced.level if not enforced.note else f"{enforced.level} ({enforced.note})"
    return "not applicable"
