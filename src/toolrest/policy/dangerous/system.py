"""Dangerous things that are done to the machine: disks, power, processes, accounts, containers."""

from __future__ import annotations

import re
from collections.abc import Callable

from toolrest.policy.commands.options import read_options
from toolrest.policy.dangerous.targets import Danger, critical_system, is_block_device
from toolrest.policy.shell.place import WorkingDirs
from toolrest.policy.shell.script import FROM_SHELL, Simple
from toolrest.policy.shell.words import wordset

Check = Callable[[Simple, WorkingDirs], Danger | None]

_HELP = wordset("--help --version -V -h")


def _mkfs(simple: Simple, place: WorkingDirs) -> Danger | None:
    if len(simple.argv) < 2 or (simple.literal and _HELP.issuperset(simple.argv[1:])):
        return None
    return Danger("mkfs_filesystem_create", f"{simple.argv[0]} makes a new, empty file system")


def _dd(simple: Simple, place: WorkingDirs) -> Danger | None:
    for index, word in enumerate(simple.argv):
        key, _, target = word.partition("=")
        if key != "of":
            continue
        mark = simple.mark(index)
        if mark & FROM_SHELL:
            return Danger("dd_write_block_device", f"dd writes to {target!r}, whatever that is")
        if any(map(is_block_device, place.paths(target))):
            return Danger("dd_write_block_device", f"dd overwrites the device {target}")
    return None


def _disk_tool(simple: Simple, place: WorkingDirs) -> Danger | None:
    for index in range(1, len(simple.argv)):
        word, mark = simple.argv[index], simple.mark(index)
        if mark & FROM_SHELL or (mark and word.startswith("/dev/")):
            return Danger(
                "disk_mutation_block_device", f"{simple.argv[0]} changes {word!r}, whatever it is"
            )
        if any(map(is_block_device, place.paths(word))):
            return Danger("disk_mutation_block_device", f"{simple.argv[0]} changes {word}")
    return None


def _power(simple: Simple, place: WorkingDirs) -> Danger | None:
    if simple.literal and simple.argv[1:] and _HELP.issuperset(simple.argv[1:]):
        return None
    return Danger("power_off", f"{simple.argv[0]} stops the machine")


def _init(simple: Simple, place: WorkingDirs) -> Danger | None:
    if set(simple.argv[1:]) & set("0156sS"):
        return Danger("power_off", f"{simple.argv[0]} changes the run level")
    return None


_SYSTEMCTL = wordset("poweroff reboot halt kexec rescue emergency suspend hibernate isolate")


def _systemctl(simple: Simple, place: WorkingDirs) -> Danger | None:
    verbs = _SYSTEMCTL.intersection(simple.argv[1:])
    return Danger("power_off", f"systemctl {min(verbs)} stops the machine") if verbs else None


def _kill(simple: Simple, place: WorkingDirs) -> Danger | None:
    words = simple.argv[1:]
    if "-1" in words[1:] or words in (("-1",), ("--", "-1")):
        return Danger("kill_all", "kill -1 reaches every process of the user")
    if "1" in words and words[0] not in ("-0", "-s", "-l"):
        return Danger("kill_all", "it stops the machine's first process")
    return None


def _killall(simple: Simple, place: WorkingDirs) -> Danger | None:
    if simple.argv[0].endswith("killall5"):
        return Danger("kill_all", "killall5 reaches every process")
    options = read_options(simple.argv, "ugGPstU")
    patterns = [simple.argv[index] for index in options.operands]
    if options.has("u", "U", "--user", "--euid") and not patterns:
        return Danger("kill_all", f"{simple.argv[0]} reaches every process of a user")
    if any(pattern in (".", ".*", "") for pattern in patterns):
        return Danger("kill_all", f"{simple.argv[0]} reaches every process")
    return None


def _crontab(simple: Simple, place: WorkingDirs) -> Danger | None:
    if read_options(simple.argv, "u").has("r"):
        return Danger("crontab_remove", "crontab -r removes every scheduled job")
    return None


def _iptables(simple: Simple, place: WorkingDirs) -> Danger | None:
    options = read_options(simple.argv, "tPDAIRjpsdio")
    if options.has("F", "X", "Z", "--flush", "--delete-chain", "P", "--policy"):
        return Danger("firewall_flush", f"{simple.argv[0]} opens or closes the whole firewall")
    return None


_FIREWALL = {
    "nft": wordset("flush delete destroy"),
    "ufw": wordset("disable reset"),
    "pfctl": wordset("-d -F"),
    "setenforce": wordset("0 Permissive permissive"),
}


def _firewall(simple: Simple, place: WorkingDirs) -> Danger | None:
    hit = _FIREWALL[simple.argv[0].rpartition("/")[2].lower()].intersection(simple.argv[1:])
    return Danger("firewall_flush", "it switches the machine's protection off") if hit else None


_CONTAINER_WIDE = re.compile(
    r"--privileged(?:=true)?|--(?:pid|ipc|uts|userns|cgroupns)=host|--device(?:=.*)?"
    r"|--cap-add=(?:CAP_)?(?:ALL|SYS_\w+|NET_ADMIN|DAC_\w+)|--security-opt=?.*unconfined.*",
    re.IGNORECASE,
)
_SOURCE = re.compile(r"(?:^|,)(?:source|src)=([^,]*)")


def _container(simple: Simple, place: WorkingDirs) -> Danger | None:
    argv = simple.argv
    if not {"run", "create", "exec"}.intersection(argv[1:]):
        return None
    for index, word in enumerate(argv):
        following = argv[index + 1] if index + 1 < len(argv) else ""
        if _CONTAINER_WIDE.fullmatch(word) or _CONTAINER_WIDE.fullmatch(f"{word}={following}"):
            return Danger("container_escape", f"{argv[0]} {word} gives the container the machine")
        mount, mark = (
            _mounted(word, following),
            simple.mark(index) | simple.mark(min(index + 1, len(argv) - 1)),
        )
        if mount and (mount.endswith("docker.sock") or critical_system(mount, mark, place)):
            return Danger("container_escape", f"{argv[0]} hands {mount} to the container")
    return None


def _mounted(word: str, following: str) -> str:
    """The folder of the machine that `-v` or `--mount` names, if this word is one of them."""
    name, equals, value = word.partition("=")
    if name in ("-v", "--volume"):
        return (value if equals else following).partition(":")[0]
    if name == "--mount":
        match = _SOURCE.search(value if equals else following)
        return match[1] if match else ""
    if word.startswith("-v") and len(word) > 2 and not word.startswith("--"):
        return word[2:].partition(":")[0]
    return ""


def _account(simple: Simple, place: WorkingDirs) -> Danger | None:
    return Danger("account_change", f"{simple.argv[0]} changes who may log in")


def _kernel(simple: Simple, place: WorkingDirs) -> Danger | None:
    name = simple.argv[0].rpartition("/")[2].lower()
    words = simple.argv[1:]
    if name == "sysctl":
        changes = any("=" in word or word in ("-w", "-p", "--write", "--load") for word in words)
    elif name == "mount":
        changes = bool(read_options(simple.argv, "tO").operands) or "-a" in words
    else:
        changes = bool(words)
    if not changes:
        return None
    return Danger("kernel_change", f"{simple.argv[0]} changes the running system")


_REMOTE: dict[str, tuple[tuple[str, ...], ...]] = {
    "terraform": (("destroy",),),
    "tofu": (("destroy",),),
    "pulumi": (("destroy",),),
    "kubectl": (("delete",), ("drain",)),
    "helm": (("uninstall",), ("delete",)),
    "aws": (("s3", "rb"), ("s3", "rm"), ("ec2", "terminate-instances")),
    "gh": (("repo", "delete"),),
    "docker": (("system", "prune"), ("volume", "rm"), ("volume", "prune")),
    "npm": (("unpublish",),),
    "zfs": (("destroy",),),
    "zpool": (("destroy",),),
    "lvremove": ((),),
    "vgremove": ((),),
    "pvremove": ((),),
    "dropdb": ((),),
    "diskutil": (("eraseDisk",), ("eraseVolume",), ("partitionDisk",), ("secureErase",)),
    "cryptsetup": (("luksFormat",), ("erase",), ("luksErase",)),
    "nvme": (("format",), ("sanitize",)),
}  # fmt: skip


def _irreversible(simple: Simple, place: WorkingDirs) -> Danger | None:
    name = simple.argv[0].rpartition("/")[2].lower()
    words = tuple(word for word in simple.argv[1:] if not word.startswith("-"))
    for verbs in _REMOTE[name]:
        if words[: len(verbs)] == verbs:
            what = " ".join((name, *verbs))
            return Danger("irreversible", f"{what} destroys what no undo brings back")
    return None


def _both(first: Check, second: Check) -> Check:
    def check(simple: Simple, place: WorkingDirs) -> Danger | None:
        return first(simple, place) or second(simple, place)

    return check


SYSTEM_CHECKS: dict[str, Check] = {
    **dict.fromkeys(_REMOTE, _irreversible),
    **dict.fromkeys(wordset("mkfs mke2fs mkswap newfs mkntfs mkdosfs mkreiserfs"), _mkfs),
    "dd": _dd,
    **dict.fromkeys(
        wordset(
            "fdisk sfdisk cfdisk parted sgdisk gdisk wipefs blkdiscard shred hdparm badblocks"
            " mdadm partprobe tune2fs resize2fs e2fsck fsck"
        ),
        _disk_tool,
    ),
    **dict.fromkeys(wordset("shutdown reboot halt poweroff kexec"), _power),
    **dict.fromkeys(wordset("init telinit"), _init),
    "systemctl": _systemctl,
    "kill": _kill,
    **dict.fromkeys(wordset("killall pkill killall5"), _killall),
    "crontab": _crontab,
    **dict.fromkeys(wordset("iptables ip6tables ebtables arptables"), _iptables),
    **dict.fromkeys(_FIREWALL, _firewall),
    **dict.fromkeys(wordset("podman nerdctl"), _container),
    "docker": _both(_container, _irreversible),
    **dict.fromkeys(
        wordset(
            "useradd userdel usermod groupadd groupdel groupmod passwd chpasswd visudo vipw"
            " adduser deluser"
        ),
        _account,
    ),
    **dict.fromkeys(wordset("insmod rmmod modprobe sysctl mount umount swapoff"), _kernel),
}


def system_check(name: str) -> Check | None:
    """The check for a program of this (lower-case) name."""
    return _mkfs if name.startswith("mkfs.") else SYSTEM_CHECKS.get(name)
