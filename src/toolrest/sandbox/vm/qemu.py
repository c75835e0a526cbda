"""QEMU's argument list: a machine with two shares, one serial port and no network.

No path of the session and nothing secret is in it: an argument list can be read by every user of
the host.
"""

from __future__ import annotations

from typing import Literal

from toolrest.sandbox.vm.initramfs import SHARED, WORK

Accelerator = Literal["kvm", "tcg"]

CHANNEL_FD, KERNEL_FD, INITRAMFS_FD = 3, 4, 5
KVM_DEVICE = "/dev/kvm"

_APPEND = (
    "console=ttyS0 quiet panic=-1 reboot=t no_timer_check edd=off random.trust_cpu=on"
    " mitigations=off cryptomgr.notests i8042.noaux=1 8250.nr_uarts=1 nokaslr apparmor=0"
    " rcupdate.rcu_expedited=1 page_alloc.shuffle=0"
)
"""Quick to boot. Mitigations are between what runs in one machine, and that is one session."""
_SLOW_CLOCK = " tsc=unstable"
"""An emulated processor's own clock cannot be trusted, and finding that out takes a second."""
_SECCOMP = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


def arguments(program: str, accelerator: Accelerator, memory: int, cpus: int) -> tuple[str, ...]:
    """The argument list of a machine with so many bytes of memory."""
    append = _APPEND + (_SLOW_CLOCK if accelerator == "tcg" else "")
    shares: list[str] = []
    for tag, mode in ((SHARED, ",readonly=on"), (WORK, "")):
        shares += ("-fsdev", f"local,id={tag},path=/,security_model=none,multidevs=remap{mode}")
        shares += ("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}")
    return (
        program,
        *("-M", "q35,smbus=off,sata=off,usb=off,vmport=off,i8042=off"),
        *("-accel", accelerator),
        *("-cpu", "host" if accelerator == "kvm" else "max"),
        *("-m", f"{max(memory >> 20, 1)}M"),
        *("-smp", str(cpus)),
        *("-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none"),
        *("-sandbox", _SECCOMP),
        *("-chardev", "stdio,id=console,signal=off"),
        *("-serial", "chardev:console"),
        *("-kernel", f"/proc/self/fd/{KERNEL_FD}"),
        *("-initrd", f"/proc/self/fd/{INITRAMFS_FD}"),
        *("-append", append),
        *("-device", "virtio-serial-pci,max_ports=2"),
        *("-chardev", f"socket,id=channel,fd={CHANNEL_FD}"),
        *("-device", "virtserialport,chardev=channel,name=toolrest"),
        *shares,
    )
