"""What a machine is made of: found, made, missing, and whether KVM is used."""

from __future__ import annotations

import json
import lzma
import os
import struct
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from toolrest.config.schema.security import VmSettings
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.vm import initramfs, kernel, prepare, probe
from toolrest.sandbox.vm.engine import VmEngine
from toolrest.sandbox.vm.initramfs import Place
from toolrest.sandbox.vm.kernel import Kernel, UnusableKernel
from toolrest.sandbox.vm.machine import MachineFailed, MachineGivenUp
from toolrest.sandbox.vm.options import VmOptions
from toolrest.sandbox.vm.prepare import Prepared


def module(folder: Path, name: str, depends: str = "", packed: bool = False) -> None:
    data = b"\x7fELF" + name.encode() + b"\0depends=" + depends.encode() + b"\0"
    folder.mkdir(parents=True, exist_ok=True)
    if packed:
        (folder / f"{name}.ko.xz").write_bytes(lzma.compress(data))
    else:
        (folder / f"{name}.ko").write_bytes(data)


def modules(base: Path) -> Path:
    folder = base / "6.1.0"
    drivers = folder / "kernel" / "drivers"
    module(drivers, "virtio-pci", "virtio_ring,virtio")
    module(drivers, "virtio_ring", "virtio", packed=True)
    module(drivers, "virtio")
    module(folder / "kernel" / "fs", "9p", "9pnet")
    module(folder / "kernel" / "net", "9pnet")
    module(folder / "kernel" / "net", "9pnet_virtio", "9pnet,virtio_ring")
    (folder / "modules.builtin").write_text("kernel/drivers/char/virtio_console.ko\n")
    return folder


def test_modules_come_after_what_they_need(tmp_path: Path) -> None:
    found = kernel.modules_of(Kernel("/boot/vmlinuz", str(modules(tmp_path))))
    names = [name for name, _ in found]
    assert sorted(names) == [
        "9p.ko", "9pnet.ko", "9pnet_virtio.ko", "virtio.ko", "virtio_pci.ko", "virtio_ring.ko",
    ]  # fmt: skip
    assert names.index("virtio.ko") < names.index("virtio_ring.ko") < names.index("virtio_pci.ko")
    assert names.index("9pnet.ko") < names.index("9p.ko")
    assert dict(found)["virtio_ring.ko"].startswith(b"\x7fELF")


def test_a_kernel_without_9p_is_not_used(tmp_path: Path) -> None:
    folder = modules(tmp_path)
    (folder / "kernel" / "fs" / "9p.ko").unlink()
    with pytest.raises(UnusableKernel, match="no module 9p"):
        kernel.modules_of(Kernel("/boot/vmlinuz", str(folder)))


def image(inner: bytes, release: str = "6.1.0-9-amd64") -> bytes:
    """A kernel as in /boot."""
    packed = lzma.compress(inner)
    head = bytearray(2048)
    head[0x1F1] = 3
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x20E, 0x300)
    version = f"{release} (me)".encode()
    head[0x500 : 0x500 + len(version)] = version
    struct.pack_into("<II", head, 0x248, 0, len(packed))
    return bytes(head) + packed


def test_a_kernel_is_taken_apart() -> None:
    inner = b"\x7fELF the kernel itself"
    assert kernel.decompressed(image(inner)) == inner
    assert kernel.release_of(image(inner)) == "6.1.0-9-amd64"
    assert kernel.decompressed(image(b"something else")) == image(b"something else")
    assert kernel.decompressed(inner) == inner


def test_the_running_kernel_comes_first_then_the_newest(tmp_path: Path) -> None:
    running = os.uname().release
    for release in ("5.9.1", "5.10.2", running):
        (tmp_path / "modules" / release).mkdir(parents=True)
        (tmp_path / f"vmlinuz-{release}").touch()
    found = kernel.installed(str(tmp_path), str(tmp_path / "modules"))
    assert [each.release for each in found] == [running, "5.10.2", "5.9.1"]


@pytest.mark.needs("qemu")
def test_an_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    base = initramfs.base(b"busybox", [("a.ko", b"a" * 5), ("b.ko", b"")])
    (tmp_path / "out").mkdir()
    subprocess.run(["busybox", "cpio", "-i"], input=base, cwd=tmp_path / "out", check=True)
    assert (tmp_path / "out" / "modules" / "order").read_text() == "a.ko\nb.ko\n"
    assert (tmp_path / "out" / "modules" / "a.ko").read_bytes() == b"aaaaa"
    assert os.access(tmp_path / "out" / "bin" / "busybox", os.X_OK)


def test_a_path_with_a_line_end_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="line end"):
        initramfs.session([Place("bind", "/a\nempty /")], "/p", "/q", "{}", "host")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(prepare, "find_program", lambda *_: None)
    with pytest.raises(SandboxUnavailable, match="apt install qemu-system-x86, then `toolrest vm"):
        prepare.prepare(str(tmp_path), VmSettings(), print)
    monkeypatch.setattr(prepare, "find_program", lambda *_: "/bin/sh")
    monkeypatch.setattr(prepare, "_is_dynamic", lambda _: True)
    with pytest.raises(SandboxUnavailable, match="apt install busybox-static"):
        prepare.prepare(str(tmp_path), VmSettings(), print)
    monkeypatch.setattr(prepare, "_busybox", lambda: "/bin/sh")
    wanted = VmSettings(kernel=str(tmp_path / "none"), modules=str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="apt install linux-image-amd64"):
        prepare.prepare(str(tmp_path / "vm"), wanted, print)
    assert not (tmp_path / "vm").exists()


def test_programs_are_those_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("zstd", "apt-cache"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/planted\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("toolrest.sandbox.programs.SYSTEM_FOLDERS", (str(tmp_path / "none"),))
    with pytest.raises(UnusableKernel, match="apt install zstd"):
        kernel._zstd(b"")
    with pytest.raises(UnusableKernel, match="not installed"):
        prepare._output(("apt-cache", "depends"), str(tmp_path))
    assert not (tmp_path / "planted").exists()


def test_another_kernel_than_the_settings_ask_for_is_not_booted(tmp_path: Path) -> None:
    (tmp_path / "vmlinuz").write_bytes(image(b"\x7fELF"))
    settings = VmSettings(kernel=str(tmp_path / "vmlinuz"), modules=str(modules(tmp_path)))
    folder = tmp_path / "vm"
    with pytest.raises(SandboxUnavailable, match="toolrest vm prepare"):
        prepare.load(str(folder), settings)
    folder.mkdir()
    for name, text in {
        "kernel": "", "initramfs": "",
        "prepared.json": '{"folder": "", "kernel": "/boot/k", "modules": "/m", "release": "6"}',
    }.items():  # fmt: skip
        (folder / name).write_text(text)
    assert prepare.load(str(folder), VmSettings()).kernel_file == str(folder / "kernel")
    with pytest.raises(SandboxUnavailable, match=r"sandbox\.vm\.kernel .* another one"):
        prepare.load(str(folder), settings)


def test_the_settings_may_name_a_kernel_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prepared.json").write_text(
        json.dumps(
            {
                "folder": "",
                "kernel": str(tmp_path.resolve() / "k"),
                "modules": str(tmp_path.resolve() / "m"),
                "release": "6",
            }
        )
    )
    for name in ("kernel", "initramfs"):
        (tmp_path / name).touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = VmSettings(kernel="~/k", modules="~/m")
    assert prepare.load(str(tmp_path), settings).kernel == str(tmp_path.resolve() / "k")


class Booting:
    """An engine whose machine boots with some accelerators only."""

    def __init__(self, *works: str) -> None:
        self.accelerator = "tcg"
        self.works = works
        self.boots: list[str] = []

    def boot(self, seconds: float | None = None) -> float:
        self.boots.append(self.accelerator)
        if self.accelerator not in self.works:
            raise MachineFailed("it did not answer in 15 s")
        return 1.0


@pytest.mark.parametrize(
    ("works", "first", "later"),
    [(("kvm", "tcg"), ["kvm", "kvm"], ["kvm"]), (("tcg",), ["kvm", "tcg"], ["tcg"])],
    ids=["kvm works", "kvm hangs"],
)
def test_kvm_is_used_once_a_machine_has_booted_with_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    works: tuple[str, ...],
    first: list[str],
    later: list[str],
) -> None:
    monkeypatch.setattr(probe, "KVM_DEVICE", str(tmp_path))
    options, prepared = VmOptions(str(tmp_path)), Prepared(str(tmp_path), "", "", "6.1")
    for wanted in (first, later):
        engine = Booting(*works)
        note = probe._boot(cast(VmEngine, cast(Any, engine)), options, prepared)
        assert engine.boots == wanted
        assert ("did not answer" in note) == ("kvm" not in works)
    another = Prepared(str(tmp_path), "", "", "6.2")
    engine = Booting(*works)
    probe._boot(cast(VmEngine, cast(Any, engine)), options, another)
    assert engine.boots == first


class Closing(Booting):
    """An engine whose session is closed while its machine boots."""

    def boot(self, seconds: float | None = None) -> float:
        raise MachineGivenUp("the session was closed while it booted")


def test_a_session_that_is_closed_during_the_boot_says_nothing_about_kvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "KVM_DEVICE", str(tmp_path))
    options, prepared = VmOptions(str(tmp_path)), Prepared(str(tmp_path), "", "", "6.1")
    closing, later = Closing("kvm"), Booting("kvm")
    with pytest.raises(MachineGivenUp):
        probe._boot(cast(VmEngine, cast(Any, closing)), options, prepared)
    assert probe._boot(cast(VmEngine, cast(Any, later)), options, prepared) == ""
    assert later.boots == ["kvm", "kvm"]
