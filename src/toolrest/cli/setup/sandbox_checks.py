"""Checks of the sandbox by trying it, and what the settings mean for a session."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

from msgspec.structs import replace

from toolrest.agent.path_policy import default_workspace, network_of, path_policy
from toolrest.agent.setup.runner import confinement_of
from toolrest.config import Config
from toolrest.config.files import placeholder_records, vm_folder
from toolrest.sandbox.doctor import Report, examine
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.vm.options import VmOptions

FULL_ACCESS = "danger-full-access"


def examined(config: Config) -> Report:
    """The report on what a session that may write would use."""
    if config.value.sandbox_mode != "workspace-write":
        config = replace(config, value=config.value.replace(sandbox_mode="workspace-write"))
    settings = config.value
    with tempfile.TemporaryDirectory(prefix="toolrest-doctor-") as session:
        policy = SandboxPolicy.from_paths(
            path_policy(config, default_workspace(config.workspace)),
            session,
            network=network_of(settings),
            allowed_hosts=settings.tool_security.allowed_network_domains,
            require=settings.sandbox.require,
        )
        confinement = confinement_of(settings)
        return examine(
            policy,
            placeholder_records(config.home),
            wanted=settings.sandbox_policy,
            container=confinement.container,
            rootfs=confinement.rootfs,
            vm=VmOptions(vm_folder(config.home), settings.sandbox.vm),
        )


def session_lines(config: Config) -> Iterator[str]:
    """What the settings mean for a session, one line each."""
    settings, security = config.value, config.value.tool_security
    for key in ("approval_policy", "sandbox_mode", "sandbox_policy"):
        row = config.get(key)
        if row.value is not None:
            yield f"{key} = {row.text}  ({row.source})"
    hosts = ", ".join(security.allowed_network_domains)
    network = {"on": "everything", "off": "nothing", "allowlist": f"only {hosts}"}
    yield f"commands reach {network[network_of(settings)]}"
    most = security.max_shell_commands_per_session
    yield f"commands in a session: {'unlimited' if most is None else f'at most {most}'}"
    yield f"files: at most {security.max_file_access_size:,} bytes"
    folder, file = config.audit_place
    place = os.path.join(folder, file) if file else f"{folder}/, one file a session"
    yield f"audit log: {place if security.audit_log_enabled else 'off'}"
