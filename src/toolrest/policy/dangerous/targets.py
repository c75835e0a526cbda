"""The dangerous list: commands that destroy, lock out or leak beyond what an undo can mend.

Advice, not the boundary: a command can be hidden from this list, and then the sandbox holds.
Rule ids that Memo Code's guard also has are spelled as there.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from toolrest.policy.paths.names import inside
from toolrest.policy.shell.place import WorkingDirs
from toolrest.policy.shell.script import GLOB, TILDE
from toolrest.policy.shell.words import wordset


class Danger(NamedTuple):
    """A rule of the dangerous list, and what it saw."""

    rule: str
    why: str


_BLOCK_DEVICE = re.compile(
    r"/dev/(?:sd[a-z]+\d*|vd[a-z]+\d*|xvd[a-z]+\d*|hd[a-z]+\d*|nvme\d+n\d+(?:p\d+)?"
    r"|mmcblk\d+(?:p\d+)?|r?disk\d+(?:s\d+)?|dm-\d+|md\d+|loop\d+|mapper/.+|disk/.+)"
)
_HARMLESS_DEVICE = re.compile(
    r"/dev/(?:null|zero|full|stdin|stdout|stderr|tty|ptmx|random|urandom|(?:fd|pts|shm|mqueue)/.*"
    r"|(?:tcp|udp)/.*)"
)
_KERNEL = re.compile(r"/(?:proc/(?!self/fd/)|sys/).+")
_SYSTEM = ("/etc", "/boot", "/bin", "/sbin", "/usr", "/lib", "/lib64", "/System", "/Library")
_STARTUP = re.compile(
    r"\.(?:bashrc|bash_profile|bash_login|bash_logout|profile|zshrc|zshenv|zprofile|zlogin|xinitrc"
    r"|gitconfig|pam_environment|ssh/.*|config/(?:autostart|systemd|fish|git)/.*|local/bin/.*)"
    r"|Library/LaunchAgents/.*"
)
_GLOB_TAIL = re.compile(r"(?:/+(?:\*+|\.\*|\.|\{\.?\*,\.?\*\}))*/*\Z")
_HOME = re.compile(r"\$(?:HOME\b|\{HOME[^}]*\})(?=/|\Z)", re.IGNORECASE)
_PWD = re.compile(r"\$(?:(?:OLD)?PWD\b|\{(?:OLD)?PWD[^}]*\})(?=/|\Z)")
_USER_HOME = re.compile(r"~[A-Za-z0-9_.-]+\Z")


def is_block_device(path: str) -> bool:
    """True for the name of a whole disk, a partition or a mapped volume."""
    return _BLOCK_DEVICE.fullmatch(path) is not None


def dangerous_write(path: str, place: WorkingDirs) -> Danger | None:
    """Writing to a disk, to the kernel, to the system or to what runs at the next login."""
    if is_block_device(path):
        return Danger("redirect_block_device", f"writes to the device {path}")
    if path.startswith("/dev/"):
        if _HARMLESS_DEVICE.fullmatch(path):
            return None
        return Danger("write_device", f"writes to the device {path}")
    if _KERNEL.fullmatch(path):
        return Danger("write_kernel", f"writes to the kernel through {path}")
    if place.writable(path):
        return None
    if any(inside(path, folder) for folder in _SYSTEM) or inside(path, "/var/spool/cron"):
        return Danger("write_system_file", f"writes to the system file {path}")
    at_home = place.home and inside(path, place.home)
    if at_home and _STARTUP.fullmatch(path[len(place.home) :].lstrip("/")):
        return Danger("write_startup_file", f"writes to {path}, which others run or trust")
    return None


_CROWDED = wordset("home users usr var etc boot lib dev proc sys system library mnt media root opt")
"""Folders of the root whose own entries are as precious as they are."""


def critical_system(text: str, mark: int, place: WorkingDirs) -> str | None:
    """The folder that nothing may be done to as a whole, if the word names one."""
    for path in _targets(text, mark, place):
        if _is_system(path.lower(), place):
            return path
    return None


def critical_target(text: str, mark: int, place: WorkingDirs) -> str | None:
    """As `critical_system`, and the workspace itself, what surrounds it, and `.git`."""
    for path in _targets(text, mark, place):
        if _is_system(path.lower(), place) or path.endswith("/.git"):
            return path
        if any(inside(kept, path) for kept in (place.start, *place.roots)):
            return path
    return None


def _is_system(path: str, place: WorkingDirs) -> bool:
    depth = path.count("/")
    if depth <= 1 or (place.home and inside(place.home.lower(), path)):
        return True
    return depth == 2 and path.split("/")[1] in _CROWDED


def _targets(text: str, mark: int, place: WorkingDirs) -> tuple[str, ...]:
    """The folders that a word may mean, globs at its end and common variables followed."""
    if _USER_HOME.fullmatch(text.rstrip("/*")) and mark & TILDE:
        return ("/home/" + text.rstrip("/*")[1:],)
    whole = text in ("*", ".*", "**", "{*,.*}")
    text = "." if whole else _GLOB_TAIL.sub("", text) or ("/" if text.startswith("/") else text)
    if place.home:
        text = _HOME.sub(lambda _: place.home, text, count=1)
        if mark & TILDE and (text == "~" or text.startswith("~/")):
            text = place.home + text[1:]
    text = _PWD.sub(".", text, count=1)
    if mark & GLOB and re.fullmatch(r"/[^/]*[*?\[][^/]*", text):
        return ("/",)
    return place.paths(text)
