"""Parts of a machine, prepared once: the kernel and the initramfs that all sessions share.

They lie in the home of Toolrest, which commands do not see. Every boot is given them as open
files, so that QEMU needs no path of the host's that its view does not show.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolrest.config.schema.security import VmSettings
from toolrest.private_files import make_private, write_all
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.programs import SYSTEM_FOLDERS, find_program, system_program
from toolrest.sandbox.vm import initramfs
from toolrest.sandbox.vm.kernel import (
    Kernel,
    UnusableKernel,
    decompressed,
    installed,
    modules_of,
    release_of,
)

FORMAT = 1
QEMU = "qemu-system-x86_64"
PREPARE = "Run `toolrest vm prepare`: it finds or makes what is missing."
_PACKAGES = {QEMU: "qemu-system-x86", "busybox": "busybox-static", "kernel": "linux-image-amd64"}
_DOWNLOAD_PATIENCE = 600.0


class Prepared(Struct, frozen=True):
    """Kernel and initramfs as `toolrest vm prepare` made them, and what they were made of."""

    folder: str
    kernel: str
    modules: str
    release: str
    format: int = FORMAT

    @property
    def kernel_file(self) -> str:
        """The kernel to boot."""
        return os.path.join(self.folder, "kernel")

    @property
    def initramfs_file(self) -> str:
        """The initramfs that all sessions share."""
        return os.path.join(self.folder, "initramfs")


def to_install(*names: str) -> str:
    """What to do about missing programs."""
    return f"apt install {' '.join(_PACKAGES[name] for name in names)}"


def qemu_program(roots: tuple[str, ...] = ()) -> str:
    """QEMU's path; raises where it is missing, or this is a machine that we cannot be inside."""
    if platform.machine() != "x86_64":
        raise SandboxUnavailable(
            f"sandbox: virtual machines are for x86-64 so far, and this is {platform.machine()}.",
            remedy="Use another sandbox_policy.",
        )
    program = find_program(QEMU, roots)
    if program is None:
        raise SandboxUnavailable(
            "sandbox: QEMU is not installed, so there is no virtual machine to run commands in.",
            remedy=f"{to_install(QEMU)}, then `toolrest vm prepare`.",
        )
    return program


def load(folder: str, settings: VmSettings) -> Prepared:
    """What is prepared; raises where nothing is, or something else than the settings ask for."""
    try:
        with open(os.path.join(folder, "prepared.json"), "rb") as file:
            found = replace(msgspec.json.decode(file.read(), type=Prepared), folder=folder)
        whole = all(map(os.path.exists, (found.kernel_file, found.initramfs_file)))
    except (OSError, msgspec.DecodeError):
        whole = False
    if not whole or found.format != FORMAT:
        raise SandboxUnavailable(
            f"sandbox: no virtual machine is prepared in {folder}.", remedy=PREPARE
        )
    for name in ("kernel", "modules"):
        wanted = getattr(settings, name)
        if wanted is not None and _real(wanted) != getattr(found, name):
            raise SandboxUnavailable(
                f"sandbox: sandbox.vm.{name} is {wanted}, and what is prepared is of another one"
                f" ({getattr(found, name)}).",
                remedy=PREPARE,
            )
    return found


def prepare(folder: str, settings: VmSettings, say: Callable[[str], None]) -> Prepared:
    """Find or make everything; raises SandboxUnavailable that says what to install."""
    say(f"QEMU: {qemu_program()}")
    busybox = _busybox()
    say(f"busybox: {busybox}")
    with _kernel(settings, say) as (kernel, modules):
        say(f"kernel: {kernel.image}, version {kernel.release}, {len(modules)} modules")
        with open(kernel.image, "rb") as file:
            image = decompressed(file.read())
        with open(busybox, "rb") as file:
            archive = initramfs.base(file.read(), modules)
        made = Prepared(
            folder,
            os.path.realpath(kernel.image),
            os.path.realpath(kernel.modules),
            kernel.release,
        )
    make_private(folder)
    _remove(os.path.join(folder, "prepared.json"), os.path.join(folder, "accelerator.json"))
    write_file(made.kernel_file, image)
    write_file(made.initramfs_file, archive)
    write_file(os.path.join(folder, "prepared.json"), msgspec.json.encode(made))
    return made


def write_file(path: str, data: bytes) -> None:
    """Write a private file in one step: what was there stays until all of the new is written."""
    new = f"{path}.new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)
    os.replace(new, path)


def _remove(*paths: str) -> None:
    for path in paths:
        if os.path.exists(path):
            os.unlink(path)


def _busybox() -> str:
    for path in ("/bin/busybox", "/usr/bin/busybox", system_program("busybox") or ""):
        try:
            with open(path, "rb") as file:
                if not _is_dynamic(file.read()):
                    return path
        except OSError:
            continue
    raise SandboxUnavailable(
        "sandbox: no static busybox is installed; the machine starts with it.",
        remedy=f"{to_install('busybox')}, then `toolrest vm prepare`.",
    )


def _is_dynamic(program: bytes) -> bool:
    """Whether a program needs a loader, which the initramfs has not."""
    return b"/ld-linux" in program[:4096] or b"/ld-musl" in program[:4096]


@contextmanager
def _kernel(
    settings: VmSettings, say: Callable[[str], None]
) -> Iterator[tuple[Kernel, list[tuple[str, bytes]]]]:
    """A kernel that can be read and has its modules: the settings', the machine's, Debian's."""
    reasons: list[str] = []
    for kernel in (_chosen(settings),) if settings.kernel else installed():
        try:
            found = _usable(kernel)
        except (OSError, UnusableKernel) as error:
            reasons.append(f"{kernel.image}: {error}")
            continue
        yield kernel, found
        return
    if settings.kernel is None and system_program("apt-get"):
        with tempfile.TemporaryDirectory(prefix="toolrest-kernel-") as place:
            try:
                say("kernel: none here can be used; fetching Debian's (no root is needed)")
                kernel = _downloaded(place)
                found = _usable(kernel)
            except (OSError, UnusableKernel, subprocess.SubprocessError) as error:
                reasons.append(f"{_PACKAGES['kernel']}: {error}")
            else:
                yield kernel, found
                return
    raise SandboxUnavailable(
        f"sandbox: no kernel for a virtual machine [{' | '.join(reasons) or 'none installed'}].",
        remedy=f"{to_install('kernel')} (the cloud kernel has no 9p), or set sandbox.vm.kernel"
        " and sandbox.vm.modules; then `toolrest vm prepare`.",
    )


def _chosen(settings: VmSettings) -> Kernel:
    image = _real(settings.kernel or "")
    modules = settings.modules
    if modules is None:
        try:
            with open(image, "rb") as file:
                modules = f"/lib/modules/{release_of(file.read(1 << 16))}"
        except OSError as error:
            raise SandboxUnavailable(
                f"sandbox: cannot read sandbox.vm.kernel: {error}.",
                remedy="Name a kernel that you can read.",
            ) from None
    return Kernel(image, _real(modules))


def _real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _usable(kernel: Kernel) -> list[tuple[str, bytes]]:
    with open(kernel.image, "rb"):
        return modules_of(kernel)


def _downloaded(place: str) -> Kernel:
    """Debian's kernel, fetched and unpacked by an ordinary user."""
    shown = _output(("apt-cache", "depends", "--important", _PACKAGES["kernel"]), place)
    names = [word for word in shown.split() if word.startswith("linux-image-")]
    package = next((name for name in names if name != _PACKAGES["kernel"]), None)
    if package is None:
        raise UnusableKernel("apt knows no such package")
    _output(("apt-get", "download", package), place)
    packages = [name for name in os.listdir(place) if name.endswith(".deb")]
    unpacked = os.path.join(place, "unpacked")
    _output(("dpkg-deb", "-x", packages[0], unpacked), place)
    for kernel in installed(f"{unpacked}/boot", f"{unpacked}/lib/modules"):
        return kernel
    for kernel in installed(f"{unpacked}/boot", f"{unpacked}/usr/lib/modules"):
        return kernel
    raise UnusableKernel(f"{package} has no kernel")


def _output(argv: tuple[str, ...], cwd: str) -> str:
    program = system_program(argv[0])
    if program is None:
        raise UnusableKernel(f"{argv[0]} is not installed")
    done = subprocess.run(
        (program, *argv[1:]),
        cwd=cwd,
        env=os.environ | {"PATH": os.pathsep.join(SYSTEM_FOLDERS)},
        capture_output=True,
        timeout=_DOWNLOAD_PATIENCE,
    )
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UnusableKernel(lines[-1] if lines else f"{argv[0]} exited with {done.returncode}")
    return done.stdout.decode("utf-8", "replace")
