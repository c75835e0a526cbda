"""Checks of the sandbox by trying it, and what the settings mean for a session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager

from msgspec.structs import replace

from toolrest.agent.path_policy import default_workspace, path_policy
from toolrest.agent.setup.runner import confinement_of
from toolrest.config import Config
from toolrest.config.files import placeholder_records, vm_folder
from toolrest.errors import ConfigError
from toolrest.policy.modes import network_of
from toolrest.sandbox.confine import SessionSandbox
from toolrest.sandbox.doctor import Report, examine
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.vm.options import VmOptions
from toolrest.timeline.text import shown

_REASON = 200
FULL_ACCESS = "danger-full-access"


def examined(config: Config) -> Report:
    """The report on what a session that may write would use."""
    settings = config.value
    confinement = confinement_of(settings)
    with _writing_policy(config) as policy:
        return examine(
            policy,
            placeholder_records(config.home),
            wanted=settings.sandbox_policy,
            container=confinement.container,
            rootfs=confinement.rootfs,
            vm=VmOptions(vm_folder(config.home), settings.sandbox.vm),
        )


def sandbox_line(config: Config) -> str:
    """The sandbox of a session in one line: which one it is, and whether it works.

    Only what a session would try is tried: the others, which `doctor` runs, may take long.
    """
    settings = config.value
    if settings.sandbox_mode == FULL_ACCESS:
        return f'sandbox: none, by your settings (sandbox_mode = "{FULL_ACCESS}")'
    confinement = confinement_of(settings)
    # What a list of hosts needs is a proxy, which comes with a session; the rest is tried.
    with _writing_policy(config, lists_hosts=False) as policy:
        try:
            sandbox = SessionSandbox(
                policy,
                backend=settings.sandbox_policy,
                registry=placeholder_records(config.home),
                container=confinement.container,
                rootfs=confinement.rootfs,
                vm=VmOptions(vm_folder(config.home), settings.sandbox.vm),
            )
            with closing(sandbox):
                probe, engine = sandbox.choose()
        except (SandboxUnavailable, ConfigError) as error:
            reasons = error.tried if isinstance(error, SandboxUnavailable) else ()
            why = shown(reasons[0] if reasons else str(error))
            why = why if len(why) <= _REASON else why[: _REASON - 1] + "…"
            return (
                f"sandbox: none works here, so commands are refused ({why}); see: toolrest doctor"
            )
    weak = [name for name, enforced in probe.controls.items() if enforced.level != "full"]
    but = f", but not in full: {', '.join(weak)}" if weak else ""
    return f"sandbox: {engine.name} works{but}; more: toolrest doctor"


@contextmanager
def _writing_policy(config: Config, *, lists_hosts: bool = True) -> Iterator[SandboxPolicy]:
    """The policy of a session that may write, whatever the settings say."""
    if config.value.sandbox_mode != "workspace-write":
        config = replace(config, value=config.value.replace(sandbox_mode="workspace-write"))
    settings = config.value
    network = network_of(settings)
    with tempfile.TemporaryDirectory(prefix="toolrest-doctor-") as session:
        yield SandboxPolicy.from_paths(
            path_policy(config, default_workspace(config.workspace)),
            session,
            network=network if lists_hosts or network != "allowlist" else "off",
            allowed_hosts=settings.tool_security.allowed_network_domains or (),
            require=settings.sandbox.require,
        )


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
