"""The kinds of sandbox that this machine has, and the settings that choose each.

A kind is a row of `KINDS`: its name and a function that returns the settings, or raises `Missing`
with what to install. The conformance suite and `bench/kinds.py` run over all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from toolrest.sandbox.confine import Backend

Settings = dict[str, Any]
CACHE = Path("/var/cache/toolrest-test")
IMAGE = "localhost/toolrest-kinds"


class Missing(Exception):
    """This machine does not have the kind; the message says what to install."""


def _bubblewrap() -> Settings:
    from tests.machine import REASONS, lacking

    if lacking()["namespaces"]:
        raise Missing(REASONS["namespaces"])
    return {}


def _landlock() -> Settings:
    """Chosen by the tests, since settings name no such thing: see `backend_of`."""
    from tests.machine import REASONS, lacking

    if lacking()["landlock"]:
        raise Missing(REASONS["landlock"])
    return {}


def _chroot() -> Settings:
    _bubblewrap()
    return {"sandbox_policy": "chroot", "sandbox": {"rootfs": str(rootfs())}}


def _docker() -> Settings:
    return {"sandbox_policy": "docker", "sandbox": {"image": IMAGE, **engine()}}


def _gvisor() -> Settings:
    _bubblewrap()
    _program("runsc")
    return {"sandbox_policy": "gvisor"}


def _vm() -> Settings:
    from tests.machine import REASONS, lacking

    _bubblewrap()
    if lacking()["qemu"]:
        raise Missing(REASONS["qemu"])
    machine()
    return {"sandbox_policy": "vm"}


KINDS: dict[str, Callable[[], Settings]] = {
    "bubblewrap": _bubblewrap,
    "landlock": _landlock,
    "chroot": _chroot,
    "docker": _docker,
    "gvisor": _gvisor,
    "vm": _vm,
}
CHEAP = ("bubblewrap", "landlock")
"""Kinds that need no package: `make test` runs them, `make test-system` all."""
FORCED: dict[str, Backend] = {"landlock": "landlock", "bubblewrap": "bubblewrap"}
"""Kinds that settings do not name, as a backend of the runner."""


def _program(name: str, package: str | None = None) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"no {name} here: apt install {package or name}")
    return found


def furnish(kind: str, home: Path) -> None:
    """Give a home of Toolrest what a kind needs to have there."""
    if kind == "vm" and not (home / "vm").exists():
        shutil.copytree(machine(), home / "vm")


@cache
def machine() -> Path:
    """What `toolrest vm prepare` makes and finds out, made once and kept."""
    home = CACHE / "vm-home"
    if not (home / "vm" / "prepared.json").exists():
        argv = [sys.executable, "-m", "toolrest", "vm", "prepare"]
        env = {**os.environ, "TOOLREST_HOME": str(home)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
        if done.returncode:
            raise Missing(done.stderr)
    return home / "vm"


@cache
def rootfs() -> Path:
    """A small Debian with Python and git, made once and kept."""
    made = CACHE / "rootfs"
    if not made.exists():
        debootstrap = _program("debootstrap")
        if os.geteuid() != 0:
            raise Missing("a root file system can only be made by root")
        shown = "$(REPO_URI) $(CODENAME)"
        ask = ["apt-get", "indextargets", "--format", shown, "Created-By: Packages"]
        said = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()
        CACHE.mkdir(parents=True, exist_ok=True)
        draft = CACHE / f"draft-{os.getpid()}"
        argv = [debootstrap, "--variant=minbase", "--include=python3,git"]
        done = subprocess.run([*argv, said[1], str(draft), said[0]], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(draft, ignore_errors=True)
            raise Missing(f"debootstrap failed: {done.stdout[-300:]}")
        draft.rename(made)
    return made


@cache
def engine() -> Settings:
    """The container engine with an image of that Debian, which is imported once."""
    podman = _program("podman")
    # Where version 1 and 2 control groups are mixed, crun does not work; root without the
    # right to raise limits cannot give a container podman's.
    mixed = os.path.isdir("/sys/fs/cgroup/unified")
    args = ["--cgroup-manager=cgroupfs", "--runtime", "runc"] if mixed else []
    run = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"] if mixed else []
    if subprocess.run([podman, *args, "image", "exists", IMAGE]).returncode:
        tar = ["tar", "-C", str(rootfs()), "--exclude=./var/cache/apt/*", "-c", "."]
        with subprocess.Popen(tar, stdout=subprocess.PIPE) as packed:
            done = subprocess.run(
                [podman, *args, "import", "-", IMAGE],
                stdin=packed.stdout,
                capture_output=True,
                text=True,
            )
        if done.returncode:
            raise Missing(f"podman cannot import an image here: {done.stderr[-200:]}")
    return {"engine": podman, "engine_args": args, "run_args": run}


def main() -> None:
    """Make what the kinds need, which takes minutes the first time; say what is missing."""
    for name, settings in KINDS.items():
        try:
            settings()
        except Missing as error:
            sys.stdout.write(f"{name}: not here: {error}\n")


if __name__ == "__main__":
    main()
