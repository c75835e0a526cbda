"""Checks of the sandbox by trying it, and what the settings mean for a session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

from msgspec import Struct
from msgspec.structs import replace

from toolrest.agent.path_policy import default_workspace, path_policy
from toolrest.agent.setup.runner import confinement_of
from toolrest.config import Config
from toolrest.config.files import placeholder_records, vm_folder
from toolrest.errors import ConfigError
from toolrest.policy.modes import network_of
from toolrest.private_files import make_private
from toolrest.sandbox.backends.probe import Probe
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.doctor import Report, examine
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.programs import bundled_bwrap
from toolrest.sandbox.remedy import remedy_for
from toolrest.sandbox.vm.options import VmOptions
from toolrest.sandbox.weak import APART, OWN_FILES_IN_REACH, WEAK_FACTS, is_weak
from toolrest.timeline.text import shown

_REASON = 200
FULL_ACCESS = "danger-full-access"


def examined(config: Config) -> Report:
    """The report on what a session that may write would use."""
    settings = config.value
    confinement = confinement_of(settings)
    with _writing_policy(config) as (policy, registry):
        return examine(
            policy,
            registry,
            wanted=settings.sandbox_policy,
            container=confinement.container,
            rootfs=confinement.rootfs,
            vm=VmOptions(vm_folder(config.home), settings.sandbox.vm),
        )


class SandboxVerdict(Struct, frozen=True):
    """The sandbox of a session that may write, and how to get a better one where there is one."""

    text: str
    works: bool = True
    remedy: str = ""


def sandbox_verdict(config: Config) -> SandboxVerdict:
    """The sandbox that a session uses, found by trying.

    Only what a session would try is tried: the others, which `doctor -v` runs, may take long.
    """
    settings = config.value
    if settings.sandbox_mode == FULL_ACCESS:
        return SandboxVerdict(
            f'none, by your settings (sandbox_mode = "{FULL_ACCESS}"): commands run unconfined'
        )
    confinement = confinement_of(settings)
    # What a list of hosts needs is a proxy, which comes with a session; the rest is tried.
    with _writing_policy(config, lists_hosts=False) as (policy, registry):
        try:
            sandbox = SessionSandbox(
                policy,
                backend=settings.sandbox_policy,
                registry=registry,
                container=confinement.container,
                rootfs=confinement.rootfs,
                vm=VmOptions(vm_folder(config.home), settings.sandbox.vm),
            )
            with closing(sandbox):
                probe, engine = sandbox.choose()
        except (SandboxUnavailable, ConfigError, OSError) as error:
            reasons = error.tried if isinstance(error, SandboxUnavailable) else ()
            if reasons and sandbox.why_none == OWN_FILES_IN_REACH:
                why = "none here can keep Toolrest from being changed, so commands are refused"
                return SandboxVerdict(
                    why, works=False, remedy=f"Toolrest lies in this project: {APART}"
                )
            why = shown(reasons[0] if reasons else str(error))
            why = why if len(why) <= _REASON else why[: _REASON - 1] + "…"
            return SandboxVerdict(
                f"none works here, so commands are refused ({why})",
                works=False,
                remedy=_remedy(sandbox.tried) if reasons and sandbox.wanted is None else "",
            )
    if is_weak(probe.controls):
        return SandboxVerdict(WEAK_FACTS, remedy=_remedy(sandbox.tried))
    missing = [name for name, enforced in probe.controls.items() if enforced.level != "full"]
    but = f", but not in full: {', '.join(missing)}" if missing else ""
    own = probe.program == bundled_bwrap()
    where = f" ({'installed with Toolrest' if own else probe.program})" if probe.program else ""
    return SandboxVerdict(f"{engine.name}{where} works{but}")


def _remedy(tried: Iterable[Probe]) -> str:
    """Why bubblewrap was not chosen, and what helps; nothing where it works and is not enough."""
    rows = [probe for probe in tried if probe.backend == "bubblewrap"]
    if any(probe.works for probe in rows):
        return ""
    found = remedy_for([probe.detail for probe in rows if probe.program])
    return f"{found.why}: {found.do}"


@contextmanager
def _writing_policy(
    config: Config, *, lists_hosts: bool = True
) -> Iterator[tuple[SandboxPolicy, str]]:
    """The policy of a session that may write, whatever the settings say, and where it records."""
    if config.value.sandbox_mode != "workspace-write":
        config = replace(config, value=config.value.replace(sandbox_mode="workspace-write"))
    settings = config.value
    network = network_of(settings)
    with tempfile.TemporaryDirectory(prefix="toolrest-doctor-") as session:
        policy = SandboxPolicy.from_paths(
            path_policy(config, default_workspace(config.workspace)),
            session,
            network=network if lists_hosts or network != "allowlist" else "off",
            allowed_hosts=settings.tool_security.allowed_network_domains or (),
            require=settings.sandbox.require,
        )
        records = placeholder_records(config.home)
        yield policy, os.path.join(session, "records") if home_problem(config.home) else records


def home_problem(home: str) -> str:
    """Why nothing can be written in Toolrest's home; empty where it can."""
    try:
        make_private(home)
        with tempfile.TemporaryFile(dir=home):
            return ""
    except OSError as error:
        return f"cannot write to {home}: {error.strerror}"
    except ConfigError as error:
        return str(error)


def session_lines(config: Config) -> Iterator[str]:
    """What the settings mean for a session, one line each."""
    settings, security = config.value, config.value.tool_security
    for key in ("approval_policy", "sandbox_mode", "sandbox_policy"):
        row = config.get(key)
        if row.value is not None:
            yield f"{key} = {row.text}  ({row.source})"
    listed = security.allowed_network_domains
    hosts = ", ".join(listed or ())
    network = {
        "on": "everything",
        "off": "nothing",
        "allowlist": f"only {hosts}" if hosts else "nothing",
    }
    ceiling = " (tool_security.allowed_network_domains binds tools and MCP servers, too)"
    yield f"commands reach {network[network_of(settings)]}{ceiling * (listed is not None)}"
    most = security.max_shell_commands_per_session
    yield f"commands in a session: {'unlimited' if most is None else f'at most {most}'}"
    yield f"files: at most {security.max_file_access_size:,} bytes"
    folder, file = config.audit_place
    place = os.path.join(folder, file) if file else f"{folder}/, one file a session"
    yield f"audit log: {place if security.audit_log_enabled else 'off'}"
