"""Bubblewrap's argument list for a view, and what goes beside it.

Every namespace is new, all capabilities are gone, and bubblewrap itself starts with an empty
environment: the command's variables and all about the view are handed over through a descriptor,
since a variable like LD_PRELOAD would otherwise act on bubblewrap while it is still unconfined,
and an argument list can be read by every user of the machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

from msgspec import Struct

from toolrest.policy.paths.names import inside
from toolrest.private_files import make_private
from toolrest.process.command import Command, Linked, ViewCheck
from toolrest.process.helper import wire
from toolrest.sandbox.backends.chroot import base_arguments
from toolrest.sandbox.backends.launcher import ArgumentPipe, StartReport
from toolrest.sandbox.backends.view import TMP, Mount, Show
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.guard.placeholders import MountPoints
from toolrest.sandbox.policy import SandboxPolicy

_NAMESPACES = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--cap-drop",
    "ALL",
)
_DEVICES = ("--dev", "/dev", "--proc", "/proc")
_FOR_ROOT = ("--remount-ro", "/proc")
"""As root, /proc has writable files all over; bubblewrap's own covers leave /proc/sys open."""

_MINIMAL = ("/bin", "/sbin", "/usr", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix")
"""What every program needs to start, when only some folders are readable."""

_FIRST_FD = 3

Masks = tuple[tuple[str, str], ...]


class Joined(Struct, frozen=True):
    """What a command gets when it joins those that run: arguments for bubblewrap, placeholders to
    let go, links that stay where they are, masks, and what to check.
    """

    arguments: bytes
    held: list[MountPoints]
    links: Linked = ()
    masks: Masks = ()
    check: ViewCheck | None = None

    @property
    def waits(self) -> bool:
        """Whether the command waits in its sandbox for what is still to be done there."""
        return bool(self.masks) or self.check is not None


WAITS = (
    "/bin/sh",
    "-c",
    'echo >&9 && read -r _toolrest <&9 || exit 126; exec 9>&-; [ -z "$_toolrest" ] ||'
    ' { echo "$_toolrest" >&2; exit 126; }; exec "$@"'.replace("9", f"{wire.MASKS_FD}"),
    "sh",
)
"""Runs before a command for which masks are still to be made, or whose view is checked."""

_LOADED = ("LD_", "GLIBC_", "GCONV_", "LOCPATH", "NLSPATH", "BASH", "SHELLOPTS", "ENV=", "PS4=")
"""Variables that bring a shell code, which a command may have written: not before the masks."""


class Blanks(Struct, frozen=True):
    """Sources of masks: a folder and a file that cannot be opened, two empty folders.

    And files that can be read, for those that a project lacks.
    """

    folder: str
    file: str
    empty: str
    other: str
    files: str
    overlays: bool

    @classmethod
    def make(cls, registry: str, *, overlays: bool) -> Blanks:
        """Create them where all sessions find them; nothing is ever written to them."""
        base = os.path.join(registry, "blank")
        names = ("folder", "file", "empty", "other", "files")
        folder, file, empty, other, files = (os.path.join(base, name) for name in names)
        blanks = cls(folder, file, _system_empty() or empty, other, files, overlays)
        make_private(base)
        os.makedirs(blanks.folder, mode=0, exist_ok=True)
        for path in (empty, other):
            os.makedirs(path, mode=0o555, exist_ok=True)
        os.makedirs(files, mode=0o755, exist_ok=True)
        for path, mode, text in (
            (file, 0, b""),
            (blanks.instead_of(".mcp.json"), 0o644, b'{"mcpServers": {}}\n'),
            (blanks.instead_of(".envrc"), 0o644, b""),
        ):
            if not os.path.exists(path):
                with contextlib.suppress(FileExistsError):
                    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
                    os.write(fd, text)
                    os.close(fd)
        return blanks

    def instead_of(self, name: str) -> str:
        """The file that commands find under a name that a project lacks."""
        return os.path.join(self.files, name)


def _system_empty() -> str | None:
    """An empty folder among the programs: no overlaid folder holds it, whatever is overlaid."""
    for path in (
        "/usr/share/empty",
        "/usr/local/games",
        "/usr/local/src",
        "/usr/games",
        "/usr/src",
    ):
        try:
            if os.path.realpath(path) == path and not os.listdir(path):
                return path
        except OSError:
            continue
    return None


def claim_mount_points(tmp: str, paths: Iterable[str]) -> None:
    """Make mount points in the private `/tmp` before any command could put a link there."""
    for path in paths:
        if os.path.dirname(path) != TMP:
            continue
        own = os.path.join(tmp, os.path.basename(path))
        if not os.path.lexists(own) and (os.path.isdir(path) or not os.path.exists(path)):
            os.mkdir(own, 0o755)
        if os.path.islink(own):
            raise SandboxUnavailable(f"sandbox: {own} is a link; remove it")


def namespaces(policy: SandboxPolicy) -> tuple[str, ...]:
    """The part of the argument list that is the same for every command."""
    return _NAMESPACES if policy.network == "on" else (*_NAMESPACES, "--unshare-net")


def view_arguments(
    policy: SandboxPolicy, mounts: Sequence[Mount], blanks: Blanks, rootfs: str | None = None
) -> tuple[str, ...]:
    """The part of the argument list that makes the view."""
    arguments: list[str] = []
    if rootfs is None:
        arguments += _base(policy, mounts)
    else:
        arguments += base_arguments(rootfs, [mount.path for mount in mounts])
    arguments += _DEVICES
    if os.geteuid() == 0:
        arguments += _FOR_ROOT
    closing: list[str] = []
    paths = [mount.path for mount in mounts]
    for index, mount in enumerate(mounts):
        if mount.path == "/":
            continue
        inner = index + 1 < len(paths) and inside(paths[index + 1], mount.path)
        arguments += _mount(mount, blanks, inner)
        if _is_open(mount, blanks, inner):
            closing += ("--remount-ro", mount.path)
    if policy.read_roots is not None or rootfs is not None:
        closing += ("--remount-ro", "/")
    return (*arguments, *closing)


def _is_open(mount: Mount, blanks: Blanks, inner: bool) -> bool:
    """Whether a mount is made writable for the mounts inside it, and closed at the end."""
    if mount.show == Show.OVERLAY:
        return inside(blanks.empty, mount.path)
    return mount.show == Show.PARENT_OF_MOUNT or (mount.show == Show.HIDE and inner)


def _base(policy: SandboxPolicy, mounts: Sequence[Mount]) -> Iterable[str]:
    if "/" in policy.roots:
        (whole,) = (mount for mount in mounts if mount.path == "/")
        return ("--bind", whole.source or "/", "/")
    if policy.read_roots is None:
        return ("--ro-bind", "/", "/")
    arguments = ["--tmpfs", "/"]
    for path in sorted({*_MINIMAL, *policy.read_roots, policy.workspace}):
        if os.path.exists(path):
            arguments += ("--ro-bind", path, path)
    return arguments


def _mount(mount: Mount, blanks: Blanks, inner: bool) -> Sequence[str]:
    path = mount.path
    match mount.show:
        case Show.ROOT | Show.WRITE:
            return ("--bind", mount.source or path, path)
        case Show.READ:
            return ("--ro-bind", mount.source or path, path)
        case Show.PRIVATE:
            return ("--bind", mount.source, path)
        case Show.LINK:
            return ("--symlink", mount.source, path)
        case Show.OVERLAY:
            return _overlay(path, blanks)
        case Show.SCRATCH | Show.PARENT_OF_MOUNT:
            return ("--perms", "0755", "--tmpfs", path)
        case Show.EMPTY_READ_ONLY if mount.folder:
            return _blank(blanks.other, path, blanks)
        case Show.EMPTY_READ_ONLY:
            return ("--ro-bind", blanks.instead_of(os.path.basename(path)), path)
    return _hidden(mount, blanks, inner)


def _overlay(path: str, blanks: Blanks) -> Sequence[str]:
    if inside(blanks.empty, path):  # layers must not lie in each other
        return ("--overlay-src", path, "--tmp-overlay", path)
    return ("--overlay-src", blanks.empty, "--overlay-src", path, "--ro-overlay", path)


def _hidden(mount: Mount, blanks: Blanks, inner: bool) -> Sequence[str]:
    if inner:
        return ("--perms", "0111", "--tmpfs", mount.path)
    if mount.folder:
        return _blank(blanks.folder, mount.path, blanks)
    return ("--ro-bind", blanks.file, mount.path)


def _blank(source: str, path: str, blanks: Blanks) -> Sequence[str]:
    """An empty folder with the source's permissions; an overlay is the cheapest way to one."""
    if blanks.overlays:
        return ("--overlay-src", blanks.empty, "--overlay-src", source, "--ro-overlay", path)
    return ("--ro-bind", source, path)


def wrap(
    command: Command,
    launcher: Sequence[str],
    seccomp: bytes | None,
    arguments: bytes | ArgumentPipe,
    *,
    shown: tuple[str, bytes] | None = None,
    signals: tuple[Sequence[str], Sequence[str]] | None = None,
    inner: Sequence[str] = (),
    scoped: int = 0,
    joined: Joined | None = None,
    apart: bool = False,
    loaded: Sequence[str] = (),
    held: tuple[int, ...] = (),
    ready: Callable[[], None] | None = None,
    report: StartReport | None = None,
) -> Command:
    """The command that runs `command` beneath bubblewrap, which is the `launcher`.

    `arguments` are from `packed` and `environment`, or are still to come with `ready`. `signals`
    are the launchers for a terminal: bubblewrap must ignore Ctrl-C, which the terminal sends to it
    too, and the command must not. `shown` is a file to make inside, and its content, for a program
    that brings a kernel of its own; `apart` is for one that makes namespaces. `inner` runs first
    inside and starts the rest. `scoped` asks for Landlock's scopes alone, without its file rules,
    which forbid mounts. `joined` has the links that stay where they are, as bubblewrap itself can
    mount nothing on a link; `loaded` are variables that are set when the masks are made and the
    view is checked. `report` is where bubblewrap says that it started the command.
    """
    used = {wire.MASKS_FD, *(fd for fd, _ in (*command.files, *command.fds))}
    free = (fd for fd in count(_FIRST_FD) if fd not in used)
    filter_fd, arguments_fd, shown_fd, report_fd = (next(free) for _ in range(4))
    outer, reset = signals or ((), ())
    if reset and "=" in command.argv[0]:
        reset = (*reset, "/bin/sh", "-c", 'exec "$0" "$@"')  # env would take it for a variable
    argv = (
        *outer,
        *launcher,
        *(() if command.tty else ("--new-session",)),
        *(("--seccomp", str(filter_fd)) if seccomp is not None else ()),
        "--args",
        str(arguments_fd),
        *(("--json-status-fd", str(report_fd)) if report is not None else ()),
        *(_kernel_of_its_own(shown_fd, shown[0]) if shown is not None else ()),
        "--chdir",
        command.cwd,
        "--",
        *(_waiting(loaded) if apart or (joined is not None and joined.waits) else ()),
        *inner,
        *reset,
        *command.argv,
    )
    files, fds = command.files, command.fds
    fds = fds if report is None else (*fds, (report_fd, report.fd))
    files = files if seccomp is None else (*files, (filter_fd, seccomp))
    files = files if shown is None else (*files, (shown_fd, shown[1]))
    if isinstance(arguments, ArgumentPipe):
        fds = (*fds, (arguments_fd, arguments.fd))
    else:
        files = (*files, (arguments_fd, arguments))
    return Command(
        argv,
        cwd="/",
        env={},
        tty=command.tty,
        rows=command.rows,
        cols=command.cols,
        files=files,
        fds=fds,
        landlock=command.landlock,
        landlock_net=command.landlock_net,
        landlock_scoped=scoped,
        seccomp=command.seccomp,
        limits=command.limits,
        linked=joined.links if joined is not None else (),
        masks=joined.masks if joined is not None else (),
        apart=apart,
        check=joined.check if joined is not None else None,
        held=held,
        own_pid_namespace=True,
        ready=ready,
    )


def _kernel_of_its_own(fd: int, path: str) -> tuple[str, ...]:
    """A file for a program that makes namespaces, which takes a /proc that can be written."""
    return ("--proc", "/proc", "--ro-bind-data", str(fd), path)


def _waiting(loaded: Sequence[str]) -> tuple[str, ...]:
    """What waits for masks, and then sets the variables that were kept from it."""
    given = ("/usr/bin/env", *loaded, "/bin/sh", "-c", 'exec "$0" "$@"')
    return (*WAITS, *(given if loaded else ()))


def loaded_settings(env: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that bring a shell what a command may have written."""
    settings = (f"{name}={value}" for name, value in env.items())
    return tuple(text for text in settings if text.startswith(_LOADED) and "\0" not in text)


def packed(arguments: Sequence[str]) -> bytes:
    """Arguments as bubblewrap reads them from a descriptor."""
    return os.fsencode("".join(f"{argument}\0" for argument in arguments))


def environment(env: Mapping[str, str]) -> bytes:
    """Variables as arguments that bubblewrap reads from a descriptor.

    What cannot be a variable is left out: bubblewrap would refuse the whole command.
    """
    kept = [
        f"--setenv\0{name}\0{value}\0"
        for name, value in env.items()
        if name and "=" not in name and "\0" not in name and "\0" not in value
    ]
    return os.fsencode("".join(kept))
