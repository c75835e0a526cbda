"""The one remedy for the reason why bubblewrap fails, found in a system's own files.

Few of these systems can exist here: their files stand in a folder, as the kernel and the
distributions write them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from toolrest.sandbox.remedy import remedy_for

RESTRICTED = {"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}
NO_NAMESPACE = "bwrap: No permissions to creating new namespace, likely because the kernel does not"
NO_PROC = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"
RECIPE = (
    "sudo apt install bubblewrap apparmor-profiles"
    " && sudo cp /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/"
    " && sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict"
)
DOCKER = "start it with: docker run --security-opt "
PODMAN = "start it with: podman run --security-opt "


def ubuntu(version: str) -> dict[str, str]:
    return {"etc/os-release": f'NAME="Ubuntu"\nVERSION_ID="{version}"\nID=ubuntu\nID_LIKE=debian\n'}


SYSTEMS: dict[str, tuple[dict[str, str], str, str]] = {
    "Ubuntu 24.04": (RESTRICTED | ubuntu("24.04"), NO_NAMESPACE, RECIPE),
    "Ubuntu 24.10": (RESTRICTED | ubuntu("24.10"), NO_NAMESPACE, RECIPE),
    "Ubuntu 25.04": (RESTRICTED | ubuntu("25.04"), NO_NAMESPACE, "sudo apt install bubblewrap"),
    "Ubuntu 26.04, its profile not loaded": (
        {**RESTRICTED, **ubuntu("26.04"), "usr/bin/bwrap": ""},
        NO_NAMESPACE,
        "sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict",
    ),
    "docker": (
        {".dockerenv": "", "proc/self/status": "Name:\tpython\nSeccomp:\t2\nSeccomp_filters:\t1\n"},
        NO_NAMESPACE,
        f"{DOCKER}seccomp=unconfined --security-opt systempaths=unconfined …",
    ),
    "docker on a machine with AppArmor's restriction": (
        {
            **RESTRICTED,
            **ubuntu("24.04"),
            ".dockerenv": "",
            "proc/self/status": "Seccomp:\t2\n",
            "proc/self/attr/current": "docker-default (enforce)\n",
        },
        NO_NAMESPACE,
        f"{DOCKER}seccomp=unconfined --security-opt apparmor=unconfined"
        " --security-opt systempaths=unconfined …",
    ),
    "podman, whose filter lets namespaces": (
        {"run/.containerenv": "", "proc/self/status": "Seccomp:\t2\n"},
        NO_PROC,
        f"{PODMAN}unmask=ALL …",
    ),
    "podman with docker's filter": (
        {"run/.containerenv": "", "proc/self/status": "Seccomp:\t2\n"},
        NO_NAMESPACE,
        f"{PODMAN}seccomp=unconfined --security-opt unmask=ALL …",
    ),
    "another container": (
        {"proc/self/status": "Seccomp:\t2\n"},
        NO_NAMESPACE,
        f"{DOCKER}seccomp=unconfined --security-opt systempaths=unconfined …",
    ),
    "Debian 10": (
        {"proc/sys/kernel/unprivileged_userns_clone": "0\n"},
        NO_NAMESPACE,
        "echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/60-bubblewrap.conf"
        " && sudo sysctl --system",
    ),
    "namespaces switched off": (
        {"proc/sys/user/max_user_namespaces": "0\n"},
        NO_NAMESPACE,
        "echo user.max_user_namespaces=15000 | sudo tee /etc/sysctl.d/60-bubblewrap.conf"
        " && sudo sysctl --system",
    ),
    "WSL 1": (
        {"proc/version": "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)"},
        NO_NAMESPACE,
        "wsl --set-version DISTRIBUTION 2",
    ),
    "WSL 2, restricted": (
        {
            **RESTRICTED,
            **ubuntu("24.04"),
            "proc/version": "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@f9c826d3017f)",
        },
        NO_NAMESPACE,
        RECIPE,
    ),
    "nothing in the way but bubblewrap": ({}, "", "sudo apt install bubblewrap"),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_system_has_one_remedy(tmp_path: Path, system: str) -> None:
    """Failed before: Ubuntu 24.04 was told `apt install bubblewrap`, which does not help there."""
    files, problem, remedy = SYSTEMS[system]
    for name, text in {"proc/self/ns/user": "", **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = remedy_for([problem] if problem else [], str(tmp_path))
    assert found.do == remedy
    assert found.why
    assert "danger-full-access" not in found.do


def test_a_kernel_without_namespaces(tmp_path: Path) -> None:
    found = remedy_for([NO_NAMESPACE], str(tmp_path))
    assert found.why == "this kernel has no user namespaces"
    assert "CONFIG_USER_NS" in found.do


def test_what_nobody_has_seen_before_is_shown(tmp_path: Path) -> None:
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/user").touch()
    found = remedy_for(["bwrap: the moon is full"], str(tmp_path))
    assert "the moon is full" in found.why
    assert "toolrest doctor -v" in found.do
