"""Kernels for the machine: finds one that has what is needed, and takes it apart.

A compressed kernel decompresses itself in the machine, which takes seconds where the processor is
emulated; so that is done here, once.
"""

from __future__ import annotations

import lzma
import os
import re
import struct
import subprocess
import zlib
from collections.abc import Iterator

from msgspec import Struct

from toolrest.sandbox.programs import system_program

NEEDED = ("virtio_pci", "virtio_console", "9p", "9pnet_virtio")
"""Modules without which a machine can neither see files nor be spoken with."""
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
_ENDINGS = (".ko", ".ko.xz", ".ko.gz", ".ko.zst")
_MAGIC = b"HdrS"
_PATIENCE = 60.0


class Kernel(Struct, frozen=True):
    """A kernel and the folder of its modules."""

    image: str
    modules: str

    @property
    def release(self) -> str:
        """Its version, which is the name of the folder of its modules."""
        return os.path.basename(self.modules.rstrip("/"))


class UnusableKernel(Exception):
    """A kernel that cannot be used; the text says why."""


def installed(boot: str = "/boot", modules: str = "/lib/modules") -> Iterator[Kernel]:
    """The kernels of this machine, the running one first, then the newest."""
    running = os.uname().release
    try:
        releases = sorted(os.listdir(modules), key=_version, reverse=True)
    except OSError:
        releases = []
    for release in sorted(releases, key=lambda name: name != running):
        folder = os.path.join(modules, release)
        for image in (f"{boot}/vmlinuz-{release}", f"{folder}/vmlinuz"):
            if os.path.exists(image):
                yield Kernel(image, folder)
                break


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", name))


def release_of(image: bytes) -> str:
    """The version that a compressed kernel names; empty for another file."""
    if image[0x202:0x206] != _MAGIC:
        return ""
    at = struct.unpack_from("<H", image, 0x20E)[0] + 0x200
    return image[at : at + 200].split(b"\0")[0].split(b" ")[0].decode("ascii", "replace")


def decompressed(image: bytes) -> bytes:
    """The kernel itself (ELF), or the image as it is where that cannot be had."""
    if image[0x202:0x206] != _MAGIC:
        return image
    offset, length = struct.unpack_from("<II", image, 0x248)
    packed = image[((image[0x1F1] or 4) + 1) * 512 + offset :][:length]
    try:
        found = _unpacked(packed)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, subprocess.SubprocessError):
        return image
    return found if found.startswith(b"\x7fELF") else image


def _unpacked(data: bytes) -> bytes:
    if data.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(data)
    if data.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstd(data)
    return data


def _zstd(data: bytes) -> bytes:
    program = system_program("zstd")
    if program is None:
        raise UnusableKernel("its parts are compressed with zstd: apt install zstd")
    argv = [program, "-dcq"]  # what follows the stream makes it fail after all was written
    return subprocess.run(argv, input=data, capture_output=True, timeout=_PATIENCE).stdout


def modules_of(kernel: Kernel) -> list[tuple[str, bytes]]:
    """The needed modules and what they need, in the order in which to load them.

    Raises UnusableKernel where one is missing, as in kernels for clouds.
    """
    files = _files(kernel.modules)
    built_in = _built_in(kernel.modules)
    found: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in found or name in built_in:
            return
        path = files.get(name)
        if path is None:
            raise UnusableKernel(f"it has no module {name}")
        with open(path, "rb") as file:
            data = _unpacked(file.read())
        depends = _DEPENDS.search(data)
        for other in (depends[1].decode("ascii") if depends else "").split(","):
            if other:
                add(_plain(other))
        found[name] = data

    for name in NEEDED:
        add(name)
    return [(f"{name}.ko", data) for name, data in found.items()]


def _files(folder: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in ("kernel", "updates"):
        for where, _, names in os.walk(os.path.join(folder, base)):
            for name in names:
                if name.endswith(_ENDINGS):
                    found[_plain(name.partition(".ko")[0])] = os.path.join(where, name)
    return found


def _built_in(folder: str) -> set[str]:
    try:
        with open(os.path.join(folder, "modules.builtin"), encoding="utf-8") as file:
            return {_plain(os.path.basename(line).partition(".ko")[0]) for line in file}
    except OSError:
        return set()


def _plain(name: str) -> str:
    return name.strip().replace("-", "_")
