"""The reason why bubblewrap does not work on this machine, and the one remedy for it.

Everything is read from files of the system, below `root`; nothing is changed or run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from msgspec import Struct

_RESTRICTED = "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_PROFILE = "bwrap-userns-restrict"
_FIRST_WITH_PROFILE = (25, 4)
"""The Ubuntu that ships and loads the profile of bubblewrap."""
_SWITCHES = (
    ("proc/sys/kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone=1"),
    ("proc/sys/user/max_user_namespaces", "user.max_user_namespaces=15000"),
)
_FILTERED = re.compile(r"^Seccomp:\s*2$", re.MULTILINE)
_VERSION = re.compile(r'^VERSION_ID="?(\d+)\.(\d+)"?$', re.MULTILINE)


class Remedy(Struct, frozen=True):
    """Why bubblewrap does not work, and what helps: commands for a shell, or words."""

    why: str
    do: str


def remedy_for(problems: Sequence[str], root: str = "/") -> Remedy:
    """The remedy on this system; `problems` are what the bubblewraps said, none if there is none.

    The causes are in the order in which they hide each other.
    """
    system = _System(root)
    found = system.kernel() or system.container(problems) or system.apparmor() or system.switch()
    if found is not None:
        return found
    if not problems:
        return Remedy("bubblewrap is not installed", "sudo apt install bubblewrap")
    return Remedy(
        f"bubblewrap does not work here ({problems[0]})",
        "see what `toolrest doctor -v` prints about it",
    )


class _System:
    """What the system's own files say."""

    def __init__(self, root: str) -> None:
        self._root = root

    def _read(self, path: str) -> str:
        try:
            with open(os.path.join(self._root, path), encoding="utf-8", errors="replace") as file:
                return file.read(8192).strip()
        except OSError:
            return ""

    def _has(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self._root, path))

    def kernel(self) -> Remedy | None:
        """A kernel that has no namespaces at all."""
        version = self._read("proc/version").lower()
        if "microsoft" in version and "wsl2" not in version:
            return Remedy("WSL 1 has no namespaces", "wsl --set-version DISTRIBUTION 2")
        if not self._has("proc/self/ns/user"):
            why = "this kernel has no user namespaces"
            return Remedy(why, "use a kernel that is built with CONFIG_USER_NS")
        return None

    def container(self, problems: Sequence[str]) -> Remedy | None:
        """A container, whose engine keeps namespaces or mounts from what runs in it."""
        podman, docker = self._has("run/.containerenv"), self._has(".dockerenv")
        filtered = bool(_FILTERED.search(self._read("proc/self/status")))
        if not (podman or docker or filtered):
            return None
        refused = filtered and (not podman or any("namespace" in text for text in problems))
        confined = self._read("proc/self/attr/current") not in ("", "unconfined")
        options = [
            *(["seccomp=unconfined"] if refused else []),
            *(["apparmor=unconfined"] if confined else []),
            "unmask=ALL" if podman else "systempaths=unconfined",
        ]
        words = " ".join(f"--security-opt {option}" for option in options)
        engine = "podman" if podman else "docker"
        # A filter alone may be a service's or another sandbox's.
        who = "this container" if podman or docker else "a seccomp filter, as of a container,"
        why = f"{who} allows no {'namespaces' if refused else 'new /proc'}"
        return Remedy(why, f"start it with: {engine} run {words} …")

    def apparmor(self) -> Remedy | None:
        """AppArmor, which keeps user namespaces for programs that have a profile."""
        if self._read(_RESTRICTED) != "1":
            return None
        why = "AppArmor lets no program make user namespaces that has no profile for it"
        release = self._read("etc/os-release")
        version = _VERSION.search(release)
        ubuntu = re.search(r"^ID=ubuntu$", release, re.MULTILINE) is not None
        is_late = version is not None and tuple(map(int, version.groups())) >= _FIRST_WITH_PROFILE
        if ubuntu and is_late:
            if not self._has("usr/bin/bwrap"):
                return Remedy(why, "sudo apt install bubblewrap")
            return Remedy(why, f"sudo apparmor_parser -r /etc/apparmor.d/{_PROFILE}")
        return Remedy(
            why,
            "sudo apt install bubblewrap apparmor-profiles"
            f" && sudo cp /usr/share/apparmor/extra-profiles/{_PROFILE} /etc/apparmor.d/"
            f" && sudo apparmor_parser -r /etc/apparmor.d/{_PROFILE}",
        )

    def switch(self) -> Remedy | None:
        """A switch of the kernel's that leaves user namespaces to root, or to nobody."""
        for path, setting in _SWITCHES:
            if self._read(path) == "0":
                return Remedy(
                    "user namespaces are switched off, so bubblewrap would have to be setuid root",
                    f"echo {setting} | sudo tee /etc/sysctl.d/60-bubblewrap.conf"
                    " && sudo sysctl --system",
                )
        return None
