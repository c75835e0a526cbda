"""`toolrest vm`: make ready what `sandbox_policy = "vm"` boots."""

from __future__ import annotations

import tempfile

import click

from toolrest.cli.options import config_option
from toolrest.cli.terminal.progress import progress
from toolrest.config.files import placeholder_records, vm_folder
from toolrest.config.loader import load
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.vm import prepare
from toolrest.sandbox.vm.options import VmOptions
from toolrest.sandbox.vm.probe import probe_vm


@click.group("vm")
def command() -> None:
    """Virtual machines to run commands in (sandbox_policy = "vm")."""


@command.command("prepare")
@config_option
def prepare_command(overrides: tuple[str, ...]) -> None:
    """Find a kernel and busybox, build the initramfs, and boot it once.

    Takes sandbox.vm.kernel and sandbox.vm.modules, else a kernel of this machine that you can
    read, else Debian's, which it downloads. Says what to install where something is missing. Run it
    again after a change of kernel.
    """
    config = load(overrides=overrides, surface="cli")
    folder, settings = vm_folder(config.home), config.value.sandbox.vm
    with progress("preparing"):
        made = prepare.prepare(folder, settings, click.echo)
    click.echo(f"prepared in {made.folder}; booting it once")
    with (
        tempfile.TemporaryDirectory(prefix="toolrest-vm-") as session,
        tempfile.TemporaryDirectory(prefix="toolrest-vm-") as workspace,
        progress("booting"),
    ):
        policy = SandboxPolicy.build(workspace, session)
        probe, engine = probe_vm(
            policy, VmOptions(folder, settings), placeholder_records(config.home)
        )
        engine.close()
    click.echo(f"works: {probe.detail}")
    click.echo('sandbox_policy = "vm" in your settings makes sessions use it')
